//! Marks around single pieces of a rank's work.

use super::stream::Mark;
use crate::Result;
use events::lock;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// A piece of work between two points on the compute stream.
pub(crate) struct Lap {
    pub(super) began: Mark,
    pub(super) ended: Mark,
}

/// Marks for reuse, and bytes counted.
#[derive(Default)]
pub(super) struct Laps {
    pub(super) spare: Mutex<Vec<Mark>>,
    /// Bytes read plus written in collectives.
    pub(super) moved: AtomicU64,
}

impl Laps {
    pub(super) fn mark(&self) -> Result<Mark> {
        let spare = lock(&self.spare).pop();
        spare.map_or_else(Mark::new, Ok)
    }
}
