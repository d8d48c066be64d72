//! Checks the contract that real stages satisfy, and an answer's cost against the planner's.

use crate::{Figure, Score, Verdict};
use stages::contract;
use trainer::{Report, StageFactory};

const FLAGS: &str =
    "--gpus 4 --steps 3 --batch-size 1 --seq-len 16 --threads 1 --timeout 10 --device cpu --headless";

/// Checks the answer `S` in place of the real stage.
pub fn check<S: trainer::StageKind>() -> Verdict {
    let [mut peak, mut sent, mut collectives] =
        ["peak bytes", "bytes sent by rank 0", "collectives"].map(Figure::of);
    for more in ["", " --grad-accum 2"] {
        let report = keeps_the_contract::<S>(more)?;
        for row in &report.total_peak_bytes {
            (peak.own, peak.target) = (peak.own.max(row.peak_bytes), peak.target.max(row.predicted_bytes));
        }
        for row in report.traffic.iter().filter(|row| row.rank == 0) {
            sent.add(row.bytes_sent, row.predicted_bytes);
            collectives.add(row.calls, row.predicted_calls);
        }
    }
    let right = Score::right("the losses and weights of the real stage, with and without accumulation");
    Ok(right.with(peak).with(sent).with(collectives))
}

/// Runs `S` with the additional flags `more`. Returns the report if `S` learns the same as the real
/// stage.
///
/// # Errors
/// If the answer is wrong: a sentence with the reason.
pub fn keeps_the_contract<S: trainer::StageKind>(more: &str) -> Result<Report, String> {
    let config = stages::config(&format!("{FLAGS}{more}")).map_err(|failure| failure.to_string())?;
    contract::trains_like(StageFactory::of::<S>(), &config, S::ID)
}
