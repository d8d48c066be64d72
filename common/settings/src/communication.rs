//! Buckets, overlap and prefetch: the flags, and a run's settings that follow from them.
//!
//! Sizes count elements, padding included. A unit is never split, so a size of 1 means one unit.

use crate::given::{Given, flag_name};
use crate::size::{elements, whole};
use clap::{ArgAction, Args};
use events::header::Sharded;
use prediction::{BackwardPrefetch, Gathering, Job};
use serde::{Deserialize, Serialize};
use sharding::{BucketOptions, GatherLimits, Partition, PersistenceLimits, Precision, UnitId};

/// Default maximum number of all-gathers in flight: FSDP's limit.
const IN_FLIGHT: u64 = 2;

/// The flags.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Buckets and overlap")]
pub struct CommunicationArgs {
    /// Elements of gradients after which a bucket is reduced. [default: the largest unit's]
    #[arg(long, value_name = "ELEMENTS", value_parser = |text: &str| elements(text, 1))]
    pub reduce_bucket: Option<usize>,
    /// ZeRO-1, ZeRO-2: elements of updated parameters after which a bucket is gathered. [default:
    /// the largest unit's]
    #[arg(long, value_name = "ELEMENTS", value_parser = |text: &str| elements(text, 1))]
    pub allgather_bucket: Option<usize>,
    /// Wait for every collective where it is issued, gather nothing ahead, and end every update in
    /// its step.
    #[arg(long, conflicts_with_all = ["prefetch_bucket", "backward_prefetch", "limit_all_gathers"])]
    pub no_overlap: bool,
    /// Reduce gradients where backward has written them; false copies them into buckets first.
    /// [default: true]
    #[arg(long, action = ArgAction::Set, value_name = "true|false", hide_possible_values = true)]
    pub contiguous_gradients: Option<bool>,
    /// ZeRO-3: prefetch units until ELEMENTS are gathered ahead; 0 disables prefetching. [default:
    /// 1, one unit]
    #[arg(long, value_name = "ELEMENTS", value_parser = |text: &str| elements(text, 0))]
    pub prefetch_bucket: Option<usize>,
    /// ZeRO-3: gather ahead before the backward of a unit (pre), after it (post), or not in
    /// backward. [default: pre]
    #[arg(long, value_enum, value_name = "pre|post|none", hide_possible_values = true)]
    pub backward_prefetch: Option<BackwardPrefetch>,
    /// ZeRO-3: maximum number of all-gathers in flight when gathering ahead, from 1 to 64.
    /// [default: 2]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=64))]
    pub limit_all_gathers: Option<u64>,
    /// ZeRO-3: maximum number of elements gathered at once when gathering ahead or keeping.
    /// [default: unlimited]
    #[arg(long, value_name = "ELEMENTS", value_parser = |text: &str| elements(text, 0))]
    pub max_live_parameters: Option<usize>,
    /// ZeRO-3: keep a unit gathered after forward if backward needs it again within ELEMENTS.
    /// [default: 1, only the units that backward begins with]
    #[arg(long, value_name = "ELEMENTS", value_parser = |text: &str| elements(text, 0))]
    pub max_reuse_distance: Option<usize>,
    /// ZeRO-3: keep nothing after forward: exactly three times the parameters on the wire.
    #[arg(long, conflicts_with = "max_reuse_distance")]
    pub reshard_last: bool,
    /// ZeRO-3: never shard tensors of at most ELEMENTS elements; they are gathered after each
    /// update. [default: 0]
    #[arg(long, value_name = "ELEMENTS", value_parser = |text: &str| elements(text, 0))]
    pub param_persistence_threshold: Option<usize>,
    /// ZeRO-3: maximum number of elements that stay whole in total. [default: unlimited]
    #[arg(long, value_name = "ELEMENTS", value_parser = |text: &str| elements(text, 0))]
    pub model_persistence_threshold: Option<usize>,
    /// Elements that the optimizer updates at a time, within a unit. [default: the unit's;
    /// 4,194,304 if states are offloaded]
    #[arg(long, value_name = "ELEMENTS", value_parser = |text: &str| elements(text, 1))]
    pub sub_group_size: Option<usize>,
}

/// How a run communicates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Communication {
    /// Elements after which a bucket of gradients closes; `None` for the largest unit's.
    pub reduce_bucket: Option<usize>,
    /// Elements after which a bucket of updated parameters closes; `None` for the largest unit's.
    pub allgather_bucket: Option<usize>,
    /// Whether ranks compute while collectives are in flight.
    pub overlap: bool,
    /// Whether gradients are reduced where backward has written them.
    pub contiguous_gradients: bool,
    /// Elements to gather ahead; `None` for one unit.
    pub prefetch_bucket: Option<usize>,
    /// When backward gathers ahead.
    pub backward_prefetch: BackwardPrefetch,
    /// Maximum number of all-gathers in flight.
    pub limit_all_gathers: usize,
    /// Maximum number of elements gathered at once.
    pub max_live_parameters: Option<usize>,
    /// A unit is kept after forward if backward needs it again within this number of elements.
    /// `None` keeps the units that backward begins with.
    pub max_reuse_distance: Option<usize>,
    /// Maximum number of elements of a tensor that stays whole.
    pub param_persistence_threshold: Option<usize>,
    /// Maximum number of elements of all tensors that stay whole.
    pub model_persistence_threshold: Option<usize>,
    /// Elements that the optimizer updates at a time.
    pub sub_group_size: Option<usize>,
}

