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
    /// Of these, for peers.
    pub for_peers: Times,
    /// Of these, for a simulated link.
    pub for_link: Times,
}

impl Clocks {
    /// Adds what has passed since `watch` was started; `waited` are the seconds in waits for collectives so far: in all,
    /// for peers, for a simulated link.
    pub(crate) fn add(&mut self, phase: Phase, watch: Stopwatch, waited: [f64; 3]) {
        *phase(&mut self.total) += watch.started.elapsed().as_secs_f64();
        let parts = [&mut self.waits, &mut self.for_peers, &mut self.for_link];
        for (part, (now, before)) in parts.into_iter().zip(waited.iter().zip(watch.waited)) {
            *phase(part) += now - before;
        }
    }
}

/// A running measurement.
pub(crate) struct Stopwatch {
    started: Instant,
    waited: [f64; 3],
}

impl Stopwatch {
    /// Starts now, when so many seconds have been spent in waits for collectives.
    pub(crate) fn start(waited: [f64; 3]) -> Self {
        Stopwatch { started: Instant::now(), waited }
    }
}
