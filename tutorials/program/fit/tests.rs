//! The largest micro-batch, by search, by prediction and by running.

use super::*;

#[test]
fn searching_finds_the_last_that_fits() {
    for largest in 0..40 {
        let found = search(|batch| Ok((batch <= largest).then_some(batch as u64 * 10))).unwrap();
        assert_eq!((found.batch, found.peak), (largest, largest as u64 * 10));
        assert!(found.tried.len() <= 12, "{:?}", found.tried);
    }
}

/// Returns the arguments of `fit` with `flags`, under 12 MB.
fn arguments(flags: &str) -> Arguments {
    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }
    let own = "x --device-memory 12MB --model tiny --gpus 2 --seq-len 8 --threads 1 --device cpu";
    let program: Program = clap::Parser::parse_from(own.split_whitespace().chain(flags.split_whitespace()));
    program.arguments
}

/// Returns the result of `fit` for each stage with `flags`, under 12 MB.
fn fitted(flags: &str) -> Vec<Found> {
    let arguments = arguments(flags);
    let found = Stage::ALL.map(|stage| fit(stage, &arguments, 12_000_000).unwrap());
    for found in &found {
        assert_eq!(found.measured.as_ref().unwrap().batch, found.predicted, "{} {flags}", found.stage);
    }
    found.into()
}

#[test]
fn prediction_and_running_find_the_same() {
    let found = fitted("");
    assert_eq!(found[0].predicted, 0, "DDP's model states alone are larger");
    assert!(found[3].predicted >= found[2].predicted && found[2].predicted > found[1].predicted);
    assert_eq!(beyond_table(&found), None);
    insta::assert_snapshot!(table(&found, 12_000_000).render(Format::Terminal));
}

/// A micro-batch set by a file is one of the sizes to try, not the only one.
#[test]
fn a_file_that_fixes_the_batch_does_not_end_the_search() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let without = fitted("");
    for keys in [r#"{"train_micro_batch_size_per_gpu": 4}"#, r#"{"train_batch_size": 8}"#] {
        std::fs::write(file.path(), keys).unwrap();
        assert_eq!(fitted(&format!("--config {}", file.path().display())), without, "{keys}");
    }
}

#[test]
fn a_search_without_an_end_is_an_error() {
    let error = search(|_| Ok(Some(1))).unwrap_err().to_string();
    assert!(error.contains("the batch does not change the peak"), "{error}");
}

/// Main memory has room for the optimizer states of every stage except DDP, and for block inputs.
#[test]
fn main_memory_is_a_limit_too() {
    let found = fitted(
        "--offload-optimizer cpu --host-memory 10MB --offload-activations cpu --checkpoint-activations block",
    );
    assert_eq!(found[0].predicted, 0, "12 bytes for each of 918,656 parameters");
    let within = |found: &Found| found.predicted > 0 && found.beyond.unwrap()[0] <= 10_000_000;
    assert!(found[1..].iter().all(within), "{found:?}");
    insta::assert_snapshot!(beyond_table(&found).unwrap().render(Format::Terminal));
}

/// `fit` refuses a flag that would affect only one run or none, and a stage that does not support a
/// flag. It drops nothing silently.
#[test]
fn flags_without_effect_are_refused() {
    for (flags, named) in [
        ("--batch-size 16", "--batch-size"),
        ("--steps 5", "--steps"),
        ("--metrics m.csv", "--metrics"),
        ("--log-dir logs", "--log-dir"),
        ("--collectives tcp", "--collectives"),
        ("--predict-only --secondary-shard-size 2", "--secondary-shard-size belongs to ZeRO-3"),
        ("--predict-only --strategy no-shard --stages zero3", "--strategy no-shard belongs to DDP"),
    ] {
        let refused = run(&arguments(flags)).unwrap_err().to_string();
        assert!(refused.contains(named), "{flags}: {refused}");
    }
}
