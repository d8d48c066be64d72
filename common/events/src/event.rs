//! The types of events: what can happen on a rank.

pub(crate) mod kinds;

use crate::amount::bounded;
use crate::unit_set::UnitSet;
pub use kinds::{Class, Operation, Pass, Place, Progress, Purpose, Route};
use serde::{Deserialize, Serialize};

/// One thing that happened on one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds since the run started, on the clock that all ranks of a process share.
    #[serde(deserialize_with = "bounded")]
    pub at: u64,
    /// The rank it happened on.
    pub rank: u32,
    /// What happened.
    pub what: What,
}

impl Event {
    /// Returns the start and end, in run time, of something that began `began` and ended `ended`
    /// nanoseconds before this event. Never negative in length.
    pub fn span(&self, began: u64, ended: u64) -> (u64, u64) {
        let from = self.at.saturating_sub(began);
        (from, self.at.saturating_sub(ended).max(from))
    }
}

/// The content of a collective's event. All ranks of a group emit the same values, apart from
/// `sent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectiveEvent {
    /// Its progress on this rank.
    pub progress: Progress,
    /// Number of the collective within its group, from 0.
    #[serde(deserialize_with = "bounded")]
    pub sequence: u64,
    /// The operation.
    pub operation: Operation,
    /// The process group: 0 is the world.
    pub group: u16,
    /// The units whose data it moves; none for scalars and barriers.
    pub units: UnitSet,
    /// Bytes of the full buffers, padding included.
    #[serde(deserialize_with = "bounded")]
    pub bytes: u64,
    /// Payload bytes that this rank has sent by this operation since the run started. Includes this
    /// collective once it is `Finished`.
    #[serde(deserialize_with = "bounded")]
    pub sent: u64,
}

/// The content of a transfer's event: bytes that one rank moves between two places.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferEvent {
    /// `Issued`, or `Finished` once the rank has waited for it.
    pub progress: Progress,
    /// Number of the transfer on this rank, from 0.
    #[serde(deserialize_with = "bounded")]
    pub sequence: u64,
    /// The places between which the bytes move.
    pub route: Route,
    /// The class that the bytes belong to where they are stored.
    pub class: Class,
    /// The unit that they belong to; for activations, the block's number.
    pub unit: u16,
    /// Payload bytes.
    #[serde(deserialize_with = "bounded")]
    pub bytes: u64,
    /// Payload bytes that this rank has moved on this route since the run started. Includes this
    /// transfer once it is `Finished`.
    #[serde(deserialize_with = "bounded")]
    pub moved: u64,
    /// Set once it is `Finished`: when the bytes began to move, in nanoseconds before this event.
    #[serde(deserialize_with = "bounded")]
    pub began: u64,
    /// Set once it is `Finished`: when the bytes had arrived, in nanoseconds before this event.
    #[serde(deserialize_with = "bounded")]
    pub ended: u64,
    /// Set once it is `Finished`: how long the rank was idle because it waited for the transfer, in
    /// nanoseconds.
    #[serde(deserialize_with = "bounded")]
    pub exposed: u64,
}

/// Work on one of a rank's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Work {
    /// A pass over a unit, on the compute stream.
    Pass {
        /// The pass.
        pass: Pass,
        /// The unit.
        unit: u16,
        /// The micro-batch within the step.
        micro: u16,
    },
    /// This rank's part of a collective, on the communication stream.
    Collective {
        /// The process group: 0 is the world.
        group: u16,
        /// The collective's sequence number.
        #[serde(deserialize_with = "bounded")]
        sequence: u64,
        /// The operation.
        operation: Operation,
    },
    /// A transfer between device and main memory, on its direction's stream of copies.
    Transfer {
        /// The transfer's number on this rank.
        #[serde(deserialize_with = "bounded")]
        sequence: u64,
    },
}

