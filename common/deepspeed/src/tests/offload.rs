//! Offload: the keys of DeepSpeed, Accelerate and FSDP.

use super::*;
use events::Place;
use settings::OffloadArgs;

fn offload(text: &str, flags: &str) -> OffloadArgs {
    let config = json(text, flags).unwrap();
    assert_eq!(config.findings.check(Stage::Zero3), Ok(()), "{text}");
    config.offload
}

fn yaml(text: &str, flags: &str) -> Result<Config> {
    File::new("a.yaml", text).config(flags)
}

#[test]
fn sections_say_what_flags_say() {
    let flags =
        "--offload-optimizer disk --offload-parameters cpu --offload-dir some/where --offload-buffers 5";
    assert_eq!(offload(OFFLOAD, ""), plain(flags).offload);
    let nvme = r#"{"zero_optimization": {"offload_param": {"device": "NVMe"}}}"#;
    assert_eq!(offload(nvme, ""), plain("--offload-parameters disk").offload);
    let old = r#"{"zero_optimization": {"cpu_offload": true, "cpu_offload_param": true}}"#;
    let cpu = plain("--offload-optimizer cpu --offload-parameters cpu").offload;
    assert_eq!(offload(old, ""), cpu);
    let flat = "deepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: nvme\n  \
                offload_optimizer_nvme_path: some/where\n  offload_param_device: nvme\n  \
                offload_param_nvme_path: some/where\n";
    let disk = "--offload-optimizer disk --offload-parameters disk --offload-dir some/where";
    assert_eq!(yaml(flat, "").unwrap().offload, plain(disk).offload);
}

#[test]
fn a_directory_of_what_rests_in_main_memory_is_idle() {
    let text =
        r#"{"zero_optimization": {"offload_optimizer": {"device": "cpu", "nvme_path": "/local_nvme"}}}"#;
    assert_eq!(offload(text, ""), plain("--offload-optimizer cpu").offload);
    assert_eq!(
        offload(text, "--offload-optimizer disk").directory,
        Some("/local_nvme".into()),
        "the flag moved them"
    );
}

/// A key about states that are stored in another place neither contradicts another key nor is named
/// in an error.
#[test]
fn keys_about_states_that_rest_elsewhere_contradict_nothing() {
    let both = r#"{"zero_optimization": {
        "offload_optimizer": {"device": "cpu", "nvme_path": "/a"},
        "offload_param": {"device": "nvme", "nvme_path": "/b"}}}"#;
    let config = json(both, "").unwrap();
    assert_eq!((config.offload.directory, config.findings.warnings), (Some("/b".into()), vec![]));
    let unused = r#"{"zero_optimization": {"offload_optimizer": {"device": "cpu"},
        "offload_param": {"device": "none", "buffer_count": 7}}}"#;
    assert_eq!(json(unused, "--offload-buffers 3").unwrap().findings.warnings, [""; 0]);
    let counts = |counted: &str, other: &str| {
        format!(
            r#"{{"zero_optimization": {{"stage": 3, "{counted}": {{"device": "cpu", "buffer_count": 7}},
            "{other}": {{"device": "cpu"}}}}}}"#
        )
    };
    let stay = json(&counts("offload_param", "offload_optimizer"), "--offload-parameters none").unwrap();
    assert_eq!(stay.offload.buffers, None);
    let stay =
        json(&counts("offload_optimizer", "offload_param"), "--offload-optimizer none --offload-buffers 3");
    let about_buffers = |warning: &&String| warning.contains("buffer_count");
    assert_eq!(stay.unwrap().findings.warnings.iter().find(about_buffers), None);
    for device in ["none", "cpu"] {
        let text = format!(
            r#"{{"zero_optimization": {{"offload_optimizer": {{"device": "{device}", "nvme_path": "/a"}}}}}}"#
        );
        assert_eq!(offload(&text, "--offload-optimizer disk").directory, Some("/a".into()), "{device}");
    }
}

