//! Settings of a configuration file that have no flag.

use crate::lr_schedule::{Climb, LrSchedule, WarmUp};
use prediction::Stage;

/// Settings of a configuration file that have no flag.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileOnly {
    /// The stage for which the file is written.
    pub stage: Option<Stage>,
    /// The batch keys.
    pub batch: Batch,
    /// Decay of the momentum and of the variance.
    pub betas: Option<(f32, f32)>,
    /// The constant added to the root of the variance.
    pub eps: Option<f32>,
    /// Momentum and variance are not corrected for their start at 0: `bias_correction` is false.
    pub biased: bool,
    /// Weights are saved in the type in which they are trained: DeepSpeed's
    /// `stage3_gather_16bit_weights_on_model_save`.
    pub saves_trained_type: bool,
    /// `gradient_clipping` is 0.
    pub unclipped: bool,
    /// One of DeepSpeed's schedulers.
    pub scheduler: Scheduler,
}

/// The three keys of the batch rule, as far as the file gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// `train_batch_size`: sequences per optimizer step over all ranks.
    pub total: Option<usize>,
    /// `train_micro_batch_size_per_gpu`: sequences per micro-batch and rank.
    pub micro: Option<usize>,
    /// `gradient_accumulation_steps`: micro-batches per optimizer step.
    pub accumulation: Option<usize>,
}

/// The keys of `scheduler`, without its peak and the length of its warm-up, which have flags.
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

/// DeepSpeed's schedulers that are supported.
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
    /// Returns the schedule of a run of `steps` steps that peaks at `peak` after `warmup` steps.
    pub fn schedule(&self, peak: f64, warmup: u32, steps: u32) -> LrSchedule {
        let warm_up = WarmUp { steps: warmup, climb: self.climb };
        let total = self.total.unwrap_or(steps);
        match self.name {
            None => LrSchedule::WarmupThenCosine { peak, warmup, steps },
            Some(SchedulerName::WarmupLr) => {
                LrSchedule::WarmupLr { low: self.low, high: peak, warmup: warm_up }
            }
            Some(SchedulerName::WarmupDecayLr) => {
                LrSchedule::WarmupDecayLr { low: self.low, high: peak, warmup: warm_up, total }
            }
            Some(SchedulerName::WarmupCosineLr) => LrSchedule::WarmupCosineLr {
                peak,
                warmup_min_ratio: self.warmup_min_ratio,
                cos_min_ratio: self.cos_min_ratio.unwrap_or(1e-4),
                warmup: warm_up,
                total,
            },
        }
    }
}
