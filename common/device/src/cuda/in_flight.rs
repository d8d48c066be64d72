//! Which queued copies touch a block of memory.

use super::stream::Fence;
use events::lock;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The queued copies that touch a block of memory.
#[derive(Default)]
pub(super) struct InFlight(Mutex<Vec<Touch>>);

/// A copy's access to a block.
struct Touch {
    /// The bytes that it reads or writes.
    bytes: Range<usize>,
    writes: bool,
    done: Arc<Fence>,
}

impl InFlight {
    /// Returns the ends of the copies that must be over before these bytes are read, or before they
    /// are written.
    pub(super) fn before(&self, bytes: &Range<usize>, writes: bool) -> Vec<Arc<Fence>> {
        let mut all = lock(&self.0);
        // A fence whose state the driver does not report is kept: waiting for it reports the
        // reason.
        all.retain(|touch| !touch.done.is_reached().unwrap_or(false));
        let overlaps = |touch: &&Touch| touch.bytes.start < bytes.end && bytes.start < touch.bytes.end;
        let conflicts = all.iter().filter(overlaps).filter(|touch| writes || touch.writes);
        conflicts.map(|touch| touch.done.clone()).collect()
    }

    /// Marks bytes that a copy reads or `writes` until it is `done`.
    pub(super) fn add(&self, bytes: Range<usize>, writes: bool, done: Arc<Fence>) {
        let touch = Touch { bytes, writes, done };
        lock(&self.0).push(touch);
    }

    /// True if no copy that touches the block is known to be queued.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}
