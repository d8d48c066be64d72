//! Where a run stands: the fold of all events so far, and what a watcher who comes late is sent.

use crate::event::Event;
use crate::history::History;
use crate::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

/// Where a run stands, and how it got there in outline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CatchUp {
    /// Events lost so far.
    pub dropped: u64,
    /// Every rank now.
    pub snapshot: Snapshot,
    /// The losses so far.
    pub history: History,
}

impl CatchUp {
    /// The beginning of a run of `world_size` ranks over `units` units.
    pub fn new(world_size: u32, units: usize) -> Self {
        CatchUp { dropped: 0, snapshot: Snapshot::new(world_size, units), history: History::default() }
    }

    /// Takes one event into account.
    pub fn apply(&mut self, event: &Event) {
        self.snapshot.apply(event);
        self.history.apply(event);
    }
}
