//! The enums that events refer to, each with a label per variant.

use serde::{Deserialize, Serialize};

/// Gives an enum without fields a stable label for each variant, a list of all variants, `Display`
/// and `FromStr`: `labels! { Place { Device => "device", Host => "host" } }`.
#[macro_export]
macro_rules! labels {
    ($name:ident { $($variant:ident => $label:literal),+ $(,)? }) => {
        impl $name {
            /// Every variant, in the order in which tables show them.
            pub const ALL: [$name; [$($label),+].len()] = [$($name::$variant),+];

            /// Returns the name that tables, screens and reports use.
            pub const fn label(self) -> &'static str {
                match self { $($name::$variant => $label),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.pad(self.label()) }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> std::result::Result<Self, String> {
                let known = || format!("choose one of {}", [$($label),+].join(", "));
                $name::ALL.into_iter().find(|one| one.label() == word).ok_or_else(known)
            }
        }
    };
}

/// Defines an enum with [`labels!`] whose variants have an index.
macro_rules! labelled {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $label:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl $name {
            /// Returns the index in [`Self::ALL`].
            pub const fn index(self) -> usize { self as usize }
        }

        $crate::labels! { $name { $($variant => $label),+ } }
    };
}

pub(crate) use labelled;

labelled! {
    /// Where bytes are stored.
    #[derive(Default)]
    Place {
        /// The rank's own device: a GPU's memory, or the part of main memory that simulates it.
        #[default]
        Device => "device",
        /// Main memory that is not a device's.
        Host => "host",
        /// A file.
        Disk => "disk",
    }
}

labelled! {
    /// A direction of transfer between two places.
    Route {
        /// From the device to main memory.
        DeviceToHost => "device→host",
        /// From main memory to the device.
        HostToDevice => "host→device",
        /// From main memory to a file.
        HostToDisk => "host→disk",
        /// From a file to main memory.
        DiskToHost => "disk→host",
    }
}

impl Route {
    /// Returns the place that bytes leave.
    pub const fn from(self) -> Place {
        match self {
            Route::DeviceToHost => Place::Device,
            Route::HostToDevice | Route::HostToDisk => Place::Host,
            Route::DiskToHost => Place::Disk,
        }
    }

    /// Returns the place that bytes reach.
    pub const fn to(self) -> Place {
        match self {
            Route::DeviceToHost | Route::DiskToHost => Place::Host,
            Route::HostToDevice => Place::Device,
            Route::HostToDisk => Place::Disk,
        }
    }

    /// True if a disk is read or written.
    pub const fn touches_disk(self) -> bool {
        matches!(self, Route::HostToDisk | Route::DiskToHost)
    }

    /// True if the route leads away from the device.
    pub const fn leaves(self) -> bool {
        matches!(self, Route::DeviceToHost | Route::HostToDisk)
    }
}

labelled! {
    /// What bytes are used for. The first three classes are the paper's model states, the others
    /// its residual states.
    Class {
        /// Weights kept between steps: full, or this rank's shard.
        Parameters => "parameters",
        /// Gradients kept until the optimizer step: full, or this rank's shard.
        Gradients => "gradients",
        /// Master weights, momentum, variance.
        Optimizer => "optimizer",
        /// Full weights of units, gathered from all ranks' shards and freed after use.
        GatheredParameters => "gathered parameters",
        /// Values that forward keeps for backward.
        Activations => "activations",
        /// Full gradients that wait for a reduction and are freed after it.
        CommunicationBuckets => "communication buckets",
        /// Temporary buffers within one layer's computation, and staging buffers of transfers
        /// between places.
        Workspace => "workspace",
    }
}

labelled! {
    /// A collective or point-to-point operation.
    Operation {
        /// Each rank contributes a whole buffer and gets the whole sum.
        AllReduce => "all-reduce",
        /// Each rank contributes a whole buffer; rank r gets the r-th slice of the sum.
        ReduceScatter => "reduce-scatter",
        /// Rank r contributes the r-th slice; each rank gets the whole buffer.
        AllGather => "all-gather",
        /// One rank sends its buffer to all others.
        Broadcast => "broadcast",
        /// The sending side of a message from one rank to another.
        Send => "send",
        /// The receiving side of a message from one rank to another.
        Recv => "recv",
        /// Each rank waits until all ranks have arrived.
        Barrier => "barrier",
        /// A few bytes from each rank to all others: losses, norms, hashes.
        Scalars => "scalars",
    }
}

impl Operation {
    /// Returns how many times each rank of a group of n sends (n−1)/n of a buffer: twice in an
    /// all-reduce, which is a reduce-scatter and an all-gather.
    pub const fn rounds(self) -> u64 {
        if matches!(self, Operation::AllReduce) { 2 } else { 1 }
    }
}

labelled! {
    /// A traversal of the model's units.
    Pass {
        /// From the embedding to the loss.
        Forward => "forward",
        /// From the loss to the embedding.
        Backward => "backward",
        /// The optimizer step.
        Step => "step",
        /// Validation: forward only, no activations kept.
        Evaluate => "evaluate",
        /// Before a unit's backward: computes the activations that forward has not kept.
        Recompute => "recompute",
        /// The CPU adds reduced gradients to their shard in main memory, beside the other passes.
        /// [`What::Ran`](crate::What::Ran) alone reports it.
        Add => "add",
    }
}

labelled! {
    /// The purpose of a collective.
    Purpose {
        /// Gathers full parameters for forward.
        Forward => "forward",
        /// Gathers full parameters for backward.
        Backward => "backward",
        /// Sums gradients over ranks.
        Gradients => "gradients",
        /// Sums gradients over groups, each of which has already summed its own.
        Groups => "groups",
        /// Gathers parameters that other ranks have updated.
        Updates => "updates",
    }
}

labelled! {
    /// The progress of a collective, or of a transfer between places, on one rank.
    Progress {
        /// The rank has handed over its buffers and continues.
        Issued => "issued",
        /// All ranks have issued it; this rank moves its part of the data.
        Started => "started",
        /// The result is complete on this rank.
        Finished => "finished",
    }
}
