//! An owned communicator: made and split without blocking, one call at a time, aborted when dropped
//! before its end.

use super::calls::{CallState, CommunicatorError, CommunicatorMember, Result, Transfer};
use super::raw::{Functions, Handle, Stream, UniqueId};
use device::DeviceError;
use device::cuda::{ContextWait, Runtime};
use events::lock;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

/// How long an abort waits for a call that is in progress. Afterwards it aborts even a call that
/// hangs in the driver.
const ABORT_GRACE: Duration = Duration::from_secs(1);
/// The first and the longest pause between two polls of a communicator's state. For the length of
/// the first pause it is polled without pauses: most calls are done by then, and the system wakes
/// no thread sooner.
const PAUSES: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];

/// Returns the reason to end a wait early; `None` to continue it.
pub(crate) type GiveUp<'a> = &'a dyn Fn() -> Option<String>;

/// One rank's end of a communicator.
pub(crate) struct Communicator {
    functions: &'static Functions,
    runtime: Arc<Runtime>,
    /// Null once aborted or destroyed.
    handle: AtomicPtr<c_void>,
    /// Held during a call.
    busy: Mutex<()>,
    membership: CommunicatorMember,
    /// The most blocks of a kernel; `None` for NCCL's choice.
    blocks: Option<i32>,
}

impl Communicator {
    /// Begins to make a communicator whose kernels have at most `blocks` blocks.
    /// [`Communicator::settle`] blocks until all ranks have done so.
    ///
    /// # Safety
    /// Every rank calls it with the same identifier and size and a member's number of its own.
    pub(crate) unsafe fn begin(
        runtime: &Arc<Runtime>,
        id: UniqueId,
        membership: CommunicatorMember,
        blocks: Option<i32>,
    ) -> Result<Self> {
        let functions = Functions::get().map_err(|error| error.to_string())?;
        runtime.enter().map_err(|error| error.to_string())?;
        // SAFETY: the caller's promise.
        let (handle, _) = unsafe { functions.begin(membership.size, id, membership.member, blocks) }?;
        Ok(Communicator::new(functions, runtime, handle, membership, blocks))
    }

    fn new(
        functions: &'static Functions,
        runtime: &Arc<Runtime>,
        handle: Handle,
        membership: CommunicatorMember,
        blocks: Option<i32>,
    ) -> Self {
        let (handle, busy) = (AtomicPtr::new(handle), Mutex::new(()));
        Communicator { functions, runtime: runtime.clone(), handle, busy, membership, blocks }
    }

    /// Returns this rank's number in the communicator.
    pub(crate) fn member(&self) -> usize {
        self.membership.member
    }

    /// Calls with the handle, after making the GPU the thread's.
    fn call<T>(&self, call: impl FnOnce(Handle) -> Result<T>) -> Result<T> {
        self.runtime.enter().map_err(|error| error.to_string())?;
        let _busy = lock(&self.busy);
        match self.handle.load(Ordering::Acquire) {
            handle if handle.is_null() => Err("the communicator was aborted".into()),
            handle => call(handle),
        }
    }

    /// Returns its state; an error of its own, of another rank or of the network.
    pub(crate) fn state(&self) -> Result<CallState> {
        // SAFETY: the handle is a communicator's.
        self.call(|handle| unsafe { self.functions.progress(handle) }.map_err(|error| error.reason))
    }

    /// Returns what [`Communicator::state`] does; `Running` while another call is in progress,
    /// since that may hang.
    pub(crate) fn state_unless_busy(&self) -> std::result::Result<CallState, CommunicatorError> {
        let own = |error: DeviceError| CommunicatorError { reason: error.to_string(), blames_another: false };
        self.runtime.enter().map_err(own)?;
        let Ok(_busy) = self.busy.try_lock() else { return Ok(CallState::Running) };
        match self.handle.load(Ordering::Acquire) {
            handle if handle.is_null() => Ok(CallState::Done),
            // SAFETY: the handle is a communicator's.
            handle => unsafe { self.functions.progress(handle) },
        }
    }

