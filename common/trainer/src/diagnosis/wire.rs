//! What communication costs on the wire.

use crate::cli::AlgorithmChoice;
use crate::report::Report;
use events::Operation;
use planner::{Job, RankPrediction};

/// What communication costs on the wire: seconds if a link is simulated, else bytes.
pub(super) struct Wire {
    /// Per round.
    latency: f64,
    /// Per byte.
    byte: f64,
    /// Rounds of a reduce-scatter or an all-gather.
    rounds: f64,
}

impl Wire {
    /// Bytes alone.
    pub(super) const BYTES: Wire = Wire { latency: 0.0, byte: 1.0, rounds: 1.0 };

    /// That of `report`'s run.
    pub(super) fn of(report: &Report) -> Self {
        let ring = report.algorithm == Some(AlgorithmChoice::Ring);
        let rounds = if ring { report.world_size as f64 - 1.0 } else { 1.0 };
        report.link.as_ref().map_or(Wire::BYTES, |link| Wire {
            latency: link.latency_seconds,
            byte: 1.0 / link.bytes_per_second,
            rounds,
        })
    }

    /// Of so many bytes, latency aside.
    pub(super) fn transfer(&self, bytes: u64) -> f64 {
        self.byte * bytes as f64
    }

    /// Of one call, bytes aside.
    pub(super) fn latency(&self, operation: &str) -> f64 {
        let rounds = match operation {
            _ if operation == Operation::AllReduce.label() => 2.0 * self.rounds,
            _ if operation == Operation::Scalars.label() => 1.0,
            _ => self.rounds,
        };
        self.latency * rounds
    }

    /// Of a step of `job`, per sequence, for the rank that sends most; none if nothing is sent.
    pub(super) fn time(&self, job: &Job) -> Option<f64> {
        let prediction = planner::predict(job).ok()?;
        let of_rank = |rank: &RankPrediction| {
            let sent = &rank.traffic_per_step;
            let one = |&op: &Operation| {
                self.latency(op.label()) * sent.calls(op) as f64 + self.transfer(sent.bytes(op))
            };
            Operation::ALL.iter().map(one).sum::<f64>()
        };
        let step = prediction.ranks.iter().map(of_rank).fold(0.0, f64::max);
        (step > 0.0).then(|| step / (job.micro_batches * job.batch_size) as f64)
    }
}
