//! The remedies that an error suggests work: each one, tried, needs exactly the promised memory.

use events::Place;
use prediction::{Job, Limits, Remedies, Remedy, Room, Stage};
use tests::{STAGES, config, fixture, train};

/// Runs that use the features that remedies remove.
const RUNS: &[(Stage, &str)] = &[
    (Stage::Ddp, ""),
    (Stage::Ddp, "--precision bf16 --grad-dtype fp32 --reduce-dtype bf16"),
    (Stage::Zero1, ""),
    (Stage::Zero1, "--grad-sync all-reduce"),
    (Stage::Zero1, "--checkpoint-activations block"),
    (Stage::Zero1, "--contiguous-gradients false --reduce-bucket 1e6 --batch-size 2 --seq-len 4"),
    (Stage::Zero2, "--wrap model"),
    (Stage::Zero2, "--precision bf16 --reduce-dtype fp32 --reduce-bucket 1e6 --batch-size 2 --seq-len 4"),
    (Stage::Zero3, ""),
    (Stage::Zero3, "--param-persistence-threshold 36 --wrap module"),
    (Stage::Zero3, ALL_AT_ONCE),
    (Stage::Zero3, "--max-reuse-distance 1e6 --batch-size 2 --seq-len 4"),
    (Stage::Zero3, "--prefetch-bucket 1e6 --limit-all-gathers 3 --batch-size 2 --seq-len 4"),
    (Stage::Zero3, "--strategy hybrid-shard --shard-group-size 1 --gpus 4"),
    (Stage::Zero3, "--secondary-shard-size 2 --gpus 8"),
    (Stage::Zero3, "--strategy shard-grad-op --backward-prefetch none"),
    (Stage::Zero3, "--offload-optimizer cpu --offload-parameters cpu --batch-size 1 --seq-len 2"),
    // One bucket per backward: the third micro-batch begins with the maximum in flight.
    (Stage::Zero3, "--wrap model --strategy shard-grad-op --grad-accum 3 --batch-size 2 --seq-len 4"),
    // Settings that remedies contradict, given explicitly although they are the defaults.
    (Stage::Ddp, "--strategy no-shard --grad-dtype fp32 --reduce-dtype fp32"),
    (
        Stage::Zero3,
        "--prefetch-bucket 1 --backward-prefetch pre --limit-all-gathers 2 --batch-size 1 --seq-len 2",
    ),
    (Stage::Zero3, "--max-reuse-distance 1 --batch-size 2 --seq-len 4"),
    // Without these types, gradients have more bytes.
    (Stage::Ddp, "--grad-dtype bf16 --reduce-dtype fp32"),
    (Stage::Zero2, "--grad-dtype bf16"),
    (Stage::Zero3, ON_DISK),
];

/// Flags that are valid only in a run with something on disk.
const ON_DISK: &str = "--offload-optimizer disk --offload-parameters cpu --offload-dir /tmp \
    --offload-buffers 3 --disk-link 1us,9GB/s --host-link 1us,9GB/s --batch-size 1 --seq-len 2";

/// Returns the remedies for a device of `capacity` bytes.
fn remedies(job: &Job, capacity: u64) -> Remedies {
    prediction::remedies(Room::of(Place::Device, capacity, Limits::default()), job)
}

/// All units are gathered early, kept long and copied.
const ALL_AT_ONCE: &str = "--prefetch-bucket 1e6 --limit-all-gathers 64 --max-reuse-distance 1e6 \
    --param-persistence-threshold 1300 --reduce-bucket 1e6 --wrap size:20000 --contiguous-gradients false \
    --precision bf16 --grad-dtype fp32 --batch-size 2 --seq-len 4";

fn flags(own: &str) -> String {
    format!(
        "--model {} --gpus 2 --batch-size 4 --seq-len 16 --steps 1 --threads 1 --device cpu {own}",
        fixture("odd.json")
    )
}

fn job(stage: Stage, own: &str) -> Job {
    settings::planned::predict(stage, &config(&flags(own)).unwrap()).unwrap().0
}

