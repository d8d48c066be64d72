//! Streams of work on a GPU, and points in them.

use super::call::Named;
use super::library::Library;
use crate::Result;
use cudarc::driver::{result, sys};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The priority of a stream: a GPU prefers the work of urgent ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamPriority {
    Usual,
    Urgent,
}

/// A queue of work on a GPU, in order.
pub(super) struct Stream {
    handle: sys::CUstream,
    queued: AtomicU64,
    waits: AtomicU64,
}

// SAFETY: the driver's handles may be used from any thread; every call is thread-safe.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// Returns a stream of the current context.
    pub(super) fn new(priority: StreamPriority) -> Result<Self> {
        let (least, greatest) = result::stream::get_priority_range().named("cuCtxGetStreamPriorityRange")?;
        let priority = match priority {
            StreamPriority::Usual => least,
            StreamPriority::Urgent => greatest,
        };
        let kind = result::stream::StreamKind::NonBlocking;
        let handle =
            result::stream::create_with_priority(kind, priority).named("cuStreamCreateWithPriority")?;
        Ok(Stream { handle, queued: AtomicU64::new(0), waits: AtomicU64::new(0) })
    }

    /// Returns the driver's handle, to queue one piece of work with: each call is counted.
    pub(super) fn handle(&self) -> sys::CUstream {
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.handle
    }

    /// Kernels, copies and fills queued so far.
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Returns the number of times that the host has waited for it to be idle.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Blocks the host until everything queued so far is done.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.handle) }.named("cuStreamSynchronize")
    }

    /// Blocks the host until `fence`, a point after everything queued so far.
    pub(super) fn wait_for(&self, fence: &Fence) -> Result<()> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        fence.wait()
    }

    /// Makes all work queued from now on start after `fence`.
    pub(super) fn wait(&self, fence: &Fence) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both live during the call, which is all that the driver needs.
        unsafe { result::stream::wait_event(self.handle, fence.0.0, flags) }.named("cuStreamWaitEvent")
    }

    /// Returns a point after everything queued so far.
    pub(super) fn fence(&self) -> Result<Fence> {
        let event = Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        self.record(&event)?;
        Ok(Fence(event))
    }

    /// Returns a fence after the copy that was queued last. If no fence can be created, blocks
    /// until the stream is idle, so that the memory of the copy can be used again.
    pub(super) fn fence_after_copy(&self) -> Result<Fence> {
        self.fence().inspect_err(|_| drop(self.synchronize()))
    }

    /// Moves `mark` to the point after everything queued so far.
    pub(super) fn mark(&self, mark: &Mark) -> Result<()> {
        self.record(&mark.0)
    }

    fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both live during the call.
        unsafe { result::event::record(event.0, self.handle) }.named("cuEventRecord")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: no other copy of the handle is used. The driver finishes queued work first.
        let _ = unsafe { result::stream::destroy(self.handle) };
    }
}

/// A point in a stream's work.
struct Event(sys::CUevent);

impl Event {
    /// Of the current context.
    fn new(flags: sys::CUevent_flags) -> Result<Self> {
        result::event::create(flags).named("cuEventCreate").map(Event)
    }

    /// True if the stream has reached it.
    fn is_reached(&self) -> Result<bool> {
        // SAFETY: the event lives as long as `self`.
        match unsafe { result::event::query(self.0) } {
            Err(error) if error.0 == sys::cudaError_enum::CUDA_ERROR_NOT_READY => Ok(false),
            answer => answer.named("cuEventQuery").map(|()| true),
        }
    }
}

// SAFETY: as for `Stream`.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: no other copy of the handle is used; the driver keeps what queued waits need.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// A point in a stream's work, for other streams to wait for.
pub struct Fence(Event);

impl Fence {
    /// True if the stream has reached it.
    pub(super) fn is_reached(&self) -> Result<bool> {
        self.0.is_reached()
    }

    /// Blocks the host until the stream has reached it.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the event lives as long as `self`.
        unsafe { result::event::synchronize(self.0.0) }.named("cuEventSynchronize")
    }
}

/// A point in a stream's work whose time the GPU records.
pub(crate) struct Mark(Event);

impl Mark {
    /// Of the current context; see [`Stream::mark`].
    pub(super) fn new() -> Result<Self> {
        Event::new(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Mark)
    }

    /// True if the stream is past it.
    pub(super) fn is_past(&self) -> Result<bool> {
        self.0.is_reached()
    }

    /// Returns the nanoseconds from `earlier` to this point; both are past. Exact to a
    /// ten-millionth plus half a microsecond.
    pub(super) fn since(&self, earlier: &Mark) -> Result<i64> {
        let mut milliseconds = 0.0;
        // SAFETY: both events and the place for the number live during the call.
        let told = unsafe { elapsed_time()?(&mut milliseconds, earlier.0.0, self.0.0) };
        told.result().named("cuEventElapsedTime")?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }
}

type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// Finds `cuEventElapsedTime`, which every driver has; `cudarc` declares only the name that came
/// with CUDA 12.8.
fn elapsed_time() -> Result<ElapsedTime> {
    static FOUND: OnceLock<ElapsedTime> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(*found);
    }
    // SAFETY: the type is that of the driver's interface.
    let found = unsafe { Library::Driver.function("cuEventElapsedTime") }?;
    Ok(*FOUND.get_or_init(|| found))
}
