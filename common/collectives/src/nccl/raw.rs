//! NCCL's functions and types as its header declares them, found at run time.

use bytemuck::{Pod, Zeroable};
use device::DeviceError;
use device::cuda::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// A communicator, as NCCL knows it.
pub(crate) type Handle = *mut c_void;
/// A stream, as the driver knows it.
pub(crate) type Stream = *mut c_void;
/// A function's return code: success, or an error.
pub(crate) type Code = c_int;

pub(crate) const SUCCESS: Code = 0;
/// A system call failed, as it does on a broken connection.
pub(crate) const SYSTEM_ERROR: Code = 2;
/// An argument is wrong.
pub(crate) const INVALID_ARGUMENT: Code = 4;
/// Another rank is gone, or the network to it.
pub(crate) const REMOTE_ERROR: Code = 6;
/// The call is in progress; ask for the communicator's state.
pub(crate) const IN_PROGRESS: Code = 7;
/// The operation of reductions.
pub(crate) const SUM: c_int = 0;
/// The colour of ranks that get no communicator from a split.
pub(crate) const NO_COLOR: c_int = -1;

/// The identifier by which the ranks of a communicator find each other.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct UniqueId(pub(crate) [u8; 128]);

/// Settings of a communicator, as of NCCL 2.18; later versions accept them.
#[repr(C)]
pub(crate) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

/// The oldest version that has these settings and functions: 2.18, as NCCL writes it.
pub(crate) const OLDEST: u32 = 21_800;

impl Config {
    /// Settings for calls that do not block and kernels of at most `blocks` blocks; NCCL chooses
    /// the rest.
    pub(crate) fn non_blocking(blocks: Option<c_int>) -> Self {
        let unset = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: OLDEST,
            blocking: 0,
            cga_cluster_size: unset,
            min_ctas: unset,
            max_ctas: blocks.unwrap_or(unset),
            net_name: std::ptr::null(),
            split_share: unset,
        }
    }
}

macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ty),*) -> $result:ty;)+) => {
        /// The functions that this crate uses.
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl Functions {
            fn find() -> Result<Self, DeviceError> {
                // SAFETY: the types are those of NCCL's header.
                unsafe { Ok(Functions { $($name: Library::Nccl.function($symbol)?,)+ }) }
            }
        }
    };
}

functions! {
    get_version = "ncclGetVersion"(*mut c_int) -> Code;
    get_unique_id = "ncclGetUniqueId"(*mut UniqueId) -> Code;
    init = "ncclCommInitRankConfig"(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> Code;
    split = "ncclCommSplit"(Handle, c_int, c_int, *mut Handle, *mut Config) -> Code;
    async_error = "ncclCommGetAsyncError"(Handle, *mut Code) -> Code;
    finalize = "ncclCommFinalize"(Handle) -> Code;
    destroy = "ncclCommDestroy"(Handle) -> Code;
    abort = "ncclCommAbort"(Handle) -> Code;
    group_start = "ncclGroupStart"() -> Code;
    group_end = "ncclGroupEnd"() -> Code;
    all_reduce = "ncclAllReduce"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Stream) -> Code;
    reduce_scatter = "ncclReduceScatter"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Stream) -> Code;
    all_gather = "ncclAllGather"(*const c_void, *mut c_void, usize, c_int, Handle, Stream) -> Code;
    broadcast = "ncclBroadcast"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Stream) -> Code;
    error_string = "ncclGetErrorString"(Code) -> *const c_char;
    last_error = "ncclGetLastError"(Handle) -> *const c_char;
}

impl Functions {
    /// Returns the library's functions; finds the library at the first call.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] if the library is not found; [`DeviceError::Cuda`] with a function
    /// that it lacks.
    pub(crate) fn get() -> Result<&'static Functions, DeviceError> {
        static FOUND: OnceLock<Result<Functions, DeviceError>> = OnceLock::new();
        FOUND.get_or_init(Functions::find).as_ref().map_err(Clone::clone)
    }

    /// Returns the library's version, as NCCL writes it: 23004 is 2.30.4.
    pub(crate) fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the place for the number outlives the call.
        unsafe { (self.get_version)(&mut version) };
        version as u32
    }

    /// Returns the meaning of a code, with NCCL's own message if NCCL gives one.
    pub(crate) fn words(&self, code: Code, comm: Handle) -> String {
        // SAFETY: both return texts that live as long as the library, or null; `comm` is a
        // communicator or null.
        let (text, detail) = unsafe { (words((self.error_string)(code)), words((self.last_error)(comm))) };
        let text = text.unwrap_or_else(|| format!("error {code}"));
        detail.map_or(text.clone(), |detail| format!("{text} ({detail})"))
    }
}

/// # Safety
/// `text` is null or a text that ends in a zero byte.
unsafe fn words(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string();
    (!text.is_empty()).then_some(text)
}
