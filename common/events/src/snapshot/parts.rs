//! The parts of a rank's state.

use crate::amount::{self, bounded};
use crate::event::{CollectiveEvent, Operation, Pass};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A pass over a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassNow {
    /// The pass.
    pub pass: Pass,
    /// The unit.
    pub unit: u16,
    /// The micro-batch.
    pub micro: u16,
    /// When it began, in nanoseconds of the run.
    #[serde(deserialize_with = "bounded")]
    pub since: u64,
}

/// A collective on one rank. Times are nanoseconds of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flight {
    /// Its latest event.
    pub event: CollectiveEvent,
    /// When this rank issued it.
    #[serde(deserialize_with = "bounded")]
    pub issued: u64,
    /// Time at which data began to move on this rank: every rank had issued the collective.
    #[serde(deserialize_with = "bounded")]
    pub started: Option<u64>,
    /// Time at which it was complete on this rank.
    #[serde(deserialize_with = "bounded")]
    pub finished: Option<u64>,
}

/// Whether a rank still runs, and if not, how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankStatus {
    /// The rank is running.
    #[default]
    Running,
    /// The rank has done all steps.
    Finished,
    /// The rank has failed and has not reported its error yet.
    Failing,
    /// The rank has failed with this error.
    Failed(String),
}

/// Bytes sent, per operation and per receiving rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Bytes per operation, in [`Operation::ALL`]'s order.
    #[serde(deserialize_with = "bounded")]
    pub by_operation: [u64; Operation::ALL.len()],
    /// Bytes per receiving rank, shared by clones until one changes. Zero where the algorithm emits
    /// no hops.
    #[serde(deserialize_with = "bounded")]
    pub by_receiver: Arc<Vec<u64>>,
}

impl Sent {
    /// Returns the bytes sent since `before`.
    pub(super) fn since(&self, before: &Sent) -> Sent {
        let mut difference = self.clone();
        amount::subtract(&mut difference.by_operation, &before.by_operation);
        let receivers = Arc::make_mut(&mut difference.by_receiver);
        amount::subtract(receivers, &before.by_receiver);
        difference
    }

    /// Returns the sum over all operations, in bytes.
    pub fn total(&self) -> u64 {
        amount::total(self.by_operation.iter().copied())
    }

    /// Returns the bytes of model data: all but scalars.
    pub fn data(&self) -> u64 {
        self.total().saturating_sub(self.by_operation[Operation::Scalars.index()])
    }
}

/// The scale of the latest finished step's loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The factor by which the loss was multiplied.
    pub scale: f64,
    /// The number of steps skipped so far because gradients overflowed.
    pub skipped: u32,
    /// True if this step was skipped.
    pub overflowed: bool,
}

/// A process group within the world that a rank is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The group's number in its collectives' events.
    pub number: u16,
    /// Its members, by their ranks in the world.
    pub ranks: Vec<u32>,
}

/// One chunk sent from a rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The process group: 0 is the world.
    pub group: u16,
    /// The collective's sequence number.
    #[serde(deserialize_with = "bounded")]
    pub sequence: u64,
    /// The receiving rank.
    pub to: u16,
    /// The chunk's index in the buffer.
    pub chunk: u16,
    /// The chunk's size.
    #[serde(deserialize_with = "bounded")]
    pub bytes: u64,
    /// The number of chunks that the rank has sent for this collective, this one included.
    pub number: u32,
}
