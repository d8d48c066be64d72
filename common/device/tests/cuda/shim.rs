//! The host shim as a place to launch kernels: see `tests/shim/shim.h`.

use crate::memory::Memory;
use device::cuda::kernels::{Argument, Launch, Launcher, MatrixOperand, Multiplier};
use device::{DType, Result, Write};
use half::{bf16, f16};
use libloading::Library;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Reports to the shim each access whose address is not a multiple of its size, at which a GPU
/// faults.
const CHECK_ADDRESSES: [&str; 2] = ["-fsanitize=alignment", "-fno-sanitize-recover=alignment"];

/// Has the compiler use all of this processor's instructions.
const NATIVE: &str = if cfg!(target_arch = "aarch64") { "-mcpu=native" } else { "-march=native" };

const FLAGS: [&str; 8] = [
    "-std=c++17",
    "-O1",
    NATIVE,
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
];

type LaunchFn = unsafe extern "C" fn(
    *const c_char,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    usize,
    *const *mut c_void,
) -> c_int;

/// The shim's functions.
struct Functions {
    launch: LaunchFn,
    signature: unsafe extern "C" fn(*const c_char) -> *const c_char,
    error: unsafe extern "C" fn() -> *const c_char,
    static_bytes: unsafe extern "C" fn() -> usize,
    seed: unsafe extern "C" fn(u64),
    kernel_count: unsafe extern "C" fn() -> usize,
}

/// The shim, compiled from the sources as they are.
fn functions() -> &'static Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        // SAFETY: the library is the one that `build` made; its initialisers only fill a table of
        // kernels.
        let library = Box::leak(Box::new(unsafe { Library::new(build()) }.unwrap()));
        // SAFETY: the types are those of `shim.h`.
        unsafe {
            Functions {
                launch: *library.get(b"shim_launch").unwrap(),
                signature: *library.get(b"shim_signature").unwrap(),
                error: *library.get(b"shim_error").unwrap(),
                static_bytes: *library.get(b"shim_static_bytes").unwrap(),
                seed: *library.get(b"shim_seed").unwrap(),
                kernel_count: *library.get(b"shim_kernel_count").unwrap(),
            }
        }
    })
}

/// Compiles the shim unless it has been compiled from the same sources.
fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (kernels, shim) = (root.join("src/cuda/kernels"), root.join("tests/shim"));
    let mut hasher = DefaultHasher::new();
    (FLAGS, CHECK_ADDRESSES).hash(&mut hasher);
    for folder in [&kernels, &shim] {
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.retain(|file| file.extension().is_some_and(|extension| extension != "rs"));
        files.iter().for_each(|file| (file, fs::read(file).unwrap()).hash(&mut hasher));
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = directory.join(format!("kernels-{:016x}.so", hasher.finish()));
    // Tests may run in processes of their own: one compiles, the others wait.
    let lock = File::create(directory.join("kernels.lock")).unwrap();
    lock.lock().unwrap();
    if !library.exists() {
        compile(&kernels, &shim, &library);
    }
    library
}

/// Returns from the test in which it stands if the shim cannot be built: see [`can_be_built`].
macro_rules! shim_or_return {
    () => {
        if !$crate::shim::can_be_built() {
            return;
        }
    };
}
pub(crate) use shim_or_return;

/// True if there is a C++ compiler. If not, writes to the terminal, even when output is captured,
/// that the calling test was skipped.
pub(crate) fn can_be_built() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let starts = || Command::new(compiler()).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = *FOUND.get_or_init(starts);
    if !found {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let remedy = "the kernels run on the CPU with a C++ compiler: install g++, or set CXX";
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {remedy}");
    }
    found
}

fn compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".into())
}

/// Compiles the sources in parallel, then links them.
fn compile(kernels: &Path, shim: &Path, library: &Path) {
    let [unfinished, objects] = ["unfinished", "objects"].map(|kind| library.with_extension(kind));
    fs::create_dir_all(&objects).unwrap();
    let names = ["shim", "tensor_cores", "run", "warpgroup", "fibers"];
    let object = |name: &str| objects.join(name).with_extension("o");
    std::thread::scope(|scope| {
        for name in names {
            let mut command = Command::new(compiler());
            command.args(FLAGS).args(CHECK_ADDRESSES).arg("-I").arg(kernels).arg("-c").arg("-o");
            command.arg(object(name)).arg(shim.join(name).with_extension("cpp"));
            scope.spawn(move || succeed(&mut command));
        }
    });
    succeed(Command::new(compiler()).args(FLAGS).args(names.map(object)).arg("-o").arg(&unfinished));
    fs::remove_dir_all(objects).unwrap();
    fs::rename(unfinished, library).unwrap();
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The letters of a kernel's parameters; `None` if there is no such kernel.
pub(crate) fn signature(kernel: &str) -> Option<String> {
    let name = CString::new(kernel).unwrap();
    // SAFETY: a null-terminated name; the answer is null or lives as long as the library.
    let letters = unsafe { (functions().signature)(name.as_ptr()) };
    // SAFETY: as above.
    (!letters.is_null()).then(|| unsafe { CStr::from_ptr(letters) }.to_str().unwrap().to_owned())
}

/// Kernels in the sources.
pub(crate) fn kernel_count() -> usize {
    // SAFETY: only reads a table.
    unsafe { (functions().kernel_count)() }
}

/// Runs kernels by the shim, on this thread.
pub(crate) struct Shim {
    architecture: u32,
    scratch: RefCell<Option<Memory>>,
}

impl Shim {
    /// A shim whose orders of blocks and lanes follow from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        // SAFETY: takes any number.
        unsafe { (functions().seed)(seed) };
        Shim { architecture: 90, scratch: RefCell::new(None) }
    }

    /// The shim as a GPU of another compute capability.
    pub(crate) fn with_architecture(self, architecture: u32) -> Self {
        Shim { architecture, ..self }
    }

    /// Runs a launch; fails with the shim's message.
    pub(crate) fn run(&self, launch: Launch<'_>) -> std::result::Result<(), String> {
        let name = CString::new(launch.kernel.name).unwrap();
        let arguments: Vec<_> = launch.arguments.iter().map(Argument::as_ptr).collect();
        let ([grid_x, grid_y, grid_z], [x, y, z]) = (launch.grid, launch.block);
        let (functions, shared) = (functions(), launch.shared_bytes as usize);
        // SAFETY: the caller's arguments have the types of the kernel's parameters, and point to
        // enough memory.
        let status = unsafe {
            (functions.launch)(name.as_ptr(), grid_x, grid_y, grid_z, x, y, z, shared, arguments.as_ptr())
        };
        // SAFETY: a null-terminated text that lives until this thread's next launch.
        let error = || unsafe { CStr::from_ptr((functions.error)()) }.to_str().unwrap().to_owned();
        if status == 0 { Ok(()) } else { Err(error()) }
    }
}