    /// True if it has failed and another rank [may be the
    /// cause](CommunicatorError::blames_another). Blocks while another call is in progress.
    pub(crate) fn blames_another(&self) -> bool {
        // SAFETY: the handle is a communicator's.
        let state = self.call(|handle| Ok(unsafe { self.functions.progress(handle) }));
        state.is_ok_and(|state| state.is_err_and(|error| error.blames_another))
    }

    /// Blocks until every call so far has completed, or until `give_up` returns a reason.
    pub(crate) fn settle(&self, give_up: GiveUp<'_>) -> Result<()> {
        let ([mut pause, longest], since) = (PAUSES, Instant::now());
        while self.state()? == CallState::Running {
            if let Some(reason) = give_up() {
                return Err(reason);
            }
            if since.elapsed() < PAUSES[0] {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
        Ok(())
    }

    /// Enqueues `transfers` as one operation, for `stream`. They are on it once the communicator
    /// has settled.
    ///
    /// # Safety
    /// The communicator has settled. The buffers are whole, lie on this rank's GPU, and stay there,
    /// untouched, until the stream is past them. All ranks enqueue transfers that fit together, in
    /// the same order.
    pub(crate) unsafe fn enqueue(&self, transfers: &[Transfer], stream: Stream) -> Result<CallState> {
        // SAFETY: the caller's promise.
        self.call(|handle| unsafe { self.functions.queue(handle, self.membership, transfers, stream) })
    }

    /// Splits it: ranks of the same `color` form a communicator, in the order of their members.
    /// Returns `None` without a colour.
    ///
    /// # Safety
    /// Every rank calls it, with nothing queued; `membership` is this rank's in its new
    /// communicator.
    pub(crate) unsafe fn split(
        &self,
        color: Option<usize>,
        membership: CommunicatorMember,
        give_up: GiveUp<'_>,
    ) -> Result<Option<Self>> {
        // NCCL writes the new handle here at some time: free the place only once it has.
        let made = Box::into_raw(Box::new(std::ptr::null_mut()));
        // SAFETY: the caller's promise; the place stays until the communicator is done.
        self.call(|handle| unsafe {
            self.functions.begin_split(handle, color, membership.member, self.blocks, made)
        })?;
        self.settle(give_up)?;
        // SAFETY: made above, and NCCL is done with it.
        let handle = *unsafe { Box::from_raw(made) };
        if color.is_none() || handle.is_null() {
            return Ok(None);
        }
        let child = Communicator::new(self.functions, &self.runtime, handle, membership, self.blocks);
        child.settle(give_up)?;
        Ok(Some(child))
    }

    /// Ends it in order, together with all other ranks.
    pub(crate) fn finish(&self, give_up: GiveUp<'_>) -> Result<()> {
        // SAFETY: the handle is a communicator's, and nothing is called after this.
        let code = self.call(|handle| Ok(unsafe { (self.functions.finalize)(handle) }))?;
        self.functions.meaning(code, std::ptr::null_mut())?;
        self.settle(give_up)?;
        let _busy = lock(&self.busy);
        let handle = self.handle.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !handle.is_null() {
            let _wait = ContextWait::begin();
            // SAFETY: no other thread has the handle any more, and the communicator is finalized.
            unsafe { (self.functions.destroy)(handle) };
        }
        Ok(())
    }

    /// Ends it at once, even during a call: kernels that wait for other ranks return. Any thread
    /// may call it.
    pub(crate) fn abort(&self) {
        let since = Instant::now();
        let mut busy = self.busy.try_lock();
        while matches!(busy, Err(TryLockError::WouldBlock)) && since.elapsed() < ABORT_GRACE {
            drop(busy);
            std::thread::sleep(PAUSES[1]);
            busy = self.busy.try_lock();
        }
        let handle = self.handle.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if handle.is_null() || self.runtime.enter().is_err() {
            return;
        }
        // SAFETY: the handle is a communicator's, and later calls find none. A call that is still
        // in progress hangs, and NCCL provides for an abort from another thread in that case.
        unsafe { (self.functions.abort)(handle) };
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
    }
}