/// Returns `flags` without those in the list `names` and their values.
pub fn without(flags: &str, names: &str) -> String {
    let words: Vec<&str> = flags.split_whitespace().collect();
    let gone = |word: &str| names.split([' ', ',']).any(|name| name == word);
    let kept = |(place, word): (usize, &&str)| {
        let value = !word.starts_with("--") && place > 0 && gone(words[place - 1]);
        (!gone(word) && !value).then(|| word.to_string())
    };
    words.iter().enumerate().filter_map(kept).collect::<Vec<_>>().join(" ")
}

/// Returns the peak of a run that applies the remedy.
fn tried((stage, own): (Stage, &str), remedy: &Remedy) -> u64 {
    let (add, take) = remedy.how.split_once("without ").unwrap_or((&remedy.how, ""));
    let own = without(own, take);
    let report = match add.trim().strip_prefix("cargo run -p ") {
        Some(package) => {
            let other = STAGES.into_iter().find(|stage| stage.package() == package).unwrap();
            train(other, &flags(&own))
        }
        None => train(stage, &format!("{} {add}", flags(&own))),
    };
    report.unwrap_or_else(|failure| panic!("{stage} {own} {}: {failure}", remedy.how)).total_peak_bytes[0]
        .peak_bytes
}

#[test]
fn every_remedy_saves_what_it_promises() {
    for &(stage, own) in RUNS {
        let before = train(stage, &flags(own)).unwrap().total_peak_bytes[0].peak_bytes;
        let remedies = remedies(&job(stage, own), before - 1);
        assert!(remedies.alone.len() >= 6, "{stage} {own}: {remedies:?}");
        assert!(remedies.alone.is_sorted_by(|a, b| a.saves >= b.saves), "{stage} {own}: {remedies:?}");
        assert_eq!(remedies.together, None, "each that saves a byte is enough");
        for remedy in &remedies.alone {
            assert_eq!(tried((stage, own), remedy), remedy.total_peak, "{stage} {own}: {}", remedy.how);
            assert_eq!(before - remedy.total_peak, remedy.saves, "{stage} {own}: {}", remedy.how);
        }
    }
}

/// Each setting helps some run.
#[test]
fn every_knob_is_a_remedy_somewhere() {
    let of_run = |(stage, own): &(Stage, &str)| remedies(&job(*stage, own), 1).alone;
    let all: Vec<String> = RUNS.iter().flat_map(of_run).map(|remedy| remedy.how).collect();
    let mut missing = Vec::new();
    for how in [
        "cargo run -p zero1",
        "cargo run -p zero2",
        "cargo run -p zero3",
        "cargo run -p zero1 without --strategy",
        "cargo run -p zero2 without --grad-sync",
        "--strategy full-shard",
        "--strategy full-shard without --shard-group-size",
        "--shard-group-size 2",
        "--secondary-shard-size 4",
        "without --secondary-shard-size",
        "--wrap block",
        "--wrap module",
        "--wrap parameter",
        "--reduce-bucket 1",
        "--param-persistence-threshold 0",
        "--max-reuse-distance 0",
        "--no-overlap without --prefetch-bucket, --backward-prefetch and --limit-all-gathers",
        "--prefetch-bucket 0",
        "--limit-all-gathers 1",
        "--backward-prefetch post",
        "--max-live-parameters 0",
        "--contiguous-gradients true",
        "--checkpoint-activations block",
        "--checkpoint-activations selective",
        "--offload-optimizer cpu",
        "--offload-optimizer disk",
        "--offload-optimizer cpu without --offload-dir and --disk-link",
        "--offload-parameters cpu",
        "--offload-parameters disk",
        "--offload-activations cpu",
        "--offload-activations disk",
        "--offload-buffers 1",
        "--batch-size 1 --grad-accum 4",
        "without --reduce-dtype",
        "without --grad-dtype and --reduce-dtype",
        "--precision bf16 without --grad-dtype and --reduce-dtype",
        "--gpus 4",
        "--seq-len 8",
    ] {
        if !all.iter().any(|found| found == how) {
            missing.push(how);
        }
    }
    assert_eq!(missing, [""; 0], "{all:#?}");
}

