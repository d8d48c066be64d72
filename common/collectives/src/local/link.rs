//! A simulated link: what a transfer would take between machines.

use super::Algorithm;
use events::Operation;
use std::time::Duration;

/// A link with latency α and bandwidth 1/β; one transfer at a time per group.
///
/// A collective is delivered at max(last rank's issue, link free) + α · rounds + bytes · β, where bytes is what the
/// busiest rank sends. Rounds, for N ranks:
///
/// | | direct | ring |
/// |---|---|---|
/// | reduce-scatter, all-gather | 1 | N−1 |
/// | all-reduce | 2 | 2(N−1) |
/// | broadcast | 1 | N−1 |
/// | send, scalars, barrier | 1 | 1 |
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
    /// Time on the link of an operation between `size` ranks, of which the busiest sends `bytes`.
    pub fn cost(&self, operation: Operation, algorithm: Algorithm, size: u32, bytes: u64) -> Duration {
        if size <= 1 {
            return Duration::ZERO;
        }
        let hops = match algorithm {
            Algorithm::Direct => 1,
            Algorithm::Ring => size - 1,
        };
        let rounds = match operation {
            Operation::AllReduce => 2 * hops,
            Operation::ReduceScatter | Operation::AllGather | Operation::Broadcast => hops,
            Operation::Send | Operation::Recv | Operation::Barrier | Operation::Scalars => 1,
        };
        let transfer = bytes as f64 / self.bandwidth;
        self.latency * rounds + Duration::try_from_secs_f64(transfer).unwrap_or(Duration::MAX / 4)
    }
}
