//! How fast a run is while it runs: the share of the machine's limit, and the time left.

use crate::plan::Plan;
use device::{DType, multiply_add_estimate};
use settings::machine::cores;
use settings::size;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The speed of a run.
pub(crate) struct Speed {
    started: Instant,
    flops_per_token: f64,
    /// GFLOP/s that the processors or the GPUs of all ranks could reach; `None` for GPUs whose data
    /// sheet is not known.
    limit: Option<f64>,
    /// When the first step of this run was done, and its number: setup is no part of a step.
    first: OnceLock<(Instant, u32)>,
    steps: u32,
}

impl Speed {
    /// Returns the speed of `plan`'s run, which starts now. Without GPUs it measures the processor
    /// for some milliseconds, so call it before the ranks start.
    pub(crate) fn of(plan: &Plan) -> Self {
        let config = &plan.config;
        let here = config.ranks_here();
        let threads = (here * config.threads).clamp(1, cores());
        let multiplied = if config.precision.multiplies_bf16() { DType::Bf16 } else { DType::F32 };
        let measured = || {
            let here_limit = multiply_add_estimate(threads, multiplied);
            here_limit * config.world_size as f64 / here.max(1) as f64
        };
        let limit = if config.hardware.is_gpu() { config.peak_gflops() } else { Some(measured()) };
        Speed {
            flops_per_token: config.model.flops_per_token(config.sequence_length) as f64,
            limit,
            started: Instant::now(),
            first: OnceLock::new(),
            steps: config.steps,
        }
    }

    /// Returns the model's FLOP/s at `tokens_per_second` as a share of the limit; `None` if the
    /// limit is unknown.
    pub(crate) fn utilisation(&self, tokens_per_second: f64) -> Option<f64> {
        self.limit.map(|limit| tokens_per_second * self.flops_per_token / (limit * 1e9))
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns how long the steps after `step`, which is done, will take if they are as fast as
    /// those before; `None` after the first.
    pub(crate) fn left(&self, step: u32) -> Option<Duration> {
        let (at, first) = *self.first.get_or_init(|| (Instant::now(), step));
        let done = step.checked_sub(first).filter(|&done| done > 0)?;
        Some(at.elapsed() * (self.steps - 1).saturating_sub(step) / done)
    }
}

/// Formats a share: `31.2%`.
pub(crate) fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |share| format!("{:.1}%", 100.0 * share))
}

/// Formats a time in whole seconds, if it is known.
pub(crate) fn clock(time: Option<Duration>) -> String {
    time.map_or_else(|| "–".into(), size::clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!((clock(None), share(None), share(Some(0.3125))), ("–".into(), "–".into(), "31.2%".into()));
    }

    #[test]
    fn what_is_left_follows_from_the_steps_that_are_done() {
        let speed = Speed {
            started: Instant::now(),
            flops_per_token: 2e6,
            limit: Some(4.0),
            first: OnceLock::new(),
            steps: 101,
        };
        assert_eq!(speed.left(10), None, "one step tells no time");
        let begun = Instant::now() - Duration::from_secs(30);
        let speed = Speed { first: OnceLock::from((begun, 10)), ..speed };
        let left = speed.left(40).unwrap().as_secs_f64();
        assert!((60.0..61.0).contains(&left), "{left}");
        assert_eq!(speed.left(100).unwrap(), Duration::ZERO);
        assert_eq!(speed.utilisation(500.0), Some(0.25));
    }
}
