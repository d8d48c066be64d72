//! What an error says would help does help: each remedy, tried, needs the memory that was promised.

use planner::{Job, Remedy, Stage, remedies};
use tests::{STAGES, fixture, train};

const RANKS: usize = 2;
const SHAPE: (usize, usize) = (4, 16);

fn flags() -> String {
    let (batch_size, tokens) = SHAPE;
    format!(
        "--model {} --gpus {RANKS} --batch-size {batch_size} --seq-len {tokens} --steps 1 --threads 1 --device cpu",
        fixture("odd.json")
    )
}

fn job(stage: Stage) -> Job {
    let text = std::fs::read_to_string(fixture("odd.json")).unwrap();
    let config = model::ModelConfig::from_hugging_face(&text, "odd").unwrap();
    Job { batch_size: SHAPE.0, tokens: SHAPE.1, ..Job::new(config, stage, RANKS) }
}

/// The peak of a run that does as the remedy says.
fn tried(stage: Stage, remedy: &Remedy) -> u64 {
    let report = match remedy.how.strip_prefix("cargo run -p ") {
        Some(package) => {
            let other = STAGES.into_iter().find(|stage| stage.package() == package).unwrap();
            train(other, &flags())
        }
        None => train(stage, &format!("{} {}", flags(), remedy.how)),
    };
    report.unwrap_or_else(|failure| panic!("{stage} {}: {failure}", remedy.how)).total_peak_bytes[0]
        .peak_bytes
}

#[test]
fn every_remedy_saves_what_it_promises() {
    for stage in STAGES {
        let before = train(stage, &flags()).unwrap().total_peak_bytes[0].peak_bytes;
        let remedies = remedies(&job(stage), before - 1);
        assert!(remedies.alone.len() >= 6, "{stage}: {remedies:?}");
        assert!(remedies.alone.is_sorted_by(|a, b| a.saves >= b.saves), "{stage}: {remedies:?}");
        assert_eq!(remedies.together, None, "each that saves a byte is enough");
        for remedy in &remedies.alone {
            assert_eq!(tried(stage, remedy), remedy.total_peak, "{stage} {}", remedy.how);
            assert_eq!(before - remedy.total_peak, remedy.saves, "{stage} {}", remedy.how);
        }
    }
}

#[test]
fn what_is_enough_together_is_enough() {
    let least = remedies(&job(Stage::Ddp), 0).alone[0].total_peak;
    let (how, peak) = remedies(&job(Stage::Ddp), least - 1).together.unwrap();
    let package = how[0].strip_prefix("cargo run -p ").unwrap();
    let other = STAGES.into_iter().find(|stage| stage.package() == package).unwrap();
    let report = train(other, &format!("{} {}", flags(), how[1..].join(" "))).unwrap();
    assert_eq!(report.total_peak_bytes[0].peak_bytes, peak);
    assert!(peak < least);
    assert_eq!(remedies(&job(Stage::Ddp), 1).together, None, "nothing trains in a byte");
}

#[test]
fn one_byte_less_than_the_peak_fails_where_the_peak_was_predicted() {
    for stage in STAGES {
        for extra in ["", " --checkpoint-activations block", " --grad-accum 2 --precision bf16"] {
            let flags = format!("{}{extra}", flags());
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
