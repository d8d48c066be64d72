//! The cost of communication on the wire.

use crate::report::Report;
use collectives::local::Algorithm;
use events::Operation;
use planner::{Job, RankPrediction};
use settings::link;

/// The cost of communication on the wire: seconds if a link is simulated, else bytes.
pub(super) struct Wire {
    /// Per round.
    latency: f64,
    /// Per byte.
    byte: f64,
    /// The algorithm, which gives the rounds of a call.
    algorithm: Algorithm,
    /// Ranks.
    ranks: u32,
}

impl Wire {
    /// Counts bytes alone.
    pub(super) const BYTES: Wire = Wire { latency: 0.0, byte: 1.0, algorithm: Algorithm::Direct, ranks: 2 };

    /// Returns the wire of `report`'s run.
    pub(super) fn of(report: &Report) -> Self {
        report.link.as_ref().map_or(Wire::BYTES, |link| Wire {
            latency: link.latency_seconds,
            byte: 1.0 / link.bytes_per_second,
            algorithm: link::algorithm(report.algorithm.unwrap_or_default()),
            ranks: report.world_size as u32,
        })
    }

    /// Returns the cost of so many bytes, latency aside.
    pub(super) fn transfer(&self, bytes: u64) -> f64 {
        self.byte * bytes as f64
    }

    /// Returns the cost of one call, bytes aside, by the operation's label.
    pub(super) fn latency(&self, label: &str) -> f64 {
        label.parse().map_or(0.0, |operation| self.call(operation))
    }

    fn call(&self, operation: Operation) -> f64 {
        self.latency * self.algorithm.rounds(operation, self.ranks) as f64
    }

    /// Returns the cost of a step of `job`, per sequence, for the rank that sends most; `None` if
    /// it sends nothing.
    pub(super) fn time(&self, job: &Job) -> Option<f64> {
        let prediction = planner::predict(job).ok()?;
        let of_rank = |rank: &RankPrediction| {
            let sent = &rank.traffic.step;
            let one = |&op: &Operation| self.call(op) * sent.calls(op) as f64 + self.transfer(sent.bytes(op));
            Operation::ALL.iter().map(one).sum::<f64>()
        };
        let step = prediction.ranks.iter().map(of_rank).fold(0.0, f64::max);
        (step > 0.0).then(|| step / (job.micro_batches * job.batch_size) as f64)
    }
}
