//! Where a rank's time goes.

use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Seconds per phase of the training loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// Which of [`Times`] is measured.
pub(crate) type Phase = fn(&mut Times) -> &mut f64;

/// Seconds per phase: in all, and in waits for collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// In all.
    pub total: Times,
    /// Of it, in waits for collectives.
    pub waits: Times,
}

impl Clocks {
    /// Adds what has passed since `watch` was started; `waited` is what has been spent in waits for collectives so far.
    pub(crate) fn add(&mut self, phase: Phase, watch: Stopwatch, waited: f64) {
        *phase(&mut self.total) += watch.started.elapsed().as_secs_f64();
        *phase(&mut self.waits) += waited - watch.waited;
    }
}

/// A running measurement.
pub(crate) struct Stopwatch {
    started: Instant,
    waited: f64,
}

impl Stopwatch {
    /// Starts now, when `waited` seconds have been spent in waits for collectives.
    pub(crate) fn start(waited: f64) -> Self {
        Stopwatch { started: Instant::now(), waited }
    }
}
