//! The constants are those that a fit finds, and published runs are described as they were.

use prediction::Partition;
use std::sync::LazyLock;
use timeline::calibration::{Comparison, Kind, TypicalError, fit, typical_errors};
use timeline::{Calibration, Published, SOURCES};

static ALL: LazyLock<Vec<Comparison>> = LazyLock::new(Comparison::all);

fn near(expected: f64, found: f64, within: f64) -> bool {
    (expected / found - 1.0).abs() < within
}

#[test]
fn the_calibration_is_a_fit_to_all_runs() {
    let fitted = fit(&ALL.iter().collect::<Vec<_>>());
    let numbers = |calibration: Calibration| {
        let Calibration { products, attention, network, cpu, hop, eager_passes } = calibration;
        [&products[..], &attention[..], &[network, cpu, hop, eager_passes]].concat()
    };
    for (constant, fitted) in numbers(Calibration::ALL_RUNS).into_iter().zip(numbers(fitted)) {
        assert!(near(constant, fitted, 0.0005), "{constant} is {fitted}");
    }
}

#[test]
fn errors_are_those_of_runs_that_were_held_out() {
    for (kind, found) in Kind::ALL.into_iter().zip(typical_errors(&ALL)) {
        let TypicalError { runs, median, largest, is_held_out, .. } = TypicalError::of(kind);
        assert_eq!((runs, is_held_out), (found.runs, found.is_held_out), "{kind:?}");
        let rounded = |error: f64| (1000.0 * error).round();
        let found = [found.median, found.largest].map(rounded);
        assert_eq!([median, largest].map(rounded), found, "{kind:?}");
    }
}

/// Every line of the table is read, and its names are known.
#[test]
fn no_published_run_is_lost() {
    let lines = include_str!("../../data/published.csv").lines().count() - 1;
    assert_eq!((Published::all().count(), lines), (298, 298));
}

/// The parameters that the models' publishers name.
#[test]
fn published_models_have_their_parameters() {
    let published = [
        ("llama2-34b", 33_743_970_304),
        ("llama2-70b", 68_976_648_192),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-14b", 14_770_033_664),
    ];
    // MPT's norms and biases differ.
    let of_mpt = [
        ("mpt-125m", 0.125e9),
        ("mpt-1b", 1.3e9),
        ("mpt-7b", 6.7e9),
        ("mpt-30b", 30.0e9),
        ("mpt-70b", 65.0e9),
    ];
    for (name, parameters) in of_mpt {
        let run = Published::all().find(|run| run.model == name).unwrap();
        assert!(near(parameters, Partition::of(&run.job).parameters() as f64, 0.02), "{name}");
    }
    for (name, parameters) in published {
        let run = Published::all().find(|run| run.model == name).unwrap();
        assert_eq!(Partition::of(&run.job).parameters(), parameters, "{name}");
    }
}

#[test]
fn every_run_has_a_source() {
    for run in Published::all() {
        assert!(SOURCES.iter().any(|(name, _)| *name == run.group()), "{}", run.source);
    }
    for (name, place) in SOURCES {
        assert!(Published::all().any(|run| run.group() == name), "{name}");
        assert!(place.contains('.'), "{name}: {place}");
    }
}
