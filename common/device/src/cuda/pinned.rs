//! Page-locked main memory, which a GPU reaches: transfers run at full speed.
//!
//! Locking pages takes longer than most transfers, so a rank keeps freed blocks for reuse.

use super::call::Named;
use super::context::Context;
use crate::Result;
use cudarc::driver::result;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Freed blocks by size.
#[derive(Default)]
pub(super) struct Spare(Mutex<BTreeMap<usize, Vec<Pages>>>);

impl Spare {
    fn blocks(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<Pages>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A block of page-locked memory; goes back to [`Spare`] when dropped. Its contents are unspecified
/// at first.
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

    pub(crate) fn bytes(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], Pages::bytes)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], Pages::bytes_mut)
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
        Ok(Pages { context, start: start.cast(), bytes })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: allocated and initialised with this many bytes, and borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: allocated once, freed once; transfers from and to it are waited for where they are made.
        let _ = unsafe { result::free_host(self.start.cast::<c_void>()) };
    }
}