/// The error names every remedy and its savings.
#[test]
fn all_remedies_are_on_one_screen() {
    for &(stage, own) in RUNS {
        let cases: [(u64, &[&str]); 2] = [(200_000, &[""]), (20_000, &["", "--ignore-plan"])];
        for (capacity, plans) in cases {
            let alone = remedies(&job(stage, own), capacity).alone;
            for plan in plans {
                let flags = format!("{} --device-memory {capacity} {plan}", flags(own));
                let error = train(stage, &flags).unwrap_err().to_string();
                assert!(error.lines().count() <= 24, "{error}");
                let words = error.split_whitespace().collect::<Vec<_>>().join(" ");
                for remedy in &alone {
                    let saves = settings::size::human(remedy.saves);
                    let [row, word] =
                        [format!("{} {saves} ", remedy.how), format!("{} ({saves})", remedy.how)];
                    assert!(words.contains(&row) || words.contains(&word), "no {word} in\n{error}");
                }
            }
        }
    }
}

/// A shortage of main memory is predicted, and the error names other places for its states.
#[test]
fn main_memory_is_foreseen() {
    let away = flags("--offload-optimizer cpu --host-memory");
    for stage in STAGES {
        let job = job(stage, "--offload-optimizer cpu");
        let peak = prediction::predict(&job).unwrap().ranks[0].host.total_peak;
        let error = train(stage, &format!("{away} {}", peak - 1)).unwrap_err().to_string();
        assert!(error.contains("of main memory, and it has"), "{error}");
        assert!(error.contains("--host-memory") && error.contains("--offload-optimizer disk"), "{error}");
        assert!(error.lines().count() <= 24, "{error}");
        train(stage, &format!("{away} {peak}")).unwrap_or_else(|error| panic!("{stage}: {error}"));
        for (memory, moment) in [(1_000, "setup: "), (peak - 1, "")] {
            let during = train(stage, &format!("{away} {memory} --ignore-plan")).unwrap_err().to_string();
            assert!(during.contains(&format!("out of main memory in {moment}")), "{during}");
            assert!(during.contains("--offload-optimizer disk"), "{during}");
        }
    }
}

#[test]
fn what_is_enough_together_is_enough() {
    let least = remedies(&job(Stage::Ddp, ""), 0).alone[0].total_peak;
    let (how, peak) = remedies(&job(Stage::Ddp, ""), least - 1).together.unwrap();
    let package = how[0].strip_prefix("cargo run -p ").unwrap();
    let other = STAGES.into_iter().find(|stage| stage.package() == package).unwrap();
    let report = train(other, &flags(&how[1..].join(" "))).unwrap();
    assert_eq!(report.total_peak_bytes[0].peak_bytes, peak);
    assert!(peak < least);
    assert_eq!(remedies(&job(Stage::Ddp, ""), 1).together, None, "nothing trains in a byte");
}

#[test]
fn one_byte_less_than_the_peak_fails_where_the_peak_was_predicted() {
    for stage in STAGES {
        for extra in ["", " --checkpoint-activations block", " --grad-accum 2 --precision bf16"] {
            let flags = flags(extra);
            let peak = train(stage, &flags).unwrap().total_peak_bytes[0].peak_bytes;
            let failure =
                train(stage, &format!("{flags} --device-memory {} --ignore-plan", peak - 1)).unwrap_err();
            let text = failure.to_string();
            let moment = text.split_once("comes in ").and_then(|(_, rest)| rest.split_once(":")).unwrap().0;
            let first = text.lines().next().unwrap();
            assert!(first.contains(&format!("out of memory in {moment}: ")), "{stage}{extra}: {text}");
        }
    }
}

/// If main memory has no room for a copy of the data to save, training may wait for the save
/// instead.
#[test]
fn a_save_that_training_waits_for_needs_no_copy() {
    let dir = tempfile::tempdir().unwrap();
    let own = format!("--checkpoint {}", dir.path().display());
    let job = job(Stage::Zero3, &own);
    let peak = prediction::predict(&job).unwrap().ranks[0].host.total_peak;
    let alone = prediction::remedies(Room::of(Place::Host, peak - 1, Limits::default()), &job).alone;
    let remedy = alone.iter().find(|remedy| remedy.how == "--checkpoint-wait").unwrap();
    let report = train(Stage::Zero3, &flags(&format!("{own} --checkpoint-wait"))).unwrap();
    assert_eq!(report.peak(Place::Host), Some(remedy.total_peak));
    assert_eq!(remedy.saves, peak - remedy.total_peak);
}
