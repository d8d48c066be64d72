//! The contract that real stages keep, and what an answer costs beside what the planner says is enough.

use crate::{Score, Verdict};
use stages::contract;
use trainer::Report;

const FLAGS: &str =
    "--gpus 4 --steps 3 --batch-size 1 --seq-len 16 --threads 1 --timeout 10 --device cpu --headless";

/// `S` in the place of the stage that it is an answer to.
///
/// # Errors
/// What is wrong, in words.
pub fn check<S: trainer::StageKind>() -> Verdict {
    let mut costs = Costs::default();
    for more in ["", " --grad-accum 2"] {
        costs.add(&keeps_the_contract::<S>(more)?);
    }
    Ok(costs.score())
}

/// What `S` reports of a run with `more` flags, if it has learned what the real stage learns.
///
/// # Errors
/// What is wrong, in words.
pub fn keeps_the_contract<S: trainer::StageKind>(more: &str) -> Result<Report, String> {
    let config = stages::config(&format!("{FLAGS}{more}")).map_err(|failure| failure.to_string())?;
    contract::trains_like::<S>(&config, S::PLAN)
}

/// Of all runs, what was needed and what the planner says is enough.
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
