//! Streams of work on a GPU, and points in them.

use super::call::Named;
use super::library::Library;
use crate::Result;
use cudarc::driver::{result, sys};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// A stream of the current context. Of two, the more urgent one's work is chosen first.
    pub(super) fn new(urgent: bool) -> Result<Self> {
        let (least, greatest) = result::stream::get_priority_range().named("cuCtxGetStreamPriorityRange")?;
        let priority = if urgent { greatest } else { least };
        let kind = result::stream::StreamKind::NonBlocking;
        let handle =
            result::stream::create_with_priority(kind, priority).named("cuStreamCreateWithPriority")?;
        Ok(Stream { handle, queued: AtomicU64::new(0), waits: AtomicU64::new(0) })
    }

    /// The driver's name for it, to queue one piece of work with: these are counted.
    pub(super) fn handle(&self) -> sys::CUstream {
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.handle
    }

    /// Kernels, copies and fills queued so far.
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }

    /// How often the host has waited until it was idle.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Waits on the host until everything queued so far is done.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.handle) }.named("cuStreamSynchronize")
    }

    /// Waits on the host for `fence`, a point after everything queued so far.
    pub(super) fn wait_for(&self, fence: &Fence) -> Result<()> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        fence.wait()
    }

    /// What is queued from now on starts after `fence`.
    pub(super) fn wait(&self, fence: &Fence) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both live during the call, which is all that the driver needs.
        unsafe { result::stream::wait_event(self.handle, fence.0.0, flags) }.named("cuStreamWaitEvent")
    }

    /// A point after everything queued so far.
    pub(super) fn fence(&self) -> Result<Fence> {
        let event = Event::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        self.record(&event)?;
        Ok(Fence(event))
    }

    /// `mark` becomes the point after everything queued so far.
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
        // SAFETY: nobody else has the handle. Work still queued is finished first by the driver.
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

    /// Whether the stream has come so far.
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
        // SAFETY: nobody else has the handle; waits that were queued before keep what they need of it.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// A point in a stream's work, for other streams to wait for.
pub struct Fence(Event);

impl Fence {
    /// Whether the stream has come so far.
    pub(super) fn is_reached(&self) -> Result<bool> {
        self.0.is_reached()
    }

    /// Waits on the host until the stream has come so far.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the event lives as long as `self`.
        unsafe { result::event::synchronize(self.0.0) }.named("cuEventSynchronize")
    }
}

/// A point in a stream's work whose time the GPU notes.
pub(crate) struct Mark(Event);

impl Mark {
    /// Of the current context; see [`Stream::mark`].
    pub(super) fn new() -> Result<Self> {
        Event::new(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Mark)
    }

    /// Whether the stream is past it.
    pub(super) fn is_past(&self) -> Result<bool> {
        self.0.is_reached()
    }

    /// Nanoseconds from `earlier` to this point; both are past. Exact to about a ten-millionth, and half a microsecond.
    pub(super) fn since(&self, earlier: &Mark) -> Result<i64> {
        let mut milliseconds = 0.0;
        // SAFETY: both events and the place for the number live during the call.
        let told = unsafe { elapsed_time()?(&mut milliseconds, earlier.0.0, self.0.0) };
        told.result().named("cuEventElapsedTime")?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }
}

type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// The call under its first name, which every driver has; `cudarc` has it under one that came with CUDA 12.8.
fn elapsed_time() -> Result<ElapsedTime> {
    static FOUND: OnceLock<ElapsedTime> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(*found);
    }
    // SAFETY: the type is that of the driver's interface.
    let found = unsafe { Library::Driver.function("cuEventElapsedTime") }?;
    Ok(*FOUND.get_or_init(|| found))
}
