//! Warnings about keys that change nothing, and errors about flags that keys set.

use super::*;
use crate::keys::Fate;
use crate::node::Node;
use crate::table::keys;

const MONITORED: &str = r#"{
  "optimizer": {"params": {"max_grad_norm": 1.0}},
  "activation_checkpointing": {"partition_activations": true, "number_checkpoints": 4, "profile": false},
  "steps_per_print": 100, "wall_clock_breakdown": true, "memory_breakdown": false,
  "flops_profiler": {"enabled": false, "detailed": true}, "comms_logger": {"enabled": false},
  "tensorboard": {"enabled": true, "output_path": "logs"}, "csv_monitor": {"enabled": false},
  "monitor_config": {"wandb": {"enabled": true}}, "checkpoint": {"tag_validation": "Fail"}, "nebula": {"enabled": false}
}"#;

#[test]
fn keys_that_ask_for_what_does_not_happen_are_a_line_per_reason() {
    insta::assert_snapshot!(json(MONITORED, "").unwrap().findings.warnings.join("\n"));
}

#[test]
fn defaults_are_silent() {
    for key in keys().filter(|key| matches!(key.fate, Fate::Accepted { .. })) {
        let Ok(default) = hjson::parse(key.default) else { continue };
        let mut root = Node::Section(Vec::new());
        root.insert(key.path, default);
        for (section, name) in [("optimizer", "Adam"), ("scheduler", "WarmupLR")] {
            if key.path.starts_with(&format!("{section}.")) {
                root.insert(&format!("{section}.type"), Node::text(name));
            }
        }
        let config = json(&serde_json::to_string(&root).unwrap(), "").unwrap();
        assert_eq!(config.findings.warnings, [""; 0], "{}", key.path);
    }
}

#[test]
fn checkpoints_may_be_arranged_once_they_are_switched_on() {
    let text = r#"{"activation_checkpointing": {"partition_activations": true}}"#;
    assert_eq!(json(text, "").unwrap().findings.warnings.len(), 1);
    assert_eq!(json(text, "--checkpoint-activations block").unwrap().findings.warnings, [""; 0]);
}

#[test]
fn a_section_that_is_switched_off_contradicts_no_other() {
    let text = r#"{"fp16": {"enabled": false}, "bf16": {"enabled": true}}"#;
    let config = json(text, "").unwrap();
    assert_eq!(config.precision.parameters, device::DType::Bf16);
    assert_eq!(config.findings.warnings, [""; 0]);
}

#[test]
fn the_old_name_of_a_wire_type_and_of_the_device_count() {
    let text = r#"{"bf16": {"enabled": true}, "fp32_allreduce": true}"#;
    assert_eq!(json(text, "").unwrap().precision.reduce, device::DType::F32);
    let yaml = File::new("a.yaml", "use_cpu: true\n");
    let config = yaml.config("").unwrap();
    assert_eq!(config.hardware, settings::hardware::Hardware::Cpu(settings::hardware::CpuReason::Asked));
    assert_eq!(yaml.config("--device auto").unwrap().findings.warnings.len(), 1, "the flag counts");
}

