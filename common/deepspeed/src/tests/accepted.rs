//! Files that DeepSpeed and Accelerate accept, in every form.

use super::*;
use events::Place;

/// Returns the settings, without the findings.
fn settings(config: Config) -> String {
    format!("{:?}", Config { findings: Findings::default(), ..config })
}

fn yaml(text: &str, flags: &str) -> Result<Config> {
    File::new("a.yaml", text).config(flags)
}

#[test]
fn other_ways_to_write_a_value() {
    for (text, same) in [
        (r#"{"zero_optimization": {"stage": "2"}}"#, r#"{"zero_optimization": {"stage": 2}}"#),
        (r#"{"zero_optimization": true}"#, r#"{"zero_optimization": {"stage": 1}}"#),
        (r#"{"gradient_accumulation_steps": "8"}"#, r#"{"gradient_accumulation_steps": 8}"#),
        (r#"{"gradient_clipping": "0.5"}"#, r#"{"gradient_clipping": 0.5}"#),
        (r#"{"bf16": {"enabled": 1}}"#, r#"{"bf16": {"enabled": true}}"#),
        (r#"{"zero_optimization": {"sub_group_size": 0}}"#, "{}"),
        (
            r#"{"zero_optimization": {"reduce_bucket_size": 0}}"#,
            r#"{"zero_optimization": {"reduce_bucket_size": 1}}"#,
        ),
        (r#"{"fp16": {"enabled": "auto", "loss_scale_window": "auto", "hysteresis": "auto"}}"#, "{}"),
        (
            "# the stage\n{zero_optimization: {stage: 3}, // of parameters\n}",
            r#"{"zero_optimization": {"stage": 3}}"#,
        ),
    ] {
        let (found, expected) = (json(text, "").unwrap(), json(same, "").unwrap());
        assert_eq!(
            (found.findings.stage, &found.findings.warnings),
            (expected.findings.stage, &vec![]),
            "{text}"
        );
        assert_eq!(settings(found), settings(expected), "{text}");
    }
}

#[test]
fn fields_may_leave_out_their_stage() {
    let with = r#"{"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 10, "stage3_param_persistence_threshold": 11,
        "stage3_model_persistence_threshold": 12, "stage3_max_live_parameters": 13, "stage3_max_reuse_distance": 14}}"#;
    let (with, without) = (json(with, "").unwrap(), json(&with.replace("stage3_", ""), "").unwrap());
    assert_eq!(without.findings.warnings, [""; 0]);
    assert_eq!(settings(with), settings(without));
}

#[test]
fn what_changes_training_and_is_not_here_is_refused_by_name() {
    for (text, key) in [
        (r#"{"zero_optimization": {"zenflow": {"topk_ratio": 0.1}}}"#, "zero_optimization.zenflow"),
        (
            r#"{"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}}"#,
            "bf16.bf16_master_weights_and_grads",
        ),
        (r#"{"bf16": {"enabled": true, "bf16_optimizer_states": true}}"#, "bf16.bf16_optimizer_states"),
        (r#"{"gradient_allreduce_op": "sum"}"#, "gradient_allreduce_op"),
        (r#"{"data_types": {"param_dtype": "bf16"}}"#, "data_types.param_dtype"),
        (
            r#"{"zero_optimization": {"use_all_reduce_for_fetch_params": true}}"#,
            "stage3_use_all_reduce_for_fetch_params",
        ),
    ] {
        let error = json(text, "").unwrap().findings.check(Stage::Zero3).unwrap_err().to_string();
        assert!(error.contains(key) && error.contains("not supported yet"), "{error}");
    }
}

#[test]
fn a_mesh_of_shards_and_replicas_is_hybrid_sharding() {
    let text = |replicate, shard, more: &str| {
        format!(
            "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n\
             parallelism_config:\n  parallelism_config_dp_replicate_size: {replicate}\n  \
             parallelism_config_dp_shard_size: {shard}\n{more}"
        )
    };
    for (replicate, shard, strategy, mesh) in [
        (2, 4, "hybrid-shard", MeshShape::Hybrid(4)),
        (1, 8, "full-shard", MeshShape::World),
        (8, 1, "no-shard", MeshShape::World),
    ] {
        let config = yaml(&text(replicate, shard, ""), "").unwrap();
        let found = config.strategy.map(prediction::Strategy::label);
        assert_eq!(
            (found, config.mesh, config.world_size),
            (Some(strategy), mesh, 8),
            "{replicate} × {shard}"
        );
        assert_eq!(config.findings.check(Stage::Zero3), Ok(()));
    }
    let tensor = yaml(&text(2, 2, "  parallelism_config_tp_size: 2\n"), "").unwrap();
    let error = tensor.findings.check(Stage::Zero3).unwrap_err().to_string();
    assert!(error.contains("parallelism_config_tp_size: 2  (tensor parallelism)"), "{error}");
    let error = yaml(&text(2, 2, ""), "").unwrap_err().to_string();
    assert!(error.contains("is 4 ranks, not 8 (--gpus)\n--gpus 4 would fit"), "{error}");
    let error = yaml(&text(2, 4, "  tp_size: 2\n"), "").unwrap_err().to_string();
    assert!(error.contains("parallelism_config.tp_size is no key of Accelerate"), "{error}");
    let huge =
        "  parallelism_config_tp_size: 4503599627370496\n  parallelism_config_cp_size: 4503599627370496\n";
    let error = yaml(&text(2, 4, huge), "").unwrap_err().to_string();
    assert!(error.contains("parallelism_config_tp_size is 4503599627370496: it must be"), "{error}");
    let whole = text(2, 4, "").replace("fsdp_version: 2", "fsdp_sharding_strategy: HYBRID_SHARD");
    let whole = whole.replace("  fsdp_reshard_after_forward: true\n", "");
    assert_eq!(yaml(&whole, "").unwrap().mesh, MeshShape::Hybrid(4), "the mesh says how large a group is");
    let kept = text(2, 4, "").replace("forward: true", "forward: false");
    let error = yaml(&kept, "").unwrap_err().to_string();
    assert!(error.contains("fsdp_reshard_after_forward"), "{error}");
}

#[test]
fn fsdps_keys_may_leave_out_their_prefix() {
    let with = "fsdp_config:\n  fsdp_sharding_strategy: 2\n  fsdp_offload_params: true\n";
    let (with, without) = (yaml(with, "").unwrap(), yaml(&with.replace("  fsdp_", "  "), "").unwrap());
    assert_eq!(without.findings.warnings, [""; 0]);
    assert_eq!(without.offload.parameters, Place::Host);
    assert_eq!(settings(with), settings(without.clone()));
    let alone = r#"{"sharding_strategy": 2, "fsdp_offload_params": true}"#;
    assert_eq!(settings(json(alone, "").unwrap()), settings(without), "the trainer's own file");
    let checkpoints = r#"{"backward_prefetch": "backward_pre", "activation_checkpointing": true}"#;
    assert_eq!(json(checkpoints, "").unwrap().memory.checkpoint_activations, model::Checkpointing::Block);
    let ignored = yaml("fsdp_config:\n  fsdp_ignored_modules: lm_head\n", "").unwrap();
    assert!(ignored.findings.check(Stage::Zero3).unwrap_err().to_string().contains("fsdp_ignored_modules"));
}

#[test]
fn accelerates_old_keys_are_converted_and_unknown_ones_are_errors() {
    let old = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nfp16: true\ndynamo_backend: 'NO'\n\
               tpu_name: none\ntpu_zone: none\ntpu_vm: []\n";
    let config = yaml(old, "").unwrap();
    assert_eq!(config.precision.parameters, device::DType::F16);
    assert_eq!(config.findings.warnings.len(), 1, "{:?}", config.findings.warnings);
    assert!(config.findings.warnings[0].contains("fp16 with fp32 weights under autocast"));
    let newer = yaml(&format!("{old}mixed_precision: 'no'\n"), "").unwrap();
    assert_eq!(newer.precision.parameters, device::DType::F32);
    for (text, key) in [
        ("another: 1\n", "another"),
        ("distributed_type: FSDP\ntrain_batch_size: 8\n", "train_batch_size"),
        ("distributed_type: FSDP\nzero_optimization: true\n", "zero_optimization"),
        ("distributed_type: FSDP\nzero_optimization:\n  stage: 2\n", "zero_optimization"),
    ] {
        let error = yaml(text, "").unwrap_err().to_string();
        assert!(error.starts_with(&format!("a.yaml: {key} is no key of Accelerate")), "{error}");
    }
    let alone = yaml("distributed_type: 'NO'\n", "").unwrap();
    assert_eq!((alone.world_size, alone.findings.warnings), (1, vec![]), "Accelerate starts one process");
    let idle = "distributed_type: MULTI_GPU\nfsdp_config:\n  fsdp_offload_params: true\n";
    let config = yaml(idle, "").unwrap();
    assert!(
        config.findings.warnings[0].contains("Accelerate reads fsdp_config only with distributed_type FSDP")
    );
    assert_eq!(config.offload.parameters, Place::Device);
}

#[test]
fn accelerates_bf16_is_autocast_under_ddp_and_16_bit_weights_elsewhere() {
    let precision = |text: &str| settings::precision::named(yaml(text, "").unwrap().precision).label();
    for kind in ["MULTI_GPU", "MULTI_NPU", "'NO'", "NO"] {
        let text = format!("distributed_type: {kind}\nmixed_precision: bf16\n");
        assert_eq!(precision(&text), "autocast", "{kind}");
        assert_eq!(precision(&text.replace("bf16", "'no'")), "fp32", "{kind}");
    }
    for kind in ["distributed_type: FSDP\n", "distributed_type: DEEPSPEED\n", ""] {
        assert_eq!(precision(&format!("{kind}mixed_precision: bf16\n")), "bf16", "{kind}");
    }
    let text = "distributed_type: MULTI_GPU\nmixed_precision: bf16\n";
    let flag = yaml(text, "--precision fp32").unwrap();
    assert!(
        flag.findings.warnings[0].contains(
            "mixed_precision \"bf16\", which asks for torch_autocast.enabled true, and --precision fp32"
        ),
        "{:?}",
        flag.findings
    );
}

#[test]
fn deepspeeds_autocast_is_to_bf16_and_says_what_travels() {
    let section = |keys: &str, rest: &str| {
        json(&format!(r#"{{"torch_autocast": {{"enabled": true{keys}}}{rest}}}"#), "--gpus 2")
    };
    let config = section(r#", "dtype": "bfloat16""#, "").unwrap();
    assert_eq!(settings::precision::named(config.precision).label(), "autocast");
    let [warning] = config.findings.warnings.as_slice() else { panic!("{:?}", config.findings.warnings) };
    assert!(warning.contains("travel in fp32 here"), "{warning}");
    let whole = r#", "dtype": "torch.bfloat16", "lower_precision_safe_modules": []"#;
    let silent = section(whole, "").unwrap();
    assert_eq!(silent.findings.warnings, [""; 0]);
    let ddp = section(r#", "dtype": "bf16""#, r#", "zero_optimization": {"stage": 0}"#).unwrap();
    assert_eq!(ddp.findings.warnings, [""; 0], "without ZeRO DeepSpeed sends fp32 too");
    let off = json(r#"{"torch_autocast": {"enabled": false, "dtype": "float16"}}"#, "").unwrap();
    assert_eq!((settings::precision::named(off.precision).label(), off.findings.warnings.len()), ("fp32", 0));
    for (keys, rest, words) in [
        ("", "", "torch_autocast has no dtype"),
        (r#", "dtype": "float16""#, "", r#"torch_autocast.dtype is "float16""#),
        (whole, r#", "bf16": {"enabled": true}"#, "bf16.enabled and torch_autocast.enabled are both true"),
    ] {
        let error = section(keys, rest).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let printed = print(&silent, Stage::Zero2).unwrap();
    let again = json(&printed, "--gpus 2").unwrap();
    assert_eq!((again.precision, again.findings.warnings), (silent.precision, vec![]), "{printed}");
}

#[test]
fn a_file_of_deepspeeds_may_be_called_hjson() {
    let config = File::new("a.hjson", "zero_optimization: {stage: 2}\nunheard_of: 1\n").config("").unwrap();
    assert_eq!(config.findings.stage, Some(Stage::Zero2));
    assert!(
        config.findings.warnings[0].contains("unheard_of is no key of DeepSpeed"),
        "{:?}",
        config.findings
    );
}

#[test]
fn a_deepspeed_file_is_found_beside_the_one_that_names_it() {
    let outer = File::new("a.yaml", "deepspeed_config:\n  deepspeed_config_file: configs/inner.json\n");
    std::fs::write(outer.folder.path().join("inner.json"), r#"{"gradient_accumulation_steps": 5}"#).unwrap();
    assert_eq!(outer.config("").unwrap().micro_batches, 5);
    let above = outer.folder.path().join("sub/a.yaml");
    std::fs::create_dir(above.parent().unwrap()).unwrap();
    std::fs::write(&above, "deepspeed_config:\n  deepspeed_config_file: ./inner.json\n").unwrap();
    assert_eq!(File { path: above, ..outer }.config("").unwrap().micro_batches, 5);
}

/// Transformers fills in the values that are `auto` in the inner file.
#[test]
fn a_value_counts_before_auto_in_the_file_that_it_names() {
    let outer = "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  \
                 deepspeed_config_file: inner.json\n  gradient_accumulation_steps: 4\n";
    let outer = File::new("a.yaml", outer);
    let inner = r#"{"bf16": {"enabled": "auto"}, "gradient_accumulation_steps": "auto"}"#;
    std::fs::write(outer.folder.path().join("inner.json"), inner).unwrap();
    let config = outer.config("").unwrap();
    assert_eq!((settings::precision::named(config.precision).label(), config.micro_batches), ("bf16", 4));
    assert_eq!(config.findings.warnings, [""; 0]);
}

#[test]
fn accelerate_means_stage_2_where_it_is_left_out() {
    let stage = |keys: &str| {
        let text = format!("distributed_type: DEEPSPEED\ndeepspeed_config:\n  {keys}\n");
        yaml(&text, "").unwrap().findings
    };
    assert_eq!(stage("gradient_accumulation_steps: 4").stage, Some(Stage::Zero2));
    assert_eq!(stage("zero_stage: 3").stage, Some(Stage::Zero3));
    let error = stage("gradient_accumulation_steps: 4").check(Stage::Zero3).unwrap_err().to_string();
    assert!(error.contains("asks for ZeRO-2"), "{error}");
    let empty = yaml("distributed_type: FSDP\ndeepspeed_config: {}\n", "").unwrap().findings;
    assert_eq!((empty.stage, empty.warnings), (None, vec![]));
}

/// DeepSpeed hands them to the optimizer, which has no such argument.
#[test]
fn unknown_parameters_of_what_is_named_are_errors() {
    for (section, kind, name) in
        [("optimizer", "AdamW", "learning_rate"), ("scheduler", "WarmupLR", "warmup_steps")]
    {
        let text = format!(r#"{{"{section}": {{"type": "{kind}", "params": {{"{name}": 1e-5}}}}}}"#);
        let error = json(&text, "").unwrap_err().to_string();
        assert!(error.contains(&format!("{section}.params.{name} is no parameter")), "{error}");
        assert!(error.contains("weight_decay") == (section == "optimizer"), "{error}");
        let unnamed = text.replace(&format!(r#""type": "{kind}", "#), "");
        assert_eq!(json(&unnamed, "").unwrap().findings.warnings.len(), 1, "nothing reads it");
    }
    let fine = r#"{"optimizer": {"type": "AdamW", "params": {"set_grad_none": true, "fp32_optimizer_states": true}}}"#;
    assert_eq!(json(fine, "").unwrap().findings.warnings, [""; 0]);
    let narrow = fine.replace("states\": true", "states\": false");
    let error = json(&narrow, "").unwrap().findings.check(Stage::Zero3).unwrap_err().to_string();
    assert!(error.contains("16-bit optimizer states"), "{error}");
}

/// Gradients that accumulate in fp32 are sent in the parameters' type.
#[test]
fn gradients_travel_in_the_type_of_parameters() {
    let types = |more: &str, flags: &str| {
        let text = format!(r#"{{"bf16": {{"enabled": true}}{more}}}"#);
        let config = json(&text, flags).unwrap();
        (config.precision.gradients, config.precision.reduce)
    };
    let (bf16, fp32) = (device::DType::Bf16, device::DType::F32);
    assert_eq!(types("", ""), (bf16, bf16));
    for name in ["fp32", "float32", "float", "torch.float32"] {
        let kept = format!(r#", "data_types": {{"grad_accum_dtype": "{name}"}}"#);
        assert_eq!(types(&kept, ""), (fp32, bf16), "{name}");
        assert_eq!(types(&kept, "--reduce-dtype fp32"), (fp32, fp32));
        assert_eq!(types(&format!(r#"{kept}, "communication_data_type": "fp32""#), ""), (fp32, fp32));
    }
}

#[test]
fn a_named_optimizer_brings_deepspeeds_defaults() {
    let named = |params: &str, flags: &str| {
        json(&format!(r#"{{"optimizer": {{"type": "Adam", "params": {{{params}}}}}}}"#), flags).unwrap()
    };
    let config = named("", "");
    assert_eq!((config.lr_schedule.peak(), config.betas, config.weight_decay), (1e-3, (0.9, 0.999), 0.0));
    assert_eq!(config.findings.own_settings, "a warm-up of 30 steps, then a cosine");
    let config = named(r#""lr": 0.5, "weight_decay": "auto", "betas": "auto""#, "");
    assert_eq!((config.lr_schedule.peak(), config.betas, config.weight_decay), (0.5, (0.9, 0.95), 0.1));
    let own_settings = "betas 0.9 and 0.95, weight decay 0.1, a warm-up of 30 steps, then a cosine";
    assert_eq!(config.findings.own_settings, own_settings);
    assert_eq!(named(r#""torch_adam": true"#, "").weight_decay, 0.01, "PyTorch's own default");
    let flagged = named("", "--lr 0.25 --weight-decay 0.5 --warmup-steps 3");
    assert_eq!((flagged.lr_schedule.peak(), flagged.weight_decay), (0.25, 0.5));
    assert_eq!((flagged.findings.warnings, flagged.findings.own_settings.as_str()), (vec![], ""));
    let plain = named(r#""torch_adam": true, "adam_w_mode": false"#, "");
    assert_eq!(plain.weight_decay, 0.0, "PyTorch's Adam decays nothing");
    let undecayed = named(r#""adam_w_mode": false"#, "");
    assert_eq!(undecayed.findings.check(Stage::Zero3), Ok(()), "there is no decay to place");
    let decayed = named(r#""adam_w_mode": false, "weight_decay": 0.1"#, "");
    assert!(decayed.findings.check(Stage::Zero3).unwrap_err().to_string().contains("adam_w_mode"));
}

#[test]
fn an_automatic_peak_leaves_the_rate_to_this_program_and_says_so() {
    let text = r#"{"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}}"#;
    let config = json(text, "").unwrap();
    let rate = plain("").lr_schedule.peak();
    assert_eq!(config.lr_schedule.peak(), rate);
    assert_eq!(config.findings.own_settings, format!("learning rate {rate}"));
    assert_eq!(json(text, "--lr 0.5").unwrap().findings.own_settings, "");
}

#[test]
fn all_that_stands_in_the_way_is_named_at_once() {
    let text = r#"{"optimizer": {"type": "Lamb"}, "gradient_clipping": -1, "train_batch_size": 9,
        "train_micro_batch_size_per_gpu": 2, "amp": {"enabled": true}, "fp16": {"enabled": true}, "bf16": {"enabled": true},
        "zero_optimization": {"stage": 2, "zero_hpz_partition_size": 3}}"#;
    insta::assert_snapshot!(json(text, "").unwrap_err().to_string());
    let unsupported =
        r#"{"amp": {"enabled": true}, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}}"#;
    insta::assert_snapshot!("groups", json(unsupported, "--gpus 4").unwrap_err().to_string());
    let other = r#"{"amp": {"enabled": true}, "zero_optimization": {"stage": 2}}"#;
    insta::assert_snapshot!(
        "stage",
        json(other, "").unwrap().findings.check(Stage::Zero3).unwrap_err().to_string()
    );
}

#[test]
fn ranks_follow_from_the_batch_where_nothing_says_how_many() {
    let ranks = |text: &str, flags: &str| {
        json(text, flags).map(|config| (config.world_size, config.findings.warnings.len()))
    };
    let all =
        r#"{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}"#;
    let two = r#"{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 8}"#;
    assert_eq!((ranks(all, ""), ranks(two, "")), (Ok((8, 1)), Ok((1, 1))));
    assert_eq!(ranks(r#"{"train_batch_size": 8}"#, ""), Ok((4, 0)));
    let groups = r#"{"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}"#;
    assert_eq!(ranks(groups, ""), Ok((8, 1)));
    assert!(ranks(groups, "--gpus 4").unwrap_err().to_string().contains("zero_hpz_partition_size 8"));
    let both = |batch: usize, group: usize| {
        let zero = format!(r#"{{"stage": 3, "zero_hpz_partition_size": {group}}}"#);
        ranks(&format!(r#"{{"train_batch_size": {batch}, "zero_optimization": {zero}}}"#), "")
    };
    assert_eq!((both(6, 2), both(16, 8)), (Ok((2, 1)), Ok((8, 1))), "a batch breaks no group");
    assert!(both(12, 8).unwrap_err().to_string().contains("train_batch_size 12 is not"));
    for (text, remedy) in [(all, "--gpus 8 would match"), (two, "--gpus 1 would match")] {
        let error = ranks(text, "--gpus 4").unwrap_err().to_string();
        assert!(error.contains(remedy), "{error}");
    }
}

#[test]
fn a_yaml_file_may_hold_json() {
    let config = yaml(r#"{"distributed_type": "MULTI_GPU", "num_processes": 2}"#, "").unwrap();
    assert_eq!(config.world_size, 2);
}
