//! The constants are those that a fit finds, and published runs are described as they were.

use prediction::Partition;
use std::sync::LazyLock;
use timeline::calibration::{Comparison, TypicalError, fit, typical_error};
use timeline::{Calibration, GPUS, Published, SOURCES};

static ALL: LazyLock<Vec<Comparison>> = LazyLock::new(Comparison::all);

fn near(expected: f64, found: f64, within: f64) -> bool {
    (expected / found - 1.0).abs() < within
}

#[test]
fn the_calibration_is_a_fit_to_all_runs() {
    let fitted = fit(&ALL.iter().collect::<Vec<_>>());
    let numbers = |calibration: Calibration| {
        let Calibration { products, attention, network, hop, eager_passes } = calibration;
        [&products[..], &attention[..], &[network, hop, eager_passes]].concat()
    };
    for (constant, fitted) in numbers(Calibration::ALL_RUNS).into_iter().zip(numbers(fitted)) {
        assert!(near(constant, fitted, 0.002), "{constant} is {fitted}");
    }
}

#[test]
fn errors_are_those_of_runs_that_were_held_out() {
    for gpu in GPUS {
        let Some(found) = typical_error(&ALL, &gpu) else {
            assert_eq!(gpu.name, "h200", "runs on every other GPU are published");
            continue;
        };
        let TypicalError { runs, median, largest, is_held_out } = TypicalError::of(gpu.generation);
        assert_eq!((runs, is_held_out), (found.runs, found.is_held_out), "{gpu}");
        let rounded = |error: f64| (1000.0 * error).round();
        let found = [rounded(found.median), rounded(found.largest)];
        assert_eq!([rounded(median), rounded(largest)], found, "{gpu}");
    }
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
