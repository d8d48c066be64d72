//! The vocabulary: one value per thing that can happen to a rank.

use serde::{Deserialize, Serialize};

/// Defines a field-less enum with a stable label per variant, its list of variants, and `Display`.
macro_rules! labelled {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $label:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// Every variant, in the order in which tables show them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The words that tables, screens and reports use.
            pub const fn label(self) -> &'static str {
                match self { $($name::$variant => $label),+ }
            }

            /// Position in [`Self::ALL`].
            pub const fn index(self) -> usize { self as usize }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.pad(self.label()) }
        }
    };
}

labelled! {
    /// Where bytes live.
    Place {
        /// The rank's own device: a GPU's memory, or the share of main memory that stands for it.
        Device => "device",
        /// Main memory beside the device.
        Host => "host",
        /// A file.
        Disk => "disk",
    }
}

labelled! {
    /// What bytes are for. The first three are the paper's model states, the others its residual states.
    Class {
        /// Weights that stay between steps: full, or this rank's shard.
        Parameters => "parameters",
        /// Gradients that stay until the step: full, or this rank's shard.
        Gradients => "gradients",
        /// Master weights, momentum, variance.
        Optimizer => "optimizer",
        /// Full weights of units gathered for a while from the shards of all ranks.
        GatheredParameters => "gathered parameters",
        /// What forward keeps for backward.
        Activations => "activations",
        /// Full gradients on their way into a reduction, freed by it.
        CommunicationBuckets => "communication buckets",
        /// Temporaries inside one layer's computation.
        Workspace => "workspace",
    }
}

labelled! {
    /// What ranks do together.
    Operation {
        /// Everybody contributes a whole buffer, everybody gets the whole sum.
        AllReduce => "all-reduce",
        /// Everybody contributes a whole buffer, rank r gets the r-th slice of the sum.
        ReduceScatter => "reduce-scatter",
        /// Rank r contributes the r-th slice, everybody gets the whole.
        AllGather => "all-gather",
        /// One rank's buffer to everybody.
        Broadcast => "broadcast",
        /// One rank to another: the sending side.
        Send => "send",
        /// One rank to another: the receiving side.
        Recv => "recv",
        /// Nobody goes on before everybody is here.
        Barrier => "barrier",
        /// A few bytes from everybody to everybody: losses, norms, hashes.
        Scalars => "scalars",
    }
}

labelled! {
    /// A walk over the model.
    Pass {
        /// From the embedding to the loss.
        Forward => "forward",
        /// From the loss to the embedding.
        Backward => "backward",
        /// The optimizer step.
        Step => "step",
        /// Validation: forward only, nothing kept.
        Evaluate => "evaluate",
        /// Before backward over a unit: what forward has not kept is computed again.
        Recompute => "recompute",
    }
}

labelled! {
    /// What ranks communicate for.
    Purpose {
        /// Full parameters for forward.
        Forward => "forward",
        /// Full parameters for backward.
        Backward => "backward",
        /// The sum of gradients.
        Gradients => "gradients",
        /// The sum over groups that each have the sum of their own.
        Groups => "groups",
        /// Parameters that others have updated.
        Updates => "updates",
    }
}

labelled! {
    /// How far a collective has come on one rank.
    Progress {
        /// The rank has handed in its buffer and goes on computing.
        Issued => "issued",
        /// Every rank has issued; this rank moves its part of the data.
        Started => "started",
        /// The result is complete on this rank.
        Finished => "finished",
    }
}

/// One thing that happened on one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds since the run started, on the clock that all ranks of a process share.
    pub at: u64,
    /// The rank it happened on.
    pub rank: u32,
    /// What happened.
    pub what: What,
}

/// What a collective event says; the same for all ranks of a group but for `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectiveEvent {
    /// How far it has come.
    pub progress: Progress,
    /// Number of the collective within its group, from 0.
    pub sequence: u64,
    /// What it does.
    pub operation: Operation,
    /// The process group: 0 is the world.
    pub group: u16,
    /// First unit in the bucket, or [`NO_UNIT`].
    pub unit: u16,
    /// Units in the bucket.
    pub units: u16,
    /// Bytes of the full buffers that take part, padding included.
    pub bytes: u64,
    /// Payload bytes that this rank has sent for this operation since the run started, this collective included once
    /// it is `Finished`.
    pub sent: u64,
}

/// A stretch of work on one of a rank's streams.
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
        sequence: u64,
        /// What it does.
        operation: Operation,
    },
}

/// The `unit` of a collective that moves no unit's data (scalars, barriers).
pub const NO_UNIT: u16 = u16::MAX;