/// The kinds of events. Byte counts are absolute: they hold after the event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// An optimizer step begins (numbered from 0).
    StepStarted {
        /// The optimizer step.
        step: u32,
    },
    /// A pass over a unit begins. For [`Pass::Step`] it is the unit being updated.
    PassStarted {
        /// The pass.
        pass: Pass,
        /// The unit.
        unit: u16,
        /// The micro-batch within the step.
        micro: u16,
    },
    /// A pass over a unit is done.
    PassFinished {
        /// The pass.
        pass: Pass,
        /// The unit.
        unit: u16,
        /// The micro-batch within the step.
        micro: u16,
    },
    /// Bytes were allocated (`delta > 0`) or released (`delta < 0`).
    Memory {
        /// Where the bytes are stored.
        place: Place,
        /// What the bytes are used for.
        class: Class,
        /// Bytes allocated or released.
        #[serde(deserialize_with = "bounded")]
        delta: i64,
        /// Bytes of this class in this place that are live afterwards.
        #[serde(deserialize_with = "bounded")]
        live: u64,
    },
    /// A collective was issued, started or finished.
    Collective(CollectiveEvent),
    /// One chunk was sent from one rank to another within a collective.
    Hop {
        /// The process group: 0 is the world.
        group: u16,
        /// The collective's sequence number.
        #[serde(deserialize_with = "bounded")]
        sequence: u64,
        /// The sending rank.
        from: u16,
        /// The receiving rank.
        to: u16,
        /// The chunk's index in the buffer.
        chunk: u16,
        /// The chunk's size.
        #[serde(deserialize_with = "bounded")]
        bytes: u64,
    },
    /// A transfer between device, main memory and disk was issued, or has finished.
    Transfer(TransferEvent),
    /// An optimizer step is complete. Never dropped.
    StepFinished {
        /// The optimizer step.
        step: u32,
        /// Mean loss over the global batch, before the update, in nats per token.
        loss: f64,
        /// Norm of the averaged gradient over all parameters, before clipping.
        grad_norm: f64,
        /// Learning rate of the step.
        lr: f64,
        /// Tokens in the global batch.
        #[serde(deserialize_with = "bounded")]
        tokens: u64,
        /// Wall-clock seconds of the step on this rank, without the time during which the run was
        /// paused.
        seconds: f64,
    },
    /// A validation loss, in nats per token. Never dropped.
    Evaluated {
        /// After this many optimizer steps.
        step: u32,
        /// Mean validation loss.
        loss: f64,
    },
    /// The rank ended with an error. Never dropped.
    Failed {
        /// The error, as the program will print it.
        message: String,
    },
    /// The rank has finished its last step. Never dropped.
    Finished {
        /// Peak bytes per class in [`Class::ALL`]'s order, on the device.
        #[serde(deserialize_with = "bounded")]
        peaks: Vec<u64>,
        /// Peak of the sum over classes, on the device.
        #[serde(deserialize_with = "bounded")]
        total_peak: u64,
        /// Payload bytes sent per operation in [`Operation::ALL`]'s order.
        #[serde(deserialize_with = "bounded")]
        sent: Vec<u64>,
    },
    /// The scale of a step's loss, in fp16. Follows the step's [`What::StepFinished`].
    LossScale {
        /// The optimizer step.
        step: u32,
        /// The factor by which the loss was multiplied.
        scale: f64,
        /// Steps skipped so far because gradients overflowed, this one included.
        skipped: u32,
    },
    /// A simulated link, which transmits while the ranks compute, has delivered a collective's
    /// data. Precedes the collective's `Finished`.
    Crossed {
        /// The process group: 0 is the world.
        group: u16,
        /// The collective's sequence number.
        #[serde(deserialize_with = "bounded")]
        sequence: u64,
        /// When the link began to transmit, in nanoseconds before this event.
        #[serde(deserialize_with = "bounded")]
        began: u64,
        /// When the link delivered the data, in nanoseconds before this event.
        #[serde(deserialize_with = "bounded")]
        ended: u64,
        /// How long the rank was idle because it waited for the link, in nanoseconds.
        #[serde(deserialize_with = "bounded")]
        exposed: u64,
    },
    /// The rank has failed and now frees its buffers. Of the events that follow, only
    /// [`What::Failed`], which carries the error, is part of the run. Never dropped.
    Failing,
    /// The rank has joined a process group within the world. Never dropped.
    Joined {
        /// The group's number in its collectives' events.
        group: u16,
        /// Its members, by their ranks in the world.
        ranks: Vec<u32>,
    },
    /// The times at which work ran. On a GPU, earlier events report work when it is queued; this
    /// event is emitted once the work is done, at the latest at the end of its step.
    Ran {
        /// The work.
        work: Work,
        /// When it began, in nanoseconds before this event.
        #[serde(deserialize_with = "bounded")]
        began: u64,
        /// When it was done, in nanoseconds before this event.
        #[serde(deserialize_with = "bounded")]
        ended: u64,
    },
    /// The rank's own metrics of a step, before anything is summed over ranks. Precedes the step's
    /// [`What::StepFinished`]; emitted only on request. Never dropped.
    Contributed(LocalMetrics),
    /// The rank has failed because of another rank, for example because it timed out waiting for
    /// that rank, or because other ranks timed out waiting for it. Precedes the [`What::Failed`]
    /// with the error. Never dropped.
    Blamed {
        /// The rank at fault.
        culprit: u32,
        /// True if another rank's error explains the failure better: that rank reported the failure
        /// to this one, or timed out waiting for this one.
        heard: bool,
    },
}

/// One rank's own metrics of one step, before anything is summed over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalMetrics {
    /// The optimizer step.
    pub step: u32,
    /// Mean loss over the rank's own sequences, in nats per token.
    pub loss: f64,
    /// Norm of the rank's own gradients.
    pub grad_norm: f64,
    /// Fingerprint of the full parameters that its forward used. Different parameters are unlikely
    /// to have the same fingerprint.
    pub parameters: u64,
    /// Seconds of the step during which the rank waited for other ranks.
    pub waited: f64,
}

impl What {
    /// True if a full ring must keep the event.
    pub fn is_never_dropped(&self) -> bool {
        matches!(
            self,
            What::StepFinished { .. }
                | What::Evaluated { .. }
                | What::Failing
                | What::Failed { .. }
                | What::Finished { .. }
                | What::Joined { .. }
                | What::Contributed(_)
                | What::Blamed { .. }
        )
    }
}
