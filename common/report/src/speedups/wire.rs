//! The cost of communication on the wire.

use super::planned_run::PlannedRun;
use crate::report::Report;
use collectives::local::Algorithm;
use events::Operation;
use prediction::{Job, Prediction, RankPrediction};
use settings::link;

/// The cost of communication on the wire: seconds if a link is simulated, else bytes.
pub(super) struct Wire {
    /// Per round.
    latency: f64,
    /// Per byte.
    byte: f64,
    /// The algorithm, which gives the rounds of a call.
    algorithm: Algorithm,
}

impl Wire {
    /// A wire whose cost is the number of bytes.
    pub(super) const BYTES: Wire = Wire { latency: 0.0, byte: 1.0, algorithm: Algorithm::Direct };

    /// Returns the wire of `report`'s run.
    pub(super) fn of(report: &Report) -> Self {
        report.link.as_ref().map_or(Wire::BYTES, |link| Wire {
            latency: link.latency_seconds,
            byte: 1.0 / link.bytes_per_second,
            algorithm: link::algorithm(report.algorithm.unwrap_or_default()),
        })
    }

    /// Returns the latency's share in the time that rank 0 waits for the link.
    pub(super) fn share_of_latency(&self, report: &Report, run: Option<&PlannedRun<'_>>) -> f64 {
        let rows = || report.traffic.iter().filter(|row| row.rank == 0);
        let bytes = self.byte * rows().map(|row| row.bytes_sent).sum::<u64>() as f64;
        // Measurements do not record how many ranks took part in which call.
        let groups = run.filter(|run| run.job.strategy.forms_groups() || run.job.secondary_shards.is_some());
        let planned = groups.and_then(|run| prediction::predict(&run.job).ok());
        let calls = match planned {
            Some(prediction) => self.calls(&prediction) * report.steps.len() as f64,
            None => rows().map(|row| self.latency(row.operation, report.world_size) * row.calls as f64).sum(),
        };
        if calls > 0.0 { calls / (calls + bytes) } else { 0.0 }
    }

    /// Returns the cost of one call among `ranks` ranks, without its bytes.
    fn latency(&self, operation: Operation, ranks: usize) -> f64 {
        self.latency * self.algorithm.rounds(operation, ranks as u32) as f64
    }

    /// Returns the cost of a step's calls, without their bytes. A single rank waits for nothing.
    fn calls(&self, prediction: &Prediction) -> f64 {
        let several = prediction.calls.iter().filter(|(ranks, ..)| *ranks > 1);
        let rounds = |&(ranks, operation, times): &(u64, Operation, u64)| {
            u64::from(self.algorithm.rounds(operation, ranks as u32)) * times
        };
        self.latency * several.map(rounds).sum::<u64>() as f64
    }

    /// Returns the cost of a step of `job`, per sequence, for the rank that sends most; `None` if
    /// it sends nothing.
    pub(super) fn time(&self, job: &Job) -> Option<f64> {
        let prediction = prediction::predict(job).ok()?;
        let bytes = |rank: &RankPrediction| rank.traffic.step.total_bytes();
        let most = prediction.ranks.iter().map(bytes).max()?;
        let step = self.calls(&prediction) + self.byte * most as f64;
        (step > 0.0).then(|| step / (job.micro_batches * job.batch_size) as f64)
    }
}
