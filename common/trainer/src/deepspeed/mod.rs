//! DeepSpeed's and Accelerate's configuration files: `--config ds_config.json`.
//!
//! # What counts
//!
//! From strongest to weakest: a flag given on the command line; a key in the file; the model's preset and the flags'
//! defaults. A key that the file leaves out is *not* filled in with DeepSpeed's default: those suit models of billions
//! of parameters (with buckets of 5e8 elements a small model has one bucket, and overlaps nothing). Where two of them
//! contradict each other, a warning names both and says which one counts.
//!
//! `auto` stands for what Transformers would put there: flags and preset, or a multiple of the model's width.
//!
//! The batch follows DeepSpeed's rule, see [`batch`]. One [table](table::keys) says of every key what becomes of it; it
//! drives reading, errors, `--print-config`, the book's table and the tests. To honour one more key, give its row
//! [`Fate::Honoured`](keys::Fate) with a setter and a getter.
//!
//! Accelerate's YAML goes the same way: its names stand for DeepSpeed's ([`Fate::Means`](keys::Fate)), or for flags where it
//! speaks of FSDP.

pub mod batch;
mod findings;
pub mod keys;
mod markdown;
mod merge;
mod nearest;
pub mod node;
mod print;
mod read;
pub mod table;
mod yaml;

#[cfg(test)]
mod tests;

pub use findings::Findings;
pub use markdown::markdown;
pub use merge::merge;
pub use print::{left_out, print};

use crate::config::Config;
use crate::schedule::{Climb, Schedule, WarmUp};
use clap::parser::ValueSource;
use planner::Stage;
use std::collections::BTreeMap;

/// Which flags were typed, as opposed to filled in with their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given(BTreeMap<String, String>);

impl Given {
    /// What was typed for the flag with this identifier, if it was.
    pub fn typed(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }
}

impl clap::FromArgMatches for Given {
    fn from_arg_matches(matches: &clap::ArgMatches) -> std::result::Result<Self, clap::Error> {
        let typed = |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let words = |id: &clap::Id| {
            let raw = matches.get_raw(id.as_str()).into_iter().flatten();
            raw.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        Ok(Given(matches.ids().filter(typed).map(|id| (id.to_string(), words(id))).collect()))
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &clap::ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Given {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

/// What a file can say and no flag can.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileOnly {
    /// The stage that it is written for.
    pub stage: Option<Stage>,
    /// The batch keys.
    pub batch: batch::Batch,
    /// Decay of the momentum and of the variance.
    pub betas: Option<(f32, f32)>,
    /// Added to the root of the variance.
    pub eps: Option<f32>,
    /// `gradient_clipping` is 0.
    pub unclipped: bool,
    /// One of DeepSpeed's schedulers.
    pub scheduler: Scheduler,
}

/// The keys of `scheduler`, its peak and length of warm-up aside, which have flags.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduler {
    /// `type`.
    pub name: Option<SchedulerName>,
    /// `warmup_min_lr`.
    pub low: f64,
    /// `warmup_type`.
    pub climb: Climb,
    /// `total_num_steps`; the run's own number of steps if it is `auto`.
    pub total: Option<u32>,
    /// `warmup_min_ratio`.
    pub warmup_min_ratio: f64,
    /// `cos_min_ratio`, 0.0001 unless given.
    pub cos_min_ratio: Option<f64>,
}

/// DeepSpeed's schedulers that are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerName {
    /// Warm-up, then constant.
    WarmupLr,
    /// Warm-up, then a line down.
    WarmupDecayLr,
    /// Warm-up, then a cosine down.
    WarmupCosineLr,
}

impl Scheduler {
    /// The schedule of a run of `steps` steps that peaks at `peak` after `warmup` steps.
    pub fn schedule(&self, peak: f64, warmup: u32, steps: u32) -> Schedule {
        let climb = WarmUp { steps: warmup, climb: self.climb };
        let total = self.total.unwrap_or(steps);
        match self.name {
            None => Schedule::WarmupThenCosine { peak, warmup, steps },
            Some(SchedulerName::WarmupLr) => Schedule::WarmupLr { low: self.low, high: peak, warmup: climb },
            Some(SchedulerName::WarmupDecayLr) => {
                Schedule::WarmupDecayLr { low: self.low, high: peak, warmup: climb, total }
            }
            Some(SchedulerName::WarmupCosineLr) => Schedule::WarmupCosineLr {
                peak,
                warmup_min_ratio: self.warmup_min_ratio,
                cos_min_ratio: self.cos_min_ratio.unwrap_or(1e-4),
                warmup: climb,
                total,
            },
        }
    }
}

/// A finished configuration, and the stage that will run it.
pub struct Resolved<'a> {
    /// The run.
    pub config: &'a Config,
    /// The stage.
    pub stage: Stage,
}
