//! The contract that real stages keep, and an answer's cost beside the planner's.

use crate::{Score, Verdict};
use stages::contract;
use trainer::Report;

const FLAGS: &str =
    "--gpus 4 --steps 3 --batch-size 1 --seq-len 16 --threads 1 --timeout 10 --device cpu --headless";

/// Checks `S`, an answer, in the place of the real stage.
pub fn check<S: trainer::StageKind>() -> Verdict {
    let mut costs = Costs::default();
    for more in ["", " --grad-accum 2"] {
        costs.add(&keeps_the_contract::<S>(more)?);
    }
    Ok(costs.score())
}

/// Runs `S` with `more` flags. Returns the report if `S` learns what the real stage learns.
///
/// # Errors
/// If the answer is wrong: a sentence that says what is wrong with it.
pub fn keeps_the_contract<S: trainer::StageKind>(more: &str) -> Result<Report, String> {
    let config = stages::config(&format!("{FLAGS}{more}")).map_err(|failure| failure.to_string())?;
    contract::trains_like::<S>(&config, S::PLAN)
}

/// The costs of all runs: measured, and predicted by the planner.
#[derive(Default)]
struct Costs {
    peak: (u64, u64),
    sent: (u64, u64),
    collectives: (u64, u64),
}

impl Costs {
    fn add(&mut self, report: &Report) {
        for row in &report.total_peak_bytes {
            self.peak = (self.peak.0.max(row.peak_bytes), self.peak.1.max(row.predicted_bytes));
        }
        for row in report.traffic.iter().filter(|row| row.rank == 0) {
            self.sent = (self.sent.0 + row.bytes_sent, self.sent.1 + row.predicted_bytes);
            self.collectives = (self.collectives.0 + row.calls, self.collectives.1 + row.predicted_calls);
        }
    }

    fn score(self) -> Score {
        Score::right("the losses and weights of the real stage, with and without accumulation")
            .with("peak bytes", self.peak.0, self.peak.1)
            .with("bytes sent by rank 0", self.sent.0, self.sent.1)
            .with("collectives", self.collectives.0, self.collectives.1)
    }
}
