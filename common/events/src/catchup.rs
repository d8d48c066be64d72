//! The current state of a run, which a watcher that joins late receives first.

use crate::amount::bounded;
use crate::event::Event;
use crate::history::History;
use crate::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

/// The current state of a run and its history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CatchUp {
    /// The number of events lost so far.
    #[serde(deserialize_with = "bounded")]
    pub dropped: u64,
    /// The current state of every rank.
    pub snapshot: Snapshot,
    /// The finished steps and validations.
    pub history: History,
}

impl CatchUp {
    /// Returns the state at the start of a run of `world_size` ranks over `units` units.
    pub fn new(world_size: u32, units: usize) -> Self {
        CatchUp { dropped: 0, snapshot: Snapshot::new(world_size, units), history: History::default() }
    }

    /// Applies one event.
    pub fn apply(&mut self, event: &Event) {
        self.snapshot.apply(event);
        self.history.apply(event);
    }
}
