//! Learning rates over a run: the built-in schedule and DeepSpeed's three.
//!
//! DeepSpeed advances its scheduler *after* each optimizer step, so step `s` (from 0) runs at the
//! scheduler's iteration `s − 1`, and the first step at the rate before the first iteration. The
//! formulas here are of iterations `i ≥ 0`.

use LrSchedule::{WarmupCosineLr, WarmupDecayLr, WarmupLr, WarmupThenCosine};
use std::f64::consts::PI;

/// How the rate climbs from iteration 0 to `W`, DeepSpeed's `warmup_type`.
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

    /// Returns the share of the climb that is done at iteration `i`; `None` once it is over.
    fn share(self, i: f64) -> Option<f64> {
        (i < self.length()).then(|| match self.climb {
            Climb::Log => (i + 1.0).ln() / self.length().ln(),
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
    /// Beyond `total` DeepSpeed's cosine rises again; here the rate stays at its minimum.
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

    /// Returns the warm-up, if it is one of DeepSpeed's.
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

/// Falls from 1 at `done` = 0 to 0 at `done` = `span`, and stays at 0 from there on.
fn cosine(done: f64, span: f64) -> f64 {
    0.5 * (1.0 + (PI * (done / span.max(1.0)).min(1.0)).cos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(schedule: LrSchedule, expected: &[(u32, f64)]) {
        for &(step, rate) in expected {
            let got = schedule.rate(step);
            assert!((got - rate).abs() < 1e-12, "{schedule:?}: step {step} gives {got}, not {rate}");
        }
    }

    #[test]
    fn the_built_in_one_warms_up_and_decays_to_a_tenth() {
        let schedule = WarmupThenCosine { peak: 0.01, warmup: 10, steps: 110 };
        near(schedule, &[(0, 0.001), (9, 0.01), (10, 0.01), (60, 0.0055)]);
        assert!(schedule.rate(109) < 0.00101);
        near(WarmupThenCosine { peak: 1.0, warmup: 300, steps: 100 }, &[(99, 1.0 / 3.0)]);
    }

    #[test]
    fn warmup_lr_climbs_like_a_logarithm_or_a_line_and_stays() {
        let warmup = WarmUp { steps: 8, climb: Climb::Log };
        let log = WarmupLr { low: 1.0, high: 4.0, warmup };
        // ln 2 / ln 8 = 1/3, ln 4 / ln 8 = 2/3, ln 8 / ln 8 = 1.
        near(log, &[(0, 1.0), (1, 1.0), (2, 2.0), (4, 3.0), (8, 4.0), (9, 4.0), (4000, 4.0)]);
        let linear = WarmupLr { low: 1.0, high: 5.0, warmup: WarmUp { climb: Climb::Linear, ..warmup } };
        near(linear, &[(0, 1.0), (1, 1.0), (3, 2.0), (5, 3.0), (9, 5.0)]);
    }

    #[test]
    fn warmup_decay_lr_comes_back_to_its_lowest_rate_at_the_last_iteration() {
        let warmup = WarmUp { steps: 4, climb: Climb::Linear };
        let schedule = WarmupDecayLr { low: 2.0, high: 10.0, warmup, total: 12 };
        near(schedule, &[(0, 2.0), (1, 2.0), (3, 6.0), (5, 10.0), (7, 8.0), (9, 6.0), (13, 2.0), (99, 2.0)]);
    }

    #[test]
    fn warmup_cosine_lr_ends_at_its_ratio_of_the_peak() {
        let warmup = WarmUp { steps: 4, climb: Climb::Linear };
        let schedule =
            WarmupCosineLr { peak: 10.0, warmup_min_ratio: 0.2, cos_min_ratio: 0.1, warmup, total: 12 };
        let quarter = 10.0 * (0.1 + 0.9 * (1.0 + 0.5f64.sqrt()) / 2.0);
        near(
            schedule,
            &[(0, 0.0), (1, 2.0), (3, 6.0), (6, quarter), (8, 5.5), (12, 1.0), (13, 1.0), (50, 1.0)],
        );
    }

    #[test]
    fn degenerate_lengths_give_finite_rates() {
        for steps in [0, 1, 2, 50] {
            for climb in [Climb::Log, Climb::Linear] {
                let warmup = WarmUp { steps, climb };
                for schedule in [
                    WarmupLr { low: 0.0, high: 1.0, warmup },
                    WarmupDecayLr { low: 0.0, high: 1.0, warmup, total: 1 },
                    WarmupCosineLr { peak: 1.0, warmup_min_ratio: 0.0, cos_min_ratio: 0.1, warmup, total: 1 },
                    WarmupThenCosine { peak: 1.0, warmup: steps, steps: 1 },
                ] {
                    assert!((0..60).all(|step| (0.0..=1.0).contains(&schedule.rate(step))), "{schedule:?}");
                }
            }
        }
    }
}
