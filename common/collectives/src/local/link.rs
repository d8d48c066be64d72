//! A simulated link: how long a transfer would take between machines.

use super::Algorithm;
use events::Operation;
use std::time::Duration;

/// A link with latency α and bandwidth 1/β; one transfer at a time per group.
///
/// A collective is delivered at max(last rank's issue, link free) + α · rounds + bytes · β. Here,
/// bytes is what the busiest rank sends, and rounds is [`Algorithm::rounds`].
///
/// A group of one has no link. Time for which the run is paused does not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// α, per round.
    pub latency: Duration,
    /// 1/β, in bytes per second.
    pub bandwidth: f64,
}

impl Link {
    /// Returns the time on the link of an operation between `size` ranks, of which the busiest
    /// sends `bytes`.
    pub fn cost(&self, operation: Operation, algorithm: Algorithm, size: u32, bytes: u64) -> Duration {
        if size <= 1 {
            return Duration::ZERO;
        }
        let transfer = bytes as f64 / self.bandwidth;
        self.latency * algorithm.rounds(operation, size)
            + Duration::try_from_secs_f64(transfer).unwrap_or(Duration::MAX / 4)
    }
}
