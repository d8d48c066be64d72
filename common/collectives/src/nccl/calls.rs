//! NCCL's calls with results in place of codes. The callers guarantee addresses and handles.

use super::raw::{
    Code, Config, Functions, Handle, IN_PROGRESS, INVALID_ARGUMENT, NO_COLOR, REMOTE_ERROR, SUCCESS, SUM,
    SYSTEM_ERROR, Stream, UniqueId,
};
use device::{DType, DeviceError};
use events::Operation;
use std::ffi::{c_int, c_void};

/// A result whose error is NCCL's, in words: the call, and NCCL's message.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The name under which a [`DeviceError`] reports an error of NCCL.
pub(crate) const NCCL: &str = "NCCL";

/// Returns the device's error for an error of NCCL.
pub(crate) fn nccl_error(reason: String) -> DeviceError {
    DeviceError::Cuda { call: NCCL, reason }
}

/// An error that a communicator has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommunicatorError {
    /// NCCL's message.
    pub(crate) reason: String,
    /// Another rank may be the cause: NCCL has lost a connection, and cannot tell why.
    pub(crate) blames_another: bool,
}

/// The state of a call that does not block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallState {
    /// The call has completed.
    Done,
    /// NCCL continues the call on a thread of its own.
    Running,
}

/// A rank's place in a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommunicatorMember {
    /// The rank's number in the communicator.
    pub(crate) member: usize,
    /// The number of ranks in the communicator.
    pub(crate) size: usize,
}

/// An operation in place on a whole buffer on a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) operation: Operation,
    /// The member that a broadcast sends from.
    pub(crate) root: usize,
    /// Address of its first element.
    pub(crate) address: u64,
    /// Its elements.
    pub(crate) len: usize,
    pub(crate) dtype: DType,
}

/// Returns NCCL's number for an element type.
fn code_of(dtype: DType) -> c_int {
    match dtype {
        DType::U32 => 3,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::Bf16 => 9,
    }
}

impl Functions {
    /// Returns the meaning of a code; `comm` is the communicator that it is about, or null.
    pub(crate) fn meaning(&self, code: Code, comm: Handle) -> Result<CallState> {
        match code {
            SUCCESS => Ok(CallState::Done),
            IN_PROGRESS => Ok(CallState::Running),
            code => Err(self.words(code, comm)),
        }
    }

    fn state(&self, call: &str, code: Code, comm: Handle) -> Result<CallState> {
        self.meaning(code, comm).map_err(|words| format!("{call}: {words}"))
    }

    pub(crate) fn new_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the place for the identifier outlives the call.
        let code = unsafe { (self.get_unique_id)(&mut id) };
        self.state("ncclGetUniqueId", code, std::ptr::null_mut()).map(|_| id)
    }

    /// Begins to make a communicator on the calling thread's GPU, whose kernels have at most
    /// `blocks` blocks.
    ///
    /// # Safety
    /// Every rank calls it with the same identifier and size and a rank of its own.
    pub(crate) unsafe fn begin(
        &self,
        size: usize,
        id: UniqueId,
        rank: usize,
        blocks: Option<i32>,
    ) -> Result<(Handle, CallState)> {
        let (mut comm, mut config) = (std::ptr::null_mut(), Config::non_blocking(blocks));
        // SAFETY: NCCL writes the handle before it returns, and copies the settings.
        let code = unsafe { (self.init)(&mut comm, size as c_int, id, rank as c_int, &mut config) };
        let state = self.state("ncclCommInitRankConfig", code, comm).inspect_err(|_| {
            if !comm.is_null() {
                // SAFETY: what has been made of the communicator has no other owner.
                unsafe { (self.abort)(comm) };
            }
        });
        state.map(|state| (comm, state))
    }

    /// Begins to split a communicator, as [`Functions::begin`] makes one. The new handle is in
    /// `place` once `comm` is done.
    ///
    /// # Safety
    /// `comm` is a communicator, and `place` stays where it is until `comm` is done.
    pub(crate) unsafe fn begin_split(
        &self,
        comm: Handle,
        color: Option<usize>,
        key: usize,
        blocks: Option<i32>,
        place: *mut Handle,
    ) -> Result<CallState> {
        let color = color.map_or(NO_COLOR, |color| color as c_int);
        let mut config = Config::non_blocking(blocks);
        // SAFETY: the caller's promise; NCCL copies the settings before it returns.
        let code = unsafe { (self.split)(comm, color, key as c_int, place, &mut config) };
        self.state("ncclCommSplit", code, comm)
    }

    /// Returns the state of a communicator; an error of its own, of another rank or of the network.
    ///
    /// # Safety
    /// `comm` is a communicator.
    pub(crate) unsafe fn progress(&self, comm: Handle) -> std::result::Result<CallState, CommunicatorError> {
        let mut state = SUCCESS;
        // SAFETY: the caller's promise.
        let code = unsafe { (self.async_error)(comm, &mut state) };
        let asked = self.state("ncclCommGetAsyncError", code, comm);
        let blames_another = matches!(state, SYSTEM_ERROR | REMOTE_ERROR);
        asked
            .and_then(|_| self.meaning(state, comm))
            .map_err(|reason| CommunicatorError { reason, blames_another })
    }

    /// Queues `transfers` as one operation.
    ///
    /// # Safety
    /// `comm` is a communicator that is done with everything before, `membership` this rank's in
    /// it. The buffers are whole, lie on the communicator's GPU, and stay there, untouched, until
    /// the stream is past them. All ranks call with transfers that fit together.
    pub(crate) unsafe fn queue(
        &self,
        comm: Handle,
        membership: CommunicatorMember,
        transfers: &[Transfer],
        stream: Stream,
    ) -> Result<CallState> {
        // SAFETY: starting a group has no conditions.
        let started = unsafe { (self.group_start)() };
        self.state("ncclGroupStart", started, comm)?;
        // SAFETY: the caller's promise.
        let queued = transfers.iter().try_for_each(|transfer| unsafe {
            let (call, code) = self.one(comm, membership, transfer, stream);
            self.state(call, code, comm).map(drop)
        });
        // SAFETY: ends the group started above, whether or not its calls succeeded.
        let ended = unsafe { (self.group_end)() };
        queued?;
        self.state("ncclGroupEnd", ended, comm)
    }

    /// # Safety
    /// As [`Functions::queue`].
    unsafe fn one(
        &self,
        comm: Handle,
        CommunicatorMember { member, size }: CommunicatorMember,
        transfer: &Transfer,
        stream: Stream,
    ) -> (&'static str, Code) {
        let Transfer { operation, root, address, len, dtype } = *transfer;
        let slice = len / size;
        let start = address as *mut c_void;
        let own = (address + (member * slice * dtype.size()) as u64) as *mut c_void;
        let dtype = code_of(dtype);
        // SAFETY: the caller's promise. In place means: slice `member` of the whole buffer, where
        // only a slice is meant.
        unsafe {
            match operation {
                Operation::AllReduce => {
                    ("ncclAllReduce", (self.all_reduce)(start, start, len, dtype, SUM, comm, stream))
                }
                Operation::ReduceScatter => {
                    ("ncclReduceScatter", (self.reduce_scatter)(start, own, slice, dtype, SUM, comm, stream))
                }
                Operation::AllGather => {
                    ("ncclAllGather", (self.all_gather)(own, start, slice, dtype, comm, stream))
                }
                Operation::Broadcast => {
                    ("ncclBroadcast", (self.broadcast)(start, start, len, dtype, root as c_int, comm, stream))
                }
                _ => (operation.label(), INVALID_ARGUMENT),
            }
        }
    }
}
