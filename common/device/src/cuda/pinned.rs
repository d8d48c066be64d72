//! Page-locked main memory, which a GPU reaches: transfers run at full speed.
//!
//! Locking pages takes longer than most transfers, so a rank keeps freed blocks for reuse. When the
//! driver has no room for a new block, all ranks of the process free what they keep.

use super::context::Context;
use super::in_flight::InFlight;
use super::locked::Locked;
use crate::Result;
use events::lock;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

/// The freed blocks of all ranks of this process, whatever their GPUs: they share its main memory.
static ALL: Mutex<Vec<Weak<Spare>>> = Mutex::new(Vec::new());

/// A rank's freed blocks.
pub(super) struct Spare {
    context: Arc<Context>,
    /// The freed blocks, by size.
    blocks: Mutex<BTreeMap<usize, Vec<Pages>>>,
    /// Threads that fetch the pages of a new block.
    threads: usize,
}

impl Spare {
    pub(super) fn new(context: Arc<Context>, threads: usize) -> Arc<Self> {
        let spare = Arc::new(Spare { context, blocks: Mutex::default(), threads });
        let mut all = lock(&ALL);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&spare));
        spare
    }

    /// Locks a new block. If the driver has no room, retries after all ranks have freed their spare
    /// blocks.
    fn lock_pages(&self, bytes: usize) -> Result<Pages> {
        let new = || Pages::new(self.context.clone(), bytes, self.threads);
        new().or_else(|error| if self.free_all() { new() } else { Err(error) })
    }

    /// Frees the spare blocks of all ranks. False if there are none.
    fn free_all(&self) -> bool {
        let all: Vec<_> = lock(&ALL).iter().filter_map(Weak::upgrade).collect();
        let own = |spare: &Spare| std::ptr::eq(self, spare);
        // Blocks are freed only here, while no lock is held.
        let taken: Vec<Pages> = all.iter().flat_map(|spare| spare.take_all(own(spare))).collect();
        !taken.is_empty()
    }

    /// Takes all blocks; if they are not this rank's `own`, only those that no copy touches:
    /// another rank's copies may wait for this rank's next work.
    fn take_all(&self, own: bool) -> Vec<Pages> {
        let mut blocks = lock(&self.blocks);
        let all = std::mem::take(&mut *blocks).into_values().flatten();
        let (taken, left): (Vec<_>, Vec<_>) = all.partition(|pages| own || pages.is_untouched());
        left.into_iter().for_each(|pages| blocks.entry(pages.bytes).or_default().push(pages));
        taken
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
    pub(super) fn new(spare: &Arc<Spare>, bytes: usize) -> Result<Self> {
        let kept = lock(&spare.blocks).get_mut(&bytes).and_then(Vec::pop);
        let pages = kept.map_or_else(|| spare.lock_pages(bytes), Ok)?;
        Ok(Pinned { pages: Some(pages), spare: spare.clone() })
    }

    /// Returns the bytes `range`, to read.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.pages().bytes(range)
    }

    /// Returns the bytes `range`, to write.
    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.pages.as_mut().expect(HELD).bytes_mut(range)
    }

    /// Returns the address of bytes `range`, for copies that mark them in [`Pinned::in_flight`].
    ///
    /// # Panics
    /// If it has fewer bytes.
    pub(super) fn start(&self, range: &Range<usize>) -> *mut u8 {
        self.pages().start(range)
    }

    /// Returns the copies that touch it.
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
            lock(&self.spare.blocks).entry(pages.bytes).or_default().push(pages);
        }
    }
}

/// Pages that the driver has locked.
struct Pages {
    in_flight: InFlight,
    /// Before the context, so that it is freed first.
    locked: Locked,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: no other reference to this memory exists, and any thread may free it.
unsafe impl Send for Pages {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(context: Arc<Context>, bytes: usize, threads: usize) -> Result<Self> {
        context.enter()?;
        let locked = Locked::new(bytes, threads)?;
        Ok(Pages { in_flight: InFlight::default(), locked, bytes, context })
    }

    /// True if no copy touches the pages any more.
    fn is_untouched(&self) -> bool {
        let entered = || self.context.enter().is_ok();
        self.in_flight.is_empty() || (entered() && self.in_flight.before(&(0..self.bytes), true).is_empty())
    }

    fn start(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} of {} bytes", self.bytes);
        self.locked.start().wrapping_add(range.start)
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
    /// refuses to wait has failed and no longer copies anything; waiting for the copy itself
    /// reports that.
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
        // No copy touches the pages any more; they are freed next, in their context.
        let _ = self.context.enter();
    }
}