#[test]
fn flags_override_sections() {
    assert_eq!(offload(OFFLOAD, "--offload-dir else/where").directory, Some("else/where".into()));
    let config = json(OFFLOAD, "--offload-optimizer none --offload-parameters none").unwrap();
    assert_eq!(config.offload, offload("{}", ""));
    assert_eq!(config.findings.warnings.len(), 2, "{:?}", config.findings.warnings);
}

/// DeepSpeed has a pool of buffers for each.
#[test]
fn the_larger_pool_of_buffers_counts() {
    let buffers = |optimizer: usize, parameters: usize, flags: &str| {
        let text = format!(
            r#"{{"zero_optimization": {{"stage": 3,
            "offload_optimizer": {{"device": "nvme", "buffer_count": {optimizer}}},
            "offload_param": {{"device": "nvme", "buffer_count": {parameters}}}}}}}"#
        );
        let config = json(&text, flags).unwrap();
        assert_eq!(config.findings.warnings.len(), usize::from(!flags.is_empty()), "{text}");
        config.offload.buffers
    };
    assert_eq!([buffers(4, 5, ""), buffers(5, 4, "")], [Some(5); 2]);
    assert_eq!(buffers(4, 5, "--offload-buffers 3"), Some(3));
}

/// If parameters are not sharded, DeepSpeed treats every device except none as main memory.
#[test]
fn an_optimizer_on_disk_beside_whole_parameters_is_a_difference() {
    let text = |stage| {
        format!(r#"{{"zero_optimization": {{"stage": {stage}, "offload_optimizer": {{"device": "nvme"}}}}}}"#)
    };
    let warnings = |stage| json(&text(stage), "").unwrap().findings.warnings;
    assert_eq!(warnings(3), [""; 0]);
    let [warning] = &*warnings(2) else { panic!("{:?}", warnings(2)) };
    assert!(warning.contains("nvme") && warning.contains("main memory"), "{warning}");
}

#[test]
fn two_directories_are_refused_unless_a_flag_overrides_them() {
    let text = r#"{"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "/a"},
        "offload_param": {"device": "nvme", "nvme_path": "/b"}}}"#;
    let error = json(text, "").unwrap_err().to_string();
    assert!(
        error.contains("\"/a\" in offload_optimizer and \"/b\"") && error.contains("--offload-dir"),
        "{error}"
    );
    assert_eq!(offload(text, "--offload-dir /c").directory, Some("/c".into()));
}

#[test]
fn twin_flow_is_refused_by_name() {
    let text = |ratio| {
        format!(r#"{{"zero_optimization": {{"offload_optimizer": {{"device": "cpu", "ratio": {ratio}}}}}}}"#)
    };
    let error = json(&text(0.3), "").unwrap().findings.check(Stage::Zero3).unwrap_err().to_string();
    assert!(error.contains("offload_optimizer.ratio: 0.3  (Twin-Flow"), "{error}");
    assert_eq!(offload(&text(1.0), ""), plain("--offload-optimizer cpu").offload);
}

#[test]
fn what_only_tunes_speed_is_a_line_per_reason() {
    let text = r#"{"zero_optimization": {
        "offload_optimizer": {"device": "nvme", "pin_memory": false, "pipeline_read": true, "fast_init": true},
        "offload_param": {"device": "cpu", "pin_memory": false, "buffer_size": 1e7, "max_in_cpu": 5e8}},
        "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 1, "single_submit": false}}"#;
    insta::assert_snapshot!(json(text, "").unwrap().findings.warnings.join("\n"));
    let tuned = r#"{"aio": {"block_size": 262144}}"#;
    assert_eq!(json(tuned, "").unwrap().findings.warnings, [""; 0], "nothing is stored on disk");
}

