//! Configurations as tutorials print them, unchanged except for Python's `True`, and the settings
//! that result from each. A test across crates checks that they train.

use super::*;
use events::Place;
use prediction::placement::MOVABLE;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/configurations");

/// Examples with Accelerate's keys outside their section, which Accelerate rejects.
const OUTSIDE: [&str; 3] = ["gathering-outside.yaml", "offloading-outside.yaml", "stage-alone.yaml"];

/// Returns the name and the text of every example file.
fn examples() -> Vec<(String, String)> {
    let mut names: Vec<String> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), text(&name))).collect()
}

fn text(name: &str) -> String {
    std::fs::read_to_string(format!("{FOLDER}/{name}")).unwrap()
}

fn outcome(name: &str, text: &str) -> String {
    let config = match File::new(name, text).config("") {
        Err(failure) => return format!("error: {failure}\n"),
        Ok(config) => config,
    };
    let warnings = config.findings.warnings.iter().map(|warning| format!("warning: {warning}\n"));
    let mut lines: String = warnings.collect();
    let stage = config.findings.stage.unwrap_or(Stage::Zero3);
    lines.push_str(&match config.findings.check(stage) {
        Err(failure) => format!("error: {failure}\n"),
        Ok(()) => format!(
            "runs: {stage}, {} ranks × {} × {} sequences, clip {}{}\n  {:?}\n",
            config.world_size,
            config.micro_batches,
            config.batch_size,
            config.max_grad_norm,
            beyond_the_device(&config.offload),
            config.communication,
        ),
    });
    lines
}

fn beyond_the_device(offload: &settings::OffloadArgs) -> String {
    let mut placement = offload.placement();
    let places = MOVABLE.map(|(flag, place)| (flag, *place(&mut placement)));
    let away = places.into_iter().filter(|(_, place)| *place != Place::Device);
    let flags: Vec<String> =
        away.map(|(flag, place)| format!("{flag} {}", prediction::place_word(place))).collect();
    let flags = flags.join(" ");
    let directory = offload.directory.as_ref().map(|path| format!(" in {}", path.display()));
    let buffers = offload.buffers.map(|count| format!(" through {count} buffers")).unwrap_or_default();
    if placement.any() {
        format!(", {flags}{}{buffers}", directory.unwrap_or_default())
    } else {
        String::new()
    }
}

#[test]
fn what_the_examples_lead_to() {
    let examples = examples();
    let outcomes = examples.iter().map(|(name, text)| format!("## {name}\n{}", outcome(name, text)));
    insta::assert_snapshot!(outcomes.collect::<Vec<_>>().join("\n"));
}

#[test]
fn examples_run_but_for_keys_outside_their_section() {
    for (name, text) in examples() {
        match File::new(&name, &text).config("") {
            Ok(config) => assert_eq!(config.findings.missing, [], "{name}"),
            Err(_) => assert!(OUTSIDE.contains(&name.as_str()), "{name}"),
        }
    }
}

#[test]
fn loss_scaling_of_a_file_is_idle_in_another_precision() {
    let file = File::new("fp16.json", &text("fp16.json"));
    let scaled = file.config("").unwrap();
    assert_eq!(scaled.loss_scaling.map(|scaling| scaling.window), Some(1000));
    let config = file.config("--precision fp32").unwrap();
    assert_eq!(config.loss_scaling, None);
    let [warning] = config.findings.warnings.as_slice() else { panic!("{:?}", config.findings.warnings) };
    assert!(warning.contains("fp16.enabled") && warning.contains("--precision"), "{warning}");
}

#[test]
fn accumulation_given_twice_is_named_in_a_warning() {
    let file = File::new("zero2_config.yaml", &text("accelerate-zero2-bf16.yaml"));
    let config = file.config("--grad-accum 8 --batch-size 4").unwrap();
    assert_eq!((config.world_size, config.micro_batches, config.batch_size), (8, 8, 4));
    assert_eq!(
        config.findings.warnings.last().unwrap(),
        "zero2_config.yaml: gradient_accumulation_steps 4 and --grad-accum 8 on the command line disagree: the flag counts"
    );
}

#[test]
fn accelerates_file_may_name_a_deepspeed_file() {
    let inner = File::json(r#"{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 5}"#);
    let text = format!(
        "deepspeed_config:\n  deepspeed_config_file: {}\n  zero_stage: 3\nnum_processes: 2\n",
        inner.path.display()
    );
    let config = File::new("accelerate.yaml", &text).config("").unwrap();
    assert_eq!((config.findings.stage, config.micro_batches, config.world_size), (Some(Stage::Zero2), 5, 2));
    let [warning] = config.findings.warnings.as_slice() else { panic!("{:?}", config.findings.warnings) };
    assert!(warning.contains("zero_optimization.stage is given twice, as 2 and as 3"), "{warning}");
}
