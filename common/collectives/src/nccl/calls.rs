//! NCCL's calls with results in place of codes. The callers answer for addresses and handles.

use super::raw::{
    Code, Config, Functions, Handle, IN_PROGRESS, NO_COLOR, REMOTE_ERROR, SUCCESS, SUM, SYSTEM_ERROR, Stream,
    UniqueId,
};
use device::DType;
use std::ffi::{c_int, c_void};

/// An error of NCCL's, in words: the call, and what NCCL says.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Whether a call that need not wait has done everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has.
    Done,
    /// It goes on without the caller.
    Running,
}

/// What is done with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast { root: usize },
    Send { to: usize },
    Recv { from: usize },
}

/// A buffer on a GPU, whole, and what is done with it in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) movement: Move,
    /// Of its first element.
    pub(crate) address: u64,
    /// Its elements.
    pub(crate) len: usize,
    pub(crate) dtype: DType,
}

/// NCCL's numbers for element types.
fn code_of(dtype: DType) -> c_int {
    match dtype {
        DType::U32 => 3,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::Bf16 => 9,
    }
}

impl Functions {
    fn state(&self, call: &str, code: Code, comm: Handle) -> Result<State> {
        match code {
            SUCCESS => Ok(State::Done),
            IN_PROGRESS => Ok(State::Running),
            code => Err(format!("{call}: {}", self.words(code, comm))),
        }
    }

    pub(crate) fn new_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the place for the word outlives the call.
        let code = unsafe { (self.get_unique_id)(&mut id) };
        self.state("ncclGetUniqueId", code, std::ptr::null_mut()).map(|_| id)
    }

    /// Begins to make a communicator on the calling thread's GPU, whose kernels have at most `blocks` blocks.
    ///
    /// # Safety
    /// Every rank calls it with the same word and size and a rank of its own.
    pub(crate) unsafe fn begin(
        &self,
        size: usize,
        id: UniqueId,
        rank: usize,
        blocks: Option<i32>,
    ) -> Result<(Handle, State)> {
        let (mut comm, mut config) = (std::ptr::null_mut(), Config::non_blocking(blocks));
        // SAFETY: NCCL writes the handle before it returns, and copies the settings.
        let code = unsafe { (self.init)(&mut comm, size as c_int, id, rank as c_int, &mut config) };
        self.state("ncclCommInitRankConfig", code, comm).map(|state| (comm, state))
    }

    /// Begins to split a communicator, as [`Functions::begin`] makes one. The new handle is in `place` once `comm` is done.
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
    ) -> Result<State> {
        let color = color.map_or(NO_COLOR, |color| color as c_int);
        let mut config = Config::non_blocking(blocks);
        // SAFETY: the caller's promise; NCCL copies the settings before it returns.
        let code = unsafe { (self.split)(comm, color, key as c_int, place, &mut config) };
        self.state("ncclCommSplit", code, comm)
    }

    /// How far a communicator has come; an error of its own, of a peer or of the network.
    ///
    /// # Safety
    /// `comm` is a communicator.
    pub(crate) unsafe fn progress(&self, comm: Handle) -> Result<State> {
        let mut state = SUCCESS;
        // SAFETY: the caller's promise.
        let code = unsafe { (self.async_error)(comm, &mut state) };
        self.state("ncclCommGetAsyncError", code, comm)?;
        match state {
            SUCCESS => Ok(State::Done),
            IN_PROGRESS => Ok(State::Running),
            code => Err(self.words(code, comm)),
        }
    }

    /// Whether the error that a communicator is in, if it is in one, may be another rank's.
    ///
    /// # Safety
    /// `comm` is a communicator.
    pub(crate) unsafe fn blames_another(&self, comm: Handle) -> bool {
        let mut state = SUCCESS;
        // SAFETY: the caller's promise.
        unsafe { (self.async_error)(comm, &mut state) };
        matches!(state, SYSTEM_ERROR | REMOTE_ERROR)
    }

    /// Queues `transfers` as one.
    ///
    /// # Safety
    /// `comm` is a communicator that is done with everything before, `member` this rank in it among `size`. The buffers
    /// are whole, lie on the communicator's GPU, and stay there, untouched, until the stream is past them. All ranks
    /// call with transfers that fit together.
    pub(crate) unsafe fn queue(
        &self,
        comm: Handle,
        (member, size): (usize, usize),
        transfers: &[Transfer],
        stream: Stream,
    ) -> Result<State> {
        // SAFETY: groups have no conditions.
        let started = unsafe { (self.group_start)() };
        self.state("ncclGroupStart", started, comm)?;
        // SAFETY: the caller's promise.
        let queued = transfers.iter().try_for_each(|transfer| unsafe {
            let (call, code) = self.one(comm, (member, size), transfer, stream);
            self.state(call, code, comm).map(drop)
        });
        // SAFETY: ends what was started above, whatever came of it.
        let ended = unsafe { (self.group_end)() };
        queued?;
        self.state("ncclGroupEnd", ended, comm)
    }

    /// # Safety
    /// As [`Functions::queue`].
    unsafe fn one(
        &self,
        comm: Handle,
        (member, size): (usize, usize),
        transfer: &Transfer,
        stream: Stream,
    ) -> (&'static str, Code) {
        let Transfer { movement, address, len, dtype } = *transfer;
        let slice = len / size;
        let start = address as *mut c_void;
        let own = (address + (member * slice * dtype.size()) as u64) as *mut c_void;
        let dtype = code_of(dtype);
        // SAFETY: the caller's promise. In place means: slice `member` of the whole buffer, where only a slice is meant.
        unsafe {
            match movement {
                Move::AllReduce => {
                    ("ncclAllReduce", (self.all_reduce)(start, start, len, dtype, SUM, comm, stream))
                }
                Move::ReduceScatter => {
                    ("ncclReduceScatter", (self.reduce_scatter)(start, own, slice, dtype, SUM, comm, stream))
                }
                Move::AllGather => {
                    ("ncclAllGather", (self.all_gather)(own, start, slice, dtype, comm, stream))
                }
                Move::Broadcast { root } => {
                    ("ncclBroadcast", (self.broadcast)(start, start, len, dtype, root as c_int, comm, stream))
                }
                Move::Send { to } => ("ncclSend", (self.send)(start, len, dtype, to as c_int, comm, stream)),
                Move::Recv { from } => {
                    ("ncclRecv", (self.recv)(start, len, dtype, from as c_int, comm, stream))
                }
            }
        }
    }
}
