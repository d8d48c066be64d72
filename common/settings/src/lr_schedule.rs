//! Learning rates over a run: the built-in schedule and DeepSpeed's three.
//!
//! DeepSpeed advances its scheduler *after* each optimizer step, so step `s` (from 0) runs at the
//! scheduler's iteration `s − 1`, and the first step at the rate before the first iteration. The
//! formulas here are of iterations `i ≥ 0`.

use LrSchedule::{WarmupCosineLr, WarmupDecayLr, WarmupLr, WarmupThenCosine};
use std::f64::consts::PI;

/// How the rate rises from iteration 0 to `W`, DeepSpeed's `warmup_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Climb {
    /// `ln(i + 1) / ln(W)`: most of the way in the first few steps. DeepSpeed's default.
    #[default]
    Log,
    /// `i / W`.
    Linear,
}

/// A warm-up over `steps` iterations; DeepSpeed counts fewer than 2 as 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUp {
    /// Iterations (W).
    pub steps: u32,
    /// Its shape.
    pub climb: Climb,
}

impl WarmUp {
    fn length(self) -> f64 {
        f64::from(self.steps.max(2))
    }

    /// Returns the share of the warm-up that is done at iteration `i`; `None` once it is over.
    fn share(self, i: f64) -> Option<f64> {
        (i < self.length()).then(|| match self.climb {
            Climb::Log => libm::log(i + 1.0) / libm::log(self.length()),
            Climb::Linear => i / self.length(),
        })
    }
}

/// The learning rate as a function of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LrSchedule {
    /// Linear warm-up, `peak · (s + 1) / warmup`, then a cosine down to a tenth of the peak at
    /// `steps`.
    WarmupThenCosine {
        /// Highest rate.
        peak: f64,
        /// Steps of warm-up.
        warmup: u32,
        /// Steps of the run.
        steps: u32,
    },
    /// DeepSpeed's `WarmupLR`: from `low` to `high`, then constant.
    WarmupLr {
        /// Rate before and at the first iteration.
        low: f64,
        /// Rate after the warm-up.
        high: f64,
        /// The climb between them.
        warmup: WarmUp,
    },
    /// DeepSpeed's `WarmupDecayLR`: from `low` to `high`, then linearly back, `low` at iteration
    /// `total`: `low + (high − low) · max(0, (total − i) / max(1, total − W))`.
    WarmupDecayLr {
        /// Rate before and at the first iteration, and from `total` on.
        low: f64,
        /// Rate after the warm-up.
        high: f64,
        /// The climb between them.
        warmup: WarmUp,
        /// Iteration at which the decay ends.
        total: u32,
    },
    /// DeepSpeed's `WarmupCosineLR`: from `warmup_min_ratio · peak` to `peak`, then a cosine to
    /// `cos_min_ratio · peak`: `c + (1 − c)(1 + cos(π (i − W + 1) / (total − W))) / 2` of the peak.
    /// Beyond `total` the rate stays at its minimum, as in DeepSpeed since 0.19.
    WarmupCosineLr {
        /// Highest rate.
        peak: f64,
        /// Share of the peak at which the warm-up starts.
        warmup_min_ratio: f64,
        /// Share of the peak at which the cosine ends (c).
        cos_min_ratio: f64,
        /// The climb.
        warmup: WarmUp,
        /// Iteration at which the cosine ends.
        total: u32,
    },
}

impl LrSchedule {
    /// Returns the highest rate.
    pub fn peak(&self) -> f64 {
        match *self {
            WarmupThenCosine { peak, .. } | WarmupCosineLr { peak, .. } => peak,
            WarmupLr { high, .. } | WarmupDecayLr { high, .. } => high,
        }
    }

    /// Returns the warm-up; `None` for the built-in schedule.
    pub fn warm_up(&self) -> Option<WarmUp> {
        match *self {
            WarmupThenCosine { .. } => None,
            WarmupLr { warmup, .. } | WarmupDecayLr { warmup, .. } | WarmupCosineLr { warmup, .. } => {
                Some(warmup)
            }
        }
    }

    /// Returns the learning rate of optimizer step `step`, counted from 0.
    pub fn rate(&self, step: u32) -> f64 {
        let iteration = step.checked_sub(1).map(f64::from);
        match *self {
            WarmupThenCosine { peak, warmup, steps } => warmup_then_cosine(peak, warmup, steps, step),
            WarmupLr { low, high, warmup } => {
                let share = iteration.map_or(0.0, |i| warmup.share(i).unwrap_or(1.0));
                low + (high - low) * share
            }
            WarmupDecayLr { low, high, warmup, total } => {
                let decay = |i: f64| {
                    ((f64::from(total) - i) / (f64::from(total) - warmup.length()).max(1.0)).max(0.0)
                };
                let share = iteration.map_or(0.0, |i| warmup.share(i).unwrap_or_else(|| decay(i)));
                low + (high - low) * share
            }
            WarmupCosineLr { peak, warmup_min_ratio, cos_min_ratio, warmup, total } => {
                let Some(i) = iteration else { return 0.0 };
                let cosine = || cosine(i - warmup.length() + 1.0, f64::from(total) - warmup.length());
                peak * match warmup.share(i) {
                    Some(share) => warmup_min_ratio + (1.0 - warmup_min_ratio) * share,
                    None => cos_min_ratio + (1.0 - cos_min_ratio) * cosine(),
                }
            }
        }
    }
}

fn warmup_then_cosine(peak: f64, warmup: u32, steps: u32, step: u32) -> f64 {
    if step < warmup {
        return peak * f64::from(step + 1) / f64::from(warmup);
    }
    let floor = 0.1 * peak;
    floor + (peak - floor) * cosine(f64::from(step - warmup), f64::from(steps) - f64::from(warmup))
}

/// Returns a cosine that falls from 1 at `done` = 0 to 0 at `done` = `span`, and stays at 0 after
/// that.
fn cosine(done: f64, span: f64) -> f64 {
    0.5 * (1.0 + libm::cos(PI * (done / span.max(1.0)).min(1.0)))
}

#[cfg(test)]
mod tests;
