//! Where a rank's time goes.

use serde::Serialize;
use std::time::Instant;

/// Seconds per phase of the training loop, time in collectives included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Fetching tokens.
    pub data: f64,
    /// Forward passes.
    pub forward: f64,
    /// Backward passes.
    pub backward: f64,
    /// The part of backward in which blocks compute again what forward has not kept.
    pub recompute: f64,
    /// Optimizer steps.
    pub step: f64,
    /// Validation.
    pub evaluate: f64,
}

/// A running measurement.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub(crate) fn start() -> Self {
        Stopwatch(Instant::now())
    }

    /// Adds the seconds since the start.
    pub(crate) fn stop(self, total: &mut f64) {
        *total += self.0.elapsed().as_secs_f64();
    }
}