impl Default for Communication {
    fn default() -> Self {
        Communication::new(&CommunicationArgs::default())
    }
}

impl Communication {
    /// Returns the settings that `args` ask for. Their ranges are checked when they are parsed.
    pub fn new(args: &CommunicationArgs) -> Self {
        Communication {
            reduce_bucket: args.reduce_bucket,
            allgather_bucket: args.allgather_bucket,
            overlap: !args.no_overlap,
            contiguous_gradients: args.contiguous_gradients.unwrap_or(true),
            prefetch_bucket: args.prefetch_bucket,
            backward_prefetch: args.backward_prefetch.unwrap_or_default(),
            limit_all_gathers: args.limit_all_gathers.unwrap_or(IN_FLIGHT) as usize,
            max_live_parameters: args.max_live_parameters,
            max_reuse_distance: if args.reshard_last { Some(0) } else { args.max_reuse_distance },
            param_persistence_threshold: args.param_persistence_threshold,
            model_persistence_threshold: args.model_persistence_threshold,
            sub_group_size: args.sub_group_size,
        }
    }

    /// Returns how gradients are reduced in buckets. `last` is the unit whose gradients are
    /// complete last.
    pub fn reductions(&self, precision: Precision, partition: &Partition, last: UnitId) -> BucketOptions {
        BucketOptions {
            capacity: self.reduce_bucket.unwrap_or(partition.largest()),
            wire: precision.reduce,
            always_copies: !self.contiguous_gradients,
            in_flight: usize::from(self.overlap),
            last,
        }
    }

    /// Returns how updated parameters are gathered in buckets. `last` is the unit that is updated
    /// last. They travel in place, so buckets in flight take no memory of their own.
    pub fn gathers(&self, precision: Precision, partition: &Partition, last: UnitId) -> BucketOptions {
        BucketOptions {
            capacity: self.allgather_bucket.unwrap_or(partition.largest()),
            wire: precision.parameters,
            always_copies: false,
            in_flight: if self.overlap { usize::MAX } else { 0 },
            last,
        }
    }

    /// Returns how far gathering may run ahead of computing.
    pub fn gather_limits(&self) -> GatherLimits {
        GatherLimits {
            ahead: if self.overlap { self.prefetch_bucket.unwrap_or(1) } else { 0 },
            in_flight: self.limit_all_gathers,
            live: self.max_live_parameters.unwrap_or(usize::MAX),
        }
    }

    /// True if a unit that backward needs again after `distance` elements is kept after forward.
    pub fn keeps(&self, distance: usize) -> bool {
        distance < self.max_reuse_distance.unwrap_or(1)
    }

    /// Returns the limits of tensors that stay whole although parameters are sharded.
    pub fn persistence_limits(&self) -> PersistenceLimits {
        PersistenceLimits {
            each: self.param_persistence_threshold.unwrap_or(0),
            together: self.model_persistence_threshold.unwrap_or(usize::MAX),
        }
    }

    /// Returns `job` with these settings, in the form of predictions.
    pub fn plan(&self, job: Job, precision: Precision) -> Job {
        let elements = |count: Option<usize>, default: u64| count.map_or(default, |count| count as u64);
        Job {
            reduce_bucket: self.reduce_bucket.map(|elements| elements as u64),
            gather_bucket: self.allgather_bucket.map(|elements| elements as u64),
            converted_gradients: precision.converts_gradients().then(|| precision.reduce.size() as u64),
            copied_gradients: !self.contiguous_gradients,
            overlap: self.overlap,
            gathering: Gathering {
                ahead: elements(self.prefetch_bucket, 1),
                backward: self.backward_prefetch,
                in_flight: self.limit_all_gathers,
                live: elements(self.max_live_parameters, u64::MAX),
                reuse: elements(self.max_reuse_distance, 1),
            },
            persistence_threshold: elements(self.param_persistence_threshold, 0),
            model_persistence_threshold: elements(self.model_persistence_threshold, u64::MAX),
            ..job
        }
    }
}

/// Returns the typed flags that change nothing in a run with these settings and `sharded` model
/// states, each with the reason.
pub fn without_effect(
    given: &Given,
    settings: &Communication,
    sharded: Sharded,
) -> Vec<(String, &'static str)> {
    const GATHERED: [&str; 8] = [
        "prefetch_bucket",
        "backward_prefetch",
        "limit_all_gathers",
        "max_live_parameters",
        "max_reuse_distance",
        "reshard_last",
        "param_persistence_threshold",
        "model_persistence_threshold",
    ];
    const UPDATED: [&str; 1] = ["allgather_bucket"];
    let idle = |ids: &[&str], idle: bool, why: &'static str| -> Vec<(String, &'static str)> {
        let typed = ids.iter().filter(|id| idle && given.typed(id).is_some());
        typed.map(|id| (flag_name(id), why)).collect()
    };
    let whole = "every rank holds all parameters, and no pass gathers any";
    let no_update = "no rank gathers parameters that others have updated";
    let some_persistent = settings.param_persistence_threshold.is_some();
    let gathers_updates = sharded.optimizer && (!sharded.parameters || some_persistent);
    [idle(&GATHERED, !sharded.parameters, whole), idle(&UPDATED, !gathers_updates, no_update)].concat()
}

#[cfg(test)]
mod tests;
