//! What the tests across crates share: any stage, run by name, in this process.

pub mod job;

use clap::Parser;
use planner::Stage;
use trainer::cli::Cli;
use trainer::config::Config;
use trainer::{Report, Result};

mod standin;

pub use standin::standin;

/// Every stage, in order.
pub const STAGES: [Stage; 4] = Stage::ALL;

/// The path of a fixture of this crate.
pub fn fixture(name: &str) -> String {
    format!("{}/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Trains `stage` with the command line's `flags`, without printing anything.
///
/// # Errors
/// What the program would print.
///
/// # Panics
/// If the flags cannot be parsed: a mistake in a test.
pub fn train(stage: Stage, flags: &str) -> Result<Report> {
    let words = ["program"].into_iter().chain(flags.split_whitespace());
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
    let config = Config::new(cli.train)?;
    match stage {
        Stage::Ddp => trainer::train_quietly::<zero0_ddp::Ddp>(config),
        Stage::Zero1 => trainer::train_quietly::<zero1::Zero1>(config),
        Stage::Zero2 => trainer::train_quietly::<zero2::Zero2>(config),
        Stage::Zero3 => trainer::train_quietly::<zero3::Zero3>(config),
    }
}

/// As [`train`], of a run that succeeds and whose predictions hold.
///
/// # Panics
/// If it fails, or a prediction does.
pub fn run(stage: Stage, flags: &str) -> Report {
    let report = train(stage, flags).unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"));
    assert_eq!(mispredictions(&report), Vec::<String>::new(), "{stage} {flags}");
    report
}

/// The losses of a report, in order.
pub fn losses(report: &Report) -> Vec<f64> {
    report.steps.iter().map(|row| row.loss).collect()
}

/// The largest absolute difference between two lists of the same length; infinite where one is not a number.
///
/// # Panics
/// If the lengths differ.
pub fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let worst = |worst: f64, x: f64| if x.is_nan() { f64::INFINITY } else { worst.max(x) };
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, worst)
}

/// Every figure of a report that the planner got wrong, in words; none if all hold.
pub fn mispredictions(report: &Report) -> Vec<String> {
    let memory = report.memory.iter().map(|row| (row.rank, row.class, row.predicted_bytes, row.peak_bytes));
    let total = report
        .total_peak_bytes
        .iter()
        .map(|row| (row.rank, "all classes at once", row.predicted_bytes, row.peak_bytes));
    let traffic =
        report.traffic.iter().map(|row| (row.rank, row.operation, row.predicted_bytes, row.bytes_sent));
    let neighbours = report
        .traffic_to_neighbours
        .iter()
        .map(|row| (row.rank, "to neighbours", row.predicted_bytes, row.bytes_sent));
    let calls = report.traffic.iter().map(|row| (row.rank, row.operation, row.predicted_calls, row.calls));
    memory
        .chain(total)
        .chain(traffic)
        .chain(calls)
        .chain(neighbours)
        .filter(|(_, _, predicted, measured)| predicted != measured)
        .map(|(rank, what, predicted, measured)| {
            format!("{}, rank {rank}, {what}: predicted {predicted}, measured {measured}", report.stage)
        })
        .collect()
}