/// What happened. Byte counts are absolute: the value after the event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// An optimizer step begins (numbered from 0).
    StepStarted {
        /// The optimizer step.
        step: u32,
    },
    /// Forward or backward over a unit begins. For [`Pass::Step`] the unit is the one being updated.
    PassStarted {
        /// The pass.
        pass: Pass,
        /// The unit.
        unit: u16,
        /// The micro-batch within the step.
        micro: u16,
    },
    /// Forward or backward over a unit is done.
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
        /// Where.
        place: Place,
        /// What for.
        class: Class,
        /// Bytes taken or given back.
        delta: i64,
        /// Bytes of this class live afterwards, in this place.
        live: u64,
    },
    /// A collective was issued, started or finished.
    Collective(CollectiveEvent),
    /// One chunk crossed from one rank to another inside a collective.
    Hop {
        /// The process group: 0 is the world.
        group: u16,
        /// The collective's sequence number.
        sequence: u64,
        /// Sending rank.
        from: u16,
        /// Receiving rank.
        to: u16,
        /// Which chunk of the buffer.
        chunk: u16,
        /// Its size.
        bytes: u64,
    },
    /// Bytes moved between device, host and disk.
    Transfer {
        /// From here.
        from: Place,
        /// To there.
        to: Place,
        /// How many.
        bytes: u64,
    },
    /// An optimizer step is complete. Never dropped.
    StepFinished {
        /// The optimizer step.
        step: u32,
        /// Mean loss over the global batch, before the update, in nats per token.
        loss: f64,
        /// Norm of the averaged gradient over all parameters, before clipping.
        grad_norm: f64,
        /// Learning rate used.
        lr: f64,
        /// Tokens in the global batch.
        tokens: u64,
        /// Wall-clock seconds of the step on this rank, without the time for which the run was held.
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
        /// The explanation, as it will be printed.
        message: String,
    },
    /// The rank has finished its last step. Never dropped.
    Finished {
        /// Peak bytes per class in [`Class::ALL`]'s order, on the device.
        peaks: Vec<u64>,
        /// Peak of the sum over classes, on the device.
        total_peak: u64,
        /// Payload bytes sent per operation in [`Operation::ALL`]'s order.
        sent: Vec<u64>,
    },
    /// The loss of a step was scaled, in fp16. Follows the step's [`What::StepFinished`].
    LossScale {
        /// The optimizer step.
        step: u32,
        /// What its loss was multiplied with.
        scale: f64,
        /// Steps skipped so far because gradients overflowed, this one included.
        skipped: u32,
    },
    /// A collective's data have crossed a simulated link, which carries them while the ranks compute. Precedes the
    /// collective's `Finished`.
    Crossed {
        /// The process group: 0 is the world.
        group: u16,
        /// The collective's sequence number.
        sequence: u64,
        /// When the link began with it, in nanoseconds before this event.
        began: u64,
        /// When the link delivered it, in nanoseconds before this event.
        ended: u64,
        /// How long the rank had nothing left to do but wait for the link, in nanoseconds.
        exposed: u64,
    },
    /// The rank has failed and lets go of what it holds: nothing that follows is part of the run, but for the
    /// [`What::Failed`] that explains it. Never dropped.
    Failing,
    /// The rank is a member of a process group within the world from now on. Never dropped.
    Joined {
        /// The group, as its collectives call it.
        group: u16,
        /// Its members, by their ranks in the world.
        ranks: Vec<u32>,
    },
    /// When work really ran that was only queued when other events told of it, as on a GPU. Comes once the work is past, at the
    /// end of its step at the latest.
    Ran {
        /// The work.
        work: Work,
        /// When it began, in nanoseconds before this event.
        began: u64,
        /// When it was done, in nanoseconds before this event.
        ended: u64,
    },
    /// What the rank itself adds to a step, before anything is summed over ranks. Precedes the step's
    /// [`What::StepFinished`], if the run was asked for it. Never dropped.
    Contributed(Contribution),
    /// The rank has failed through another one, which it waited for in vain, say. Precedes the [`What::Failed`] that explains it.
    /// Never dropped.
    Blamed {
        /// The rank at fault.
        culprit: u32,
        /// Whether the rank has heard of it from others, so that its explanation is an echo of theirs.
        heard: bool,
    },
}

/// One rank's own part in one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contribution {
    /// The optimizer step.
    pub step: u32,
    /// Mean loss over the rank's own part of the batch, in nats per token.
    pub loss: f64,
    /// Norm of its own gradients.
    pub grad_norm: f64,
    /// Stands for the full parameters that its forward computed with: others hardly have the same number.
    pub parameters: u64,
    /// Seconds of the step that it waited for other ranks.
    pub waited: f64,
}

impl What {
    /// Whether a full ring must not lose it.
    pub fn is_precious(&self) -> bool {
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