#[test]
fn checkpoints_in_main_memory_are_switched_on_by_the_key_that_moves_them() {
    let text = r#"{"activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true}}"#;
    let config = json(text, "").unwrap();
    assert_eq!(
        (config.offload.activations, config.memory.checkpoint_activations),
        (Place::Host, model::Checkpointing::Block)
    );
    assert_eq!(config.findings.warnings, [""; 0]);
    let error = json(text, "--checkpoint-activations none").unwrap_err().to_string();
    let line =
        "In ds.json, activation_checkpointing.cpu_checkpointing true stands for --offload-activations.";
    assert!(error.lines().any(|found| found == line), "{error}");
}

#[test]
fn fsdp_moves_parameters_and_optimizer() {
    for version in ["1", "2"] {
        let text = format!("fsdp_config:\n  fsdp_version: {version}\n  fsdp_offload_params: true\n");
        let cpu = plain("--offload-optimizer cpu --offload-parameters cpu").offload;
        assert_eq!(yaml(&text, "").unwrap().offload, cpu);
        let config = yaml(&text, "--offload-parameters disk").unwrap();
        assert_eq!((config.offload.optimizer, config.offload.parameters), (Place::Host, Place::Disk));
        let [warning] = config.findings.warnings.as_slice() else { panic!("{:?}", config.findings.warnings) };
        assert!(warning.contains("fsdp_offload_params true and --offload-parameters disk"), "{warning}");
    }
}

#[test]
fn keys_that_would_move_data_are_refused_at_the_wrong_level() {
    let deepspeed = [
        (r#"{"offload_optimizer": {"device": "cpu"}}"#, "zero_optimization.offload_optimizer.device"),
        (r#"{"offload_param_device": "nvme"}"#, "zero_optimization.offload_param.device"),
        (
            r#"{"zero_optimization": {"offload_params": {"device": "cpu"}}}"#,
            "zero_optimization.offload_param.device",
        ),
        (
            r#"{"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_paths": "/x"}}}"#,
            "zero_optimization.offload_optimizer.nvme_path",
        ),
        (
            r#"{"zero_optimisation": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}"#,
            "zero_optimization.offload_optimizer.device",
        ),
        (r#"{"cpu_checkpointing": true}"#, "activation_checkpointing.cpu_checkpointing"),
        (
            r#"{"zero_optimization": {"cpu_checkpointing": true}}"#,
            "activation_checkpointing.cpu_checkpointing",
        ),
    ];
    let accelerate = [
        ("offload_optimizer_device: cpu\n", "deepspeed_config.offload_optimizer_device"),
        (
            "deepspeed_config:\n  offload_optimizer:\n    device: cpu\n",
            "deepspeed_config.offload_optimizer_device",
        ),
        ("fsdp_offload_params: true\n", "fsdp_config.fsdp_offload_params"),
        ("fsdp_config:\n  fsdp_cpu_offload: CPUOffloadPolicy\n", "fsdp_config.fsdp_offload_params"),
    ];
    let all = deepspeed.map(|(text, right)| ("ds.json", text, right)).into_iter();
    for (name, text, right) in all.chain(accelerate.map(|(text, right)| ("a.yaml", text, right))) {
        let error = File::new(name, text).config("").unwrap_err().to_string();
        assert!(error.contains(&format!("Write it as {right}, or")), "{text}: {error}");
        assert!(error.starts_with(name) && error.lines().count() == 2, "{text}: {error}");
    }
}

#[test]
fn keys_that_move_nothing_stay_warnings_at_the_wrong_level() {
    for text in [
        r#"{"offload_optimizer": {"device": "none", "pin_memory": true}}"#,
        r#"{"offload_optimizer_device": "none"}"#,
        r#"{"cpu_checkpointing": false}"#,
        r#"{"buffer_count": 4}"#,
        r#"{"device": "cuda"}"#,
        r#"{"zero_optimization": {"offload_optimizer": {"device": "cpu", "max_in_cpu": 1e9}}}"#,
    ] {
        assert_eq!(json(text, "").unwrap().findings.warnings.len(), 1, "{text}");
    }
}
