//! Trains with DeepSpeed's and Accelerate's files.

use prediction::Stage;
use std::path::PathBuf;
use tests::{STAGES, config, fixture, losses, train_as};

/// Returns the examples of `common/deepspeed/src/tests/examples.rs`.
fn examples() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(fixture("configurations")).unwrap();
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Examples with Accelerate's keys outside their section, which Accelerate rejects.
const OUTSIDE: [&str; 3] = ["gathering-outside.yaml", "offloading-outside.yaml", "stage-alone.yaml"];

/// Returns flags to add to a file: a small model, for which the file may set everything else.
fn flags(file: &str) -> String {
    format!("--config {file} --model {} --seq-len 8 --steps 1 --threads 1 --device cpu", fixture("odd.json"))
}

#[test]
fn examples_train_but_for_keys_outside_their_section() {
    let disk = tempfile::tempdir().unwrap();
    let mut trained = Vec::new();
    for path in examples() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let flags = flags(&path.display().to_string());
        let Ok(mut config) = config(&flags) else {
            assert!(OUTSIDE.contains(&name.as_str()), "{name}");
            continue;
        };
        // In place of /local_nvme.
        config.offload.directory = config.offload.directory.map(|_| disk.path().into());
        let stage = config.findings.stage.unwrap_or(Stage::Zero3);
        let (ranks, sequences) = (config.world_size, config.tokens_per_step() / 8);
        let report = train_as(stage, config).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        assert_eq!(report.mispredictions(), Vec::<String>::new(), "{name}");
        assert!(report.steps[0].loss.is_finite(), "{name}");
        trained.push(format!("{name}: {stage} {} on {ranks}, {sequences} sequences", report.precision));
    }
    insta::assert_snapshot!(trained.join("\n"));
}

#[test]
fn what_a_stage_cannot_do_names_the_key_that_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ds.json");
    let path = file.display().to_string();
    for (section, key, flag, able) in [
        (r#""reduce_scatter": false"#, "zero_optimization.reduce_scatter false", "--grad-sync", Stage::Zero1),
        (r#""mics_shard_size": 2"#, "zero_optimization.mics_shard_size 2", "--strategy", Stage::Zero3),
        (
            r#""zero_hpz_partition_size": 2"#,
            "zero_optimization.zero_hpz_partition_size 2",
            "--secondary-shard-size",
            Stage::Zero3,
        ),
        (
            r#""offload_param": {"device": "cpu"}"#,
            "zero_optimization.offload_param.device \"cpu\"",
            "--offload-parameters",
            Stage::Zero3,
        ),
    ] {
        std::fs::write(&file, format!(r#"{{"zero_optimization": {{{section}}}}}"#)).unwrap();
        for stage in STAGES {
            let outcome =
                train_as(stage, config(&format!("{} --gpus 2 --batch-size 1", flags(&path))).unwrap());
            match outcome {
                Ok(_) => assert_eq!(stage, able, "{section}"),
                Err(failure) => {
                    let line = format!("In {path}, {key} stands for {flag}.");
                    assert!(failure.to_string().lines().any(|found| found == line), "{stage}: {failure}");
                }
            }
        }
    }
}

#[test]
fn stages_agree_without_bias_correction_and_on_a_mesh() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        flags(&path.display().to_string()).replace("--steps 1", "--steps 3")
    };
    let optimizer = |corrects| {
        format!(
            r#"{{"optimizer": {{"type": "Adam", "params": {{"lr": 0.01, "bias_correction": {corrects}}}}}}}"#
        )
    };
    let learnt = |stage, flags: &str| {
        let report = train_as(stage, config(flags).unwrap()).unwrap();
        assert_eq!(report.mispredictions(), Vec::<String>::new(), "{stage}: {flags}");
        losses(&report)
    };
    let corrected = file("corrected.json", &optimizer(true));
    let biased = file("biased.json", &optimizer(false));
    let expected = learnt(Stage::Ddp, &biased);
    assert_ne!(expected, learnt(Stage::Ddp, &corrected));
    for stage in STAGES {
        assert_eq!(learnt(stage, &biased), expected, "{stage}");
    }
    let mesh = "num_processes: 4\nparallelism_config:\n  parallelism_config_dp_shard_size: 2\n  \
                parallelism_config_dp_replicate_size: 2\n";
    let flat = learnt(Stage::Zero3, &file("flat.yaml", "num_processes: 4\n"));
    assert_eq!(learnt(Stage::Zero3, &file("mesh.yaml", mesh)), flat);
}
