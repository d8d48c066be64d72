//! Helpers that tests across crates share: they run any stage, by name, in this process.

pub mod documents;
pub mod job;
pub mod peer;
pub mod random;
pub mod script;

use events::{Class, Event, Recording};
use prediction::Stage;
use std::path::Path;
use trainer::{Report, Result};

mod standin;

pub use stages::config;
pub use stages::train as train_as;
pub use standin::{standin, test_name};

/// All stages, in order.
pub const STAGES: [Stage; 4] = Stage::ALL;

/// A learning rate for comparing `tiny` between devices. At the preset's own rate, 3e-3, training
/// amplifies rounding: two CPU runs whose ranks add in different orders are 2.7e-4 apart after 50
/// steps, or 2.0 % of a step's loss in bf16. At this rate they stay within 1e-7, or 0.04 % in bf16,
/// and the loss still falls from 5.6 to 2.4.
pub const STEADY_RATE: &str = "1e-3";

/// Returns the path of one of this crate's fixtures.
pub fn fixture(name: &str) -> String {
    format!("{}/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Trains `stage` with the command line's `flags`, without printing anything.
///
/// # Errors
/// The error that the program would print.
pub fn train(stage: Stage, flags: &str) -> Result<Report> {
    train_as(stage, config(flags)?)
}

/// Trains `stage` and checks that its predictions hold.
///
/// # Panics
/// If training fails, or a prediction does not hold.
pub fn run(stage: Stage, flags: &str) -> Report {
    let report = train(stage, flags).unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"));
    assert_eq!(report.mispredictions(), Vec::<String>::new(), "{stage} {flags}");
    report
}

/// Returns all events of a recording, sorted by time.
///
/// # Panics
/// If the recording cannot be read.
pub fn recorded(file: &Path) -> Vec<Event> {
    let mut events = Recording::open(file).unwrap().events().map(|event| event.unwrap()).collect::<Vec<_>>();
    events.sort_by_key(|event| event.at);
    events
}

/// Returns the losses of a report, in order.
pub fn losses(report: &Report) -> Vec<f64> {
    report.steps.iter().map(|row| row.loss).collect()
}

/// Checks that runs `a` and `b` have learnt the same bits.
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

/// Returns the bytes by which all ranks' parameter shards together exceed the parameters, in a run
/// of ZeRO-3 in fp32.
pub fn padding(zero3: &Report) -> u64 {
    let shards = zero3.memory.iter().filter(|row| row.class == Class::Parameters).map(|row| row.peak_bytes);
    shards.sum::<u64>() - 4 * zero3.model.parameters
}

/// Returns the median, which is the mean of the two middle values if their number is even; NaN if
/// there are none.
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

/// Returns the minimum and the maximum.
pub fn range(values: &[f64]) -> (f64, f64) {
    let widen = |(low, high): (f64, f64), &value| (low.min(value), high.max(value));
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), widen)
}

/// Returns the largest difference between `got` and `expected` over all steps, absolute or as a
/// fraction of the step's own loss. It is infinite if a value is not a number, if there are no
/// steps, or if the numbers of steps differ.
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

/// Returns the largest absolute difference between two lists of the same length. It is infinite if
/// a value is not a number, or the lists are empty.
///
/// # Panics
/// If the lengths differ.
pub fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    farthest_step(a, b, false)
}

/// Runs `check` on all cases in parallel. Intended for cases that mostly wait.
///
/// # Panics
/// If the check of a case panics.
pub fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    let check = &check;
    std::thread::scope(|threads| {
        for case in cases {
            threads.spawn(move || check(case));
        }
    });
}

/// Copies the contents of directory `from` to directory `to`.
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