#[test]
fn errors_of_flags_that_a_file_has_set_name_its_keys() {
    for (text, flags, key, flag) in [
        (
            r#"{"zero_optimization": {"zero_hpz_partition_size": 3}}"#,
            "--gpus 4",
            "zero_optimization.zero_hpz_partition_size 3",
            "--secondary-shard-size",
        ),
        (
            r#"{"zero_optimization": {"mics_shard_size": 3}}"#,
            "--gpus 4",
            "zero_optimization.mics_shard_size 3",
            "--shard-group-size",
        ),
        (
            r#"{"fp16": {"enabled": true, "initial_scale_power": 2, "min_loss_scale": 8}}"#,
            "",
            "fp16.min_loss_scale 8",
            "--min-loss-scale",
        ),
        (r#"{"fp16": {"enabled": true, "loss_scale": 1e30}}"#, "", "fp16.loss_scale 1e+30", "--loss-scale"),
        (r#"{"num_processes": 6}"#, "--secondary-shard-size 4", "num_processes 6", "--gpus"),
    ] {
        let error = json(text, flags).unwrap_err().to_string();
        let line = format!("In ds.json, {key} stands for {flag}.");
        assert!(error.lines().any(|found| found == line), "{error}");
    }
    let typed = r#"{"zero_optimization": {"zero_hpz_partition_size": 2}}"#;
    let error = json(typed, "--gpus 4 --secondary-shard-size 3").unwrap_err().to_string();
    assert!(!error.contains("ds.json"), "the flag was typed: {error}");
}

#[test]
fn counts_beyond_what_is_predicted_name_their_keys() {
    let config = json(r#"{"gradient_accumulation_steps": 100000}"#, "").unwrap();
    let error = settings::planned::predict(Stage::Zero1, &config).unwrap_err().to_string();
    assert_eq!(
        error,
        "--grad-accum: micro-batches per step is 100000: give at most 65536\n\
         In ds.json, gradient_accumulation_steps 100000 stands for --grad-accum."
    );
}

#[test]
fn machines_are_a_launchers_affair() {
    let yaml = "num_machines: 2\nnum_processes: 4\nmachine_rank: 0\nmain_process_ip: 10.0.0.1\n";
    let file = File::new("a.yaml", yaml);
    let alone = file.config("").unwrap();
    assert_eq!((alone.world_size, alone.findings.check(Stage::Zero3)), (4, Ok(())));
    let [warning] = alone.findings.warnings.as_slice() else { panic!("{:?}", alone.findings.warnings) };
    assert!(warning.contains("num_machines 2") && warning.contains("torchrun"), "{warning}");

    let path = file.path.display().to_string();
    let started = |processes: usize| {
        let mut args = Cli::try_parse_from(["zero", "--device", "cpu", "--config", &path]).unwrap().train;
        let set = [("RANK", 1), ("WORLD_SIZE", processes), ("LOCAL_RANK", 1), ("LOCAL_WORLD_SIZE", 2)];
        let variable = |name: &str| {
            let found = set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.to_string());
            found
                .or_else(|| (name == "MASTER_ADDR").then(|| "10.0.0.1".to_string()))
                .or_else(|| (name == "MASTER_PORT").then(|| "29500".to_string()))
        };
        let job = settings::process::detect(&mut args, &variable).unwrap();
        configure(args).unwrap().in_process(job)
    };
    let config = started(4).unwrap();
    assert_eq!((config.world_size, config.findings.warnings.len()), (4, 0), "a launcher has started them");
    let error = started(6).unwrap_err().to_string();
    assert!(error.contains("num_processes 4") && error.contains("6 processes"), "{error}");
}

#[test]
fn errors_name_the_keys_of_whole_flags_alone() {
    let findings = File::new("a.yaml", "use_cpu: true\n").config("").unwrap().findings;
    let said = |message: &str| findings.attribute(Failure::usage(message)).to_string();
    assert!(said("--device cpu: no").ends_with("In a.yaml, use_cpu true stands for --device."));
    assert_eq!(said("--device-memory: no"), "--device-memory: no");
}

#[test]
fn keys_with_other_names_are_named_with_the_file_s_own_values() {
    for (text, flag, value, own, means) in [
        ("fp16: true\n", "--precision", "fp32", "fp16 true", ""),
        (
            "mixed_precision: bf16\ndistributed_type: NO\n",
            "--precision",
            "fp32",
            "mixed_precision \"bf16\"",
            ", which asks for torch_autocast.enabled true,",
        ),
        (
            "distributed_type: NO\n",
            "--gpus",
            "2",
            "distributed_type \"NO\"",
            ", which asks for num_processes 1,",
        ),
        (
            "distributed_type: FSDP\nfsdp_config:\n  activation_checkpointing: true\n",
            "--checkpoint-activations",
            "none",
            "fsdp_config.activation_checkpointing true",
            "",
        ),
    ] {
        let file = File::new("a.yaml", text);
        let error = file.config("").unwrap().findings.attribute(Failure::usage(format!("{flag}: no")));
        let line = format!("In a.yaml, {own} stands for {flag}.");
        assert!(error.to_string().lines().any(|found| found == line), "{error}");
        let warnings = file.config(&format!("{flag} {value}")).unwrap().findings.warnings;
        let warning =
            format!("a.yaml: {own}{means} and {flag} {value} on the command line disagree: the flag counts");
        assert!(warnings.contains(&warning), "{warnings:?}");
    }
}

#[test]
fn what_cannot_be_honoured_is_named_as_the_file_names_it() {
    let config = File::new("a.yaml", "mixed_precision: fp8\n").config("").unwrap();
    let error = config.findings.check(Stage::Zero3).unwrap_err().to_string();
    let words = "mixed_precision \"fp8\", which asks for fp8_config: \"fp8\"  (8-bit training)";
    assert!(error.contains(words), "{error}");
}

#[test]
fn flags_disagree_with_keys_that_set_something_else_as_well() {
    let zero = |keys: &str| format!(r#"{{"zero_optimization": {{"stage": 3, {keys}}}}}"#);
    let mesh = |shard: u32, replicate: u32| {
        format!(
            "distributed_type: FSDP\nnum_processes: 4\nparallelism_config:\n  parallelism_config_dp_shard_size: {shard}\n  \
             parallelism_config_dp_replicate_size: {replicate}\n"
        )
    };
    for (name, text, flags, key) in [
        ("a.json", zero(r#""mics_shard_size": 2"#), "--gpus 4 --shard-group-size 4", "mics_shard_size 2"),
        (
            "a.json",
            zero(r#""offload_param": {"device": "cpu", "buffer_count": 7}"#),
            "--offload-buffers 3",
            "buffer_count 7",
        ),
        (
            "a.json",
            zero(r#""stage3_max_reuse_distance": 50"#),
            "--reshard-last",
            "stage3_max_reuse_distance 50",
        ),
        ("a.yaml", mesh(2, 2), "--strategy full-shard", "dp_replicate_size 2"),
        ("a.yaml", mesh(2, 2), "--shard-group-size 4", "dp_shard_size 2"),
    ] {
        let found = |flags| File::new(name, &text).config(flags).unwrap().findings.warnings;
        let flag = flags.split_whitespace().rev().find(|word| word.starts_with("--")).unwrap();
        let disagrees = |warning: &String| {
            warning.contains(key) && warning.contains(flag) && warning.contains("disagree")
        };
        assert!(found(flags).iter().any(disagrees), "{key} {flags}: {:?}", found(flags));
        assert!(!found("--gpus 4").iter().any(disagrees), "{key}");
    }
    let waits = zero(r#""overlap_comm": false"#);
    let error = json(&waits, "--prefetch-bucket 7").unwrap_err().to_string();
    assert!(error.contains("overlap_comm false") && error.contains("Leave --prefetch-bucket out"), "{error}");
    assert!(json(&waits, "").is_ok());
}

/// Whether a key matters depends on the run's precision and places, which a flag may have chosen.
#[test]
fn what_is_not_supported_is_refused_where_it_matters() {
    let refused = |text: &str, flags: &str| {
        json(text, flags).unwrap().findings.check(Stage::Zero3).err().map(|error| error.to_string())
    };
    let masters = r#"{"bf16": {"enabled": "auto", "bf16_master_weights_and_grads": true}}"#;
    assert!(refused(masters, "--precision bf16").unwrap().contains("bf16_master_weights_and_grads"));
    assert_eq!(refused(masters, "--precision fp32"), None);
    let masters = r#"{"fp16": {"enabled": true, "fp16_master_weights_and_grads": true}}"#;
    assert!(refused(masters, "").is_some());
    assert_eq!(refused(masters, "--precision fp32"), None);
    let partly =
        r#"{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}"#;
    assert!(refused(partly, "").unwrap().contains("ratio"));
    assert_eq!(refused(partly, "--offload-optimizer none"), None);
}

#[test]
fn none_is_as_good_as_left_out() {
    let precision = |keys: &str| {
        let text =
            format!(r#"{{"bf16": {{"enabled": true}}, "data_types": {{"grad_accum_dtype": "fp32"}}{keys}}}"#);
        json(&text, "").unwrap().precision
    };
    assert_eq!(precision(r#", "communication_data_type": "none""#), precision(""));
    assert_ne!(precision(r#", "communication_data_type": "fp32""#), precision(""));
}