/// An argument's type as [`signature`] writes it.
fn letter(argument: &Argument<'_>) -> char {
    match argument {
        Argument::Pointer(_) => 'p',
        Argument::U32(_) => 'u',
        Argument::U64(_) => 'l',
        Argument::F32(_) => 'f',
        Argument::F64(_) => 'd',
        Argument::Peers(_) => 'P',
        Argument::Factors(_) => 'F',
    }
}

impl Launcher for Shim {
    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        let letters: String = launch.arguments.iter().map(letter).collect();
        assert_eq!(signature(launch.kernel.name), Some(letters), "arguments of {}", launch.kernel.name);
        self.run(launch).unwrap_or_else(|error| panic!("{error}"));
        // The most shared memory that a block may use on every GPU of the generation.
        let most = match self.architecture {
            ..80 => 64 << 10,
            90 => 227 << 10,
            _ => 99 << 10,
        };
        // SAFETY: only reads a number.
        let all = launch.shared_bytes as usize + unsafe { (functions().static_bytes)() };
        assert!(all <= most, "{}: {all} bytes of shared memory", launch.kernel.name);
        Ok(())
    }

    fn scratch(&self, bytes: usize) -> Result<u64> {
        let memory = Memory::poisoned(DType::U32, bytes.div_ceil(4), 0);
        let pointer = memory.pointer();
        *self.scratch.borrow_mut() = Some(memory);
        Ok(pointer)
    }

    fn architecture(&self) -> u32 {
        self.architecture
    }
}

/// Element (row, column) of a matrix as a product reads it.
///
/// # Safety
/// The matrix describes readable memory.
unsafe fn element(matrix: &MatrixOperand, row: usize, column: usize) -> f64 {
    let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
    assert!(row < matrix.rows && column < matrix.columns);
    let address = matrix.data.pointer as usize + (row * matrix.stride + column) * matrix.data.dtype.size();
    // SAFETY: the caller's promise; tensors may start at any multiple of their elements' size.
    unsafe {
        match matrix.data.dtype {
            DType::F32 => f64::from((address as *const f32).read()),
            DType::Bf16 => (address as *const bf16).read().to_f64(),
            DType::F16 => (address as *const f16).read().to_f64(),
            DType::U32 => panic!("a product of indices"),
        }
    }
}

/// As cuBLASLt, but with sums in f64, which are exact enough to stand for any order of summation.
impl Multiplier for Shim {
    fn multiply(&self, out: MatrixOperand, a: MatrixOperand, b: MatrixOperand, write: Write) -> Result<()> {
        let size = |matrix: &MatrixOperand| {
            if matrix.transposed { (matrix.columns, matrix.rows) } else { (matrix.rows, matrix.columns) }
        };
        let ((rows, depth), (b_rows, columns)) = (size(&a), size(&b));
        assert_eq!((rows, columns, depth), (out.rows, out.columns, b_rows));
        assert!(a.data.dtype == b.data.dtype && [a.data.dtype, DType::F32].contains(&out.data.dtype));
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            // SAFETY: the caller's matrices lie in memory as they say.
            let product: f64 =
                (0..depth).map(|i| unsafe { element(&a, row, i) * element(&b, i, column) }).sum();
            // SAFETY: as above.
            let before = if write == Write::Accumulate { unsafe { element(&out, row, column) } } else { 0.0 };
            let sum = (before + product) as f32;
            let address = out.data.pointer as usize + (row * out.stride + column) * out.data.dtype.size();
            // SAFETY: as above.
            unsafe {
                match out.data.dtype {
                    DType::F32 => (address as *mut f32).write(sum),
                    DType::Bf16 => (address as *mut bf16).write(bf16::from_f32(sum)),
                    DType::F16 => (address as *mut f16).write(f16::from_f32(sum)),
                    DType::U32 => panic!("a product of indices"),
                }
            }
        }
        Ok(())
    }
}
