//! Page-locked main memory, which a GPU reaches: transfers run at full speed.
//!
//! Locking pages takes longer than most transfers, so a rank keeps freed blocks for reuse.

use super::call::Named;
use super::context::Context;
use super::in_flight::InFlight;
use crate::Result;
use cudarc::driver::result;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Freed blocks by size.
#[derive(Default)]
pub(super) struct Spare(Mutex<BTreeMap<usize, Vec<Pages>>>);

impl Spare {
    fn blocks(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<Pages>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The panic of a block without pages: it gives them back only when it is dropped.
const HELD: &str = "a block holds its pages";

/// A block of page-locked memory; goes back to [`Spare`] when dropped. Its contents are unspecified
/// at first. Accessing bytes that a copy touches blocks until the copy is done.
pub(crate) struct Pinned {
    /// `None` once given back.
    pages: Option<Pages>,
    spare: Arc<Spare>,
}

impl Pinned {
    pub(super) fn new(context: &Arc<Context>, spare: &Arc<Spare>, bytes: usize) -> Result<Self> {
        let kept = spare.blocks().get_mut(&bytes).and_then(Vec::pop);
        let pages = kept.map_or_else(|| Pages::new(context.clone(), bytes), Ok)?;
        Ok(Pinned { pages: Some(pages), spare: spare.clone() })
    }

    /// Bytes `range`, to read.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.pages().bytes(range)
    }

    /// Bytes `range`, to write.
    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.pages.as_mut().expect(HELD).bytes_mut(range)
    }

    /// The address of bytes `range`, for copies that mark them in [`Pinned::in_flight`].
    ///
    /// # Panics
    /// If it has fewer bytes.
    pub(super) fn start(&self, range: &Range<usize>) -> *mut u8 {
        self.pages().start(range)
    }

    /// The copies that touch it.
    pub(super) fn in_flight(&self) -> &InFlight {
        &self.pages().in_flight
    }

    fn pages(&self) -> &Pages {
        self.pages.as_ref().expect(HELD)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            self.spare.blocks().entry(pages.bytes).or_default().push(pages);
        }
    }
}

/// Pages that the driver has locked.
struct Pages {
    in_flight: InFlight,
    context: Arc<Context>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: no other reference to this memory exists, and any thread may free it.
unsafe impl Send for Pages {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(context: Arc<Context>, bytes: usize) -> Result<Self> {
        context.enter()?;
        // SAFETY: the driver takes a size and touches nothing of ours; a context is current.
        let start = unsafe { result::malloc_host(bytes.max(1), 0) }.named("cuMemHostAlloc")?;
        // SAFETY: just allocated with this many bytes; no other reference exists.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        Ok(Pages { in_flight: InFlight::default(), context, start: start.cast(), bytes })
    }

    fn start(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} of {} bytes", self.bytes);
        self.start.wrapping_add(range.start)
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.settle(&range, false);
        // SAFETY: allocated and initialised with these bytes, which no copy writes, and borrowed as
        // `self` is.
        unsafe { std::slice::from_raw_parts(self.start(&range), range.len()) }
    }

    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.settle(&range, true);
        // SAFETY: as above; no copy reads them either, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(&range), range.len()) }
    }

    /// Blocks until no copy is in the way of reading, or writing, bytes `range`. A driver that
    /// refuses to wait has failed, and copies nothing any more; waiting for the copy itself reports
    /// that.
    fn settle(&self, range: &Range<usize>, writes: bool) {
        if !self.in_flight.is_empty() {
            let _ = self.context.enter();
            self.in_flight.before(range, writes).iter().for_each(|fence| drop(fence.wait()));
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.settle(&(0..self.bytes), true);
        let _ = self.context.enter();
        // SAFETY: allocated once, freed once, and no copy touches it any more.
        let _ = unsafe { result::free_host(self.start.cast::<c_void>()) };
    }
}
