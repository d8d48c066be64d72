//! The measurement of one operation at one size.

use crate::engine::Engine;
use collectives::local::Algorithm;
use events::Operation;
use std::time::Duration;

/// A measurement.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) operation: Operation,
    pub(crate) engine: Engine,
    /// Bytes of a rank's buffer.
    pub(crate) size: usize,
    pub(crate) ranks: usize,
    /// Calls that were timed.
    pub(crate) calls: usize,
    /// Of the calls: the median time, and the shortest.
    pub(crate) median: Duration,
    pub(crate) best: Duration,
}

impl Row {
    /// Returns the factor from algorithm to bus bandwidth, as nccl-tests define it: bytes that
    /// cross the slowest wire per byte of the buffer.
    fn bus_factor(&self) -> f64 {
        let sliced = (self.ranks - 1) as f64 / self.ranks as f64;
        match self.operation {
            Operation::AllReduce => 2.0 * sliced,
            Operation::Broadcast => 1.0,
            _ => sliced,
        }
    }

    /// Returns the bus bandwidth of a call that takes `time`, in GB/s.
    pub(crate) fn bus(&self, time: Duration) -> f64 {
        self.algorithm(time) * self.bus_factor()
    }

    /// Returns the algorithm bandwidth of a call that takes `time`, in GB/s.
    pub(crate) fn algorithm(&self, time: Duration) -> f64 {
        self.size as f64 / time.as_secs_f64() / 1e9
    }

    /// Returns the bytes that the busiest rank sends under `algorithm`.
    pub(crate) fn sent(&self, algorithm: Algorithm) -> f64 {
        let receivers = match (self.operation, algorithm) {
            (Operation::Broadcast, Algorithm::Direct) => (self.ranks - 1) as f64,
            _ => 1.0,
        };
        self.size as f64 * self.bus_factor() * receivers
    }

    /// Returns the bus bandwidth of the median call, in GB/s.
    pub(crate) fn bus_bandwidth(&self) -> f64 {
        self.bus(self.median)
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<15}{:<7}{:>8} KiB{:>10.1} µs{:>10.2}{:>10.2}{:>12.2}",
            self.operation.label(),
            self.engine.label(),
            self.size >> 10,
            self.median.as_secs_f64() * 1e6,
            self.algorithm(self.median),
            self.bus(self.median),
            self.bus(self.best)
        )
    }
}
