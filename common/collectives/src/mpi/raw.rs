//! The MPI calls that this crate uses, each behind a safe function.

use crate::wire::Payload;
use mpi::ffi;
use std::mem::MaybeUninit;
use std::os::raw::{c_int, c_void};

/// Bytes per unit in which MPI counts. Its counts have 31 bits, and buffers may have more bytes
/// than that.
pub(crate) const BLOCK: usize = 64;
/// Tag of all messages.
const TAG: c_int = 7;

/// All processes of the job. Callers must call from one thread at a time.
pub(crate) struct MpiWorld {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    comm: ffi::MPI_Comm,
    block: ffi::MPI_Datatype,
}

// SAFETY: the handles mean the same in every thread of the process.
unsafe impl Send for MpiWorld {}

/// A transfer in flight; it owns its memory.
pub(crate) struct Transfer {
    request: ffi::MPI_Request,
    /// The payload, to be taken once the transfer is done.
    pub(crate) payload: Payload,
}

// SAFETY: as for `MpiWorld`.
unsafe impl Send for Transfer {}

impl MpiWorld {
    /// Starts MPI.
    pub(crate) fn start() -> Result<Self, String> {
        let (mut granted, mut rank, mut size) = (0, 0, 0);
        let mut block = MaybeUninit::uninit();
        // SAFETY: MPI is started once, before any other call; all pointers are valid for the call.
        // The constants are initialised by the library itself.
        unsafe {
            let comm = ffi::RSMPI_COMM_WORLD;
            let (none, args) = (std::ptr::null_mut(), std::ptr::null_mut());
            checked(ffi::MPI_Init_thread(none, args, ffi::RSMPI_THREAD_SERIALIZED, &mut granted), "start")?;
            if granted < ffi::RSMPI_THREAD_SERIALIZED {
                return Err(
                    "this MPI cannot be used from more than one thread: it grants no MPI_THREAD_SERIALIZED"
                        .into(),
                );
            }
            checked(ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN), "set its error handler")?;
            checked(ffi::MPI_Comm_rank(comm, &mut rank), "tell the rank")?;
            checked(ffi::MPI_Comm_size(comm, &mut size), "tell the number of processes")?;
            let bytes = ffi::RSMPI_UINT8_T;
            checked(ffi::MPI_Type_contiguous(BLOCK as c_int, bytes, block.as_mut_ptr()), "make a type")?;
            checked(ffi::MPI_Type_commit(block.as_mut_ptr()), "make a type")?;
            Ok(MpiWorld { rank: rank as u32, size: size as u32, comm, block: block.assume_init() })
        }
    }

    /// Begins to send a payload, whose length is a multiple of [`BLOCK`].
    pub(crate) fn send(&self, to: u32, payload: Payload) -> Result<Transfer, String> {
        begin(payload, "send", |start, count, request| {
            // SAFETY: `begin` passes valid pointers.
            unsafe { ffi::MPI_Isend(start, count, self.block, to as c_int, TAG, self.comm, request) }
        })
    }

    /// Returns the sender and the bytes of a message that can be received; `None` if none can.
    pub(crate) fn probe(&self) -> Result<Option<(u32, usize)>, String> {
        let (mut there, mut count) = (0, 0);
        let mut status = MaybeUninit::<ffi::MPI_Status>::uninit();
        // SAFETY: pointers are valid for the calls, and the status is read only if it was written.
        unsafe {
            let code =
                ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, TAG, self.comm, &mut there, status.as_mut_ptr());
            checked(code, "look for messages")?;
            if there == 0 {
                return Ok(None);
            }
            checked(ffi::MPI_Get_count(status.as_ptr(), self.block, &mut count), "measure a message")?;
            Ok(Some((status.assume_init().MPI_SOURCE as u32, count as usize * BLOCK)))
        }
    }

    /// Begins to receive the oldest message of `from` into a payload of its size.
    pub(crate) fn receive(&self, from: u32, payload: Payload) -> Result<Transfer, String> {
        begin(payload, "receive", |start, count, request| {
            // SAFETY: `begin` passes valid pointers.
            unsafe { ffi::MPI_Irecv(start, count, self.block, from as c_int, TAG, self.comm, request) }
        })
    }

    /// True if a transfer is done; MPI forgets it then.
    pub(crate) fn is_done(&self, transfer: &mut Transfer) -> Result<bool, String> {
        let mut done = 0;
        // SAFETY: the request is this transfer's own, and a finished one becomes the null request,
        // which is always done.
        let code = unsafe { ffi::MPI_Test(&mut transfer.request, &mut done, ffi::RSMPI_STATUS_IGNORE) };
        checked(code, "finish a transfer")?;
        Ok(done != 0)
    }

    /// Finalizes MPI, together with all other processes.
    pub(crate) fn end(&self) {
        // SAFETY: the last call, and no transfer is in flight.
        unsafe { ffi::MPI_Finalize() };
    }
}

/// Begins a transfer by `call`, with the payload's address and blocks and a place for the request.
/// The payload holds these blocks on the heap, and stays there, untouched, until the transfer is
/// done.
fn begin(
    mut payload: Payload,
    what: &str,
    call: impl FnOnce(*mut c_void, c_int, *mut ffi::MPI_Request) -> c_int,
) -> Result<Transfer, String> {
    let bytes = payload.bytes().len();
    let count = c_int::try_from(bytes / BLOCK)
        .map_err(|_| format!("a message of {bytes} bytes is too large for MPI"))?;
    let mut request = MaybeUninit::uninit();
    checked(call(payload.bytes_mut().as_mut_ptr().cast(), count, request.as_mut_ptr()), what)?;
    // SAFETY: a call that succeeds has written the request.
    Ok(Transfer { request: unsafe { request.assume_init() }, payload })
}

fn checked(code: c_int, what: &str) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("MPI cannot {what} (error code {code})")) }
}
