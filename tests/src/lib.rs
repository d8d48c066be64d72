//! What the tests across crates share: any stage, run by name, in this process.

pub mod documents;
pub mod job;
pub mod peer;
pub mod random;
pub mod script;

use events::{Event, Recording};
use planner::Stage;
use std::path::Path;
use trainer::{Report, Result};

mod standin;

pub use stages::config;
pub use stages::train as train_as;
pub use standin::{standin, test_name};

/// Every stage, in order.
pub const STAGES: [Stage; 4] = Stage::ALL;

/// A learning rate at which `tiny` is compared between devices. At the preset's own, 3e-3, training
/// amplifies rounding: two runs on the CPU whose ranks add in another order are 2.7e-4 apart after
/// 50 steps, in bf16 2.0 % of a step's loss. At this one they stay within 1e-7, in bf16 within 0.04
/// %, and the loss falls from 5.6 to 2.4 all the same.
pub const STEADY_RATE: &str = "1e-3";

/// The path of a fixture of this crate.
pub fn fixture(name: &str) -> String {
    format!("{}/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Trains `stage` with the command line's `flags`, without printing anything.
///
/// # Errors
/// What the program would print.
pub fn train(stage: Stage, flags: &str) -> Result<Report> {
    train_as(stage, config(flags)?)
}

/// Trains `stage`, which must succeed, and checks that its predictions hold.
///
/// # Panics
/// If it fails, or a prediction does.
pub fn run(stage: Stage, flags: &str) -> Report {
    let report = train(stage, flags).unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"));
    assert_eq!(report.mispredictions(), Vec::<String>::new(), "{stage} {flags}");
    report
}

/// All events of a recording, by time.
///
/// # Panics
/// If it cannot be read.
pub fn recorded(file: &Path) -> Vec<Event> {
    let mut events = Recording::open(file).unwrap().events().map(|event| event.unwrap()).collect::<Vec<_>>();
    events.sort_by_key(|event| event.at);
    events
}

/// The losses of a report, in order.
pub fn losses(report: &Report) -> Vec<f64> {
    report.steps.iter().map(|row| row.loss).collect()
}

/// Checks that runs `a` and `b` have learnt the same, bit for bit.
///
/// # Panics
/// If their losses, weights or evaluations differ, or a loss is not a number.
pub fn assert_same(a: &Report, b: &Report, case: &str) {
    let runs = format!("{} and {}, {case}", a.stage, b.stage);
    assert!(losses(a).iter().all(|loss| !loss.is_nan()), "losses of {runs}: {:?}", losses(a));
    let bits = |report: &Report| losses(report).into_iter().map(f64::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(a), bits(b), "losses of {runs}: {:?} and {:?}", losses(a), losses(b));
    assert_eq!(a.weights_blake3, b.weights_blake3, "weights of {runs}");
    assert_eq!(a.evaluations, b.evaluations, "evaluations of {runs}");
}

/// Bytes by which all ranks' shards of the parameters exceed the parameters, in a run of ZeRO-3 in
/// fp32.
pub fn padding(zero3: &Report) -> u64 {
    let shards = zero3.memory.iter().filter(|row| row.class == "parameters").map(|row| row.peak_bytes);
    shards.sum::<u64>() - 4 * zero3.model.parameters
}

/// The middle value, or the mean of the two in the middle; NaN if there is none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        Some(&value) if sorted.len() % 2 == 1 => value,
        Some(&value) => (sorted[middle - 1] + value) / 2.0,
        None => f64::NAN,
    }
}

/// The least and the largest value.
pub fn range(values: &[f64]) -> (f64, f64) {
    let widen = |(low, high): (f64, f64), &value| (low.min(value), high.max(value));
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), widen)
}

/// How far `got` is from `expected` in the step where it is farthest, as it is or as a share of the
/// step's own loss; infinite where one is not a number, without steps, and for another number of
/// them.
pub fn farthest_step(expected: &[f64], got: &[f64], relative: bool) -> f64 {
    if expected.len() != got.len() || got.is_empty() {
        return f64::INFINITY;
    }
    let off = |(expected, got): (&f64, &f64)| {
        let apart = (expected - got).abs() / if relative { expected.abs() } else { 1.0 };
        if apart.is_nan() { f64::INFINITY } else { apart }
    };
    expected.iter().zip(got).map(off).fold(0.0, f64::max)
}

/// The largest absolute difference between two lists of the same length; infinite where one is not
/// a number, or the lists are empty.
///
/// # Panics
/// If the lengths differ.
pub fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    farthest_step(a, b, false)
}

/// Runs `check` on all cases at once. For cases that wait most of the time.
///
/// # Panics
/// If the check of a case does.
pub fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    let check = &check;
    std::thread::scope(|threads| {
        for case in cases {
            threads.spawn(move || check(case));
        }
    });
}

/// Copies all that is in directory `from` to directory `to`.
pub fn copy_directory(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_directory(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}
