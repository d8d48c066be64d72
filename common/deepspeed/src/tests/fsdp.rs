//! Accelerate's `fsdp_config`.

use super::*;

fn fsdp(keys: &str, flags: &str) -> Result<Config> {
    let text =
        format!("distributed_type: FSDP\nfsdp_config:\n{keys}mixed_precision: bf16\nnum_processes: 4\n");
    File::new("fsdp.yaml", &text).config(flags)
}

#[test]
fn what_accelerate_writes_for_fsdp_says_what_flags_say() {
    let keys = "  fsdp_activation_checkpointing: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  \
                fsdp_backward_prefetch: BACKWARD_POST\n  fsdp_cpu_ram_efficient_loading: true\n  \
                fsdp_forward_prefetch: false\n  fsdp_offload_params: false\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n  \
                fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_sync_module_states: true\n  \
                fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n  fsdp_use_orig_params: true\n";
    let config = fsdp(keys, "").unwrap();
    assert_eq!(config.findings.warnings, [""; 0]);
    assert_eq!(config.findings.check(Stage::Zero3), Ok(()));
    let flags = "--checkpoint-activations block --backward-prefetch post --strategy shard-grad-op --precision bf16 \
         --grad-dtype fp32 --reduce-dtype bf16";
    let forget = |config| Config { findings: Findings::default(), ..config };
    assert_eq!(format!("{:?}", forget(config)), format!("{:?}", plain(flags)));
}

#[test]
fn strategies_and_units_of_fsdp() {
    for (keys, strategy, mesh) in [
        ("  fsdp_sharding_strategy: 1\n", "full-shard", MeshShape::World),
        ("  fsdp_sharding_strategy: NO_SHARD\n", "no-shard", MeshShape::World),
        ("  fsdp_sharding_strategy: HYBRID_SHARD\n", "hybrid-shard", MeshShape::Hybrid(4)),
        ("  fsdp_reshard_after_forward: true\n  fsdp_version: 2\n", "full-shard", MeshShape::World),
        ("  fsdp_reshard_after_forward: false\n  fsdp_version: 2\n", "shard-grad-op", MeshShape::World),
    ] {
        let config = fsdp(keys, "").unwrap();
        assert_eq!(
            (config.strategy.map(prediction::Strategy::label), config.mesh),
            (Some(strategy), mesh),
            "{keys}"
        );
    }
    let grouped = fsdp("  fsdp_sharding_strategy: HYBRID_SHARD\n", "--shard-group-size 2").unwrap();
    assert_eq!(grouped.mesh, MeshShape::Hybrid(2));
    for (keys, flags, wrap) in [
        ("  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n", "", "size:100000000"),
        ("  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 5e4\n", "", "size:50000"),
        ("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_min_num_params: 5e4\n", "", "block"),
        ("  fsdp_auto_wrap_policy: NO_WRAP\n", "", "model"),
        ("  fsdp_auto_wrap_policy: NO_WRAP\n  fsdp_min_num_params: 7\n", "--wrap size:9", "size:9"),
    ] {
        assert_eq!(fsdp(keys, flags).unwrap().wrap.to_string(), wrap, "{keys}");
    }
}

#[test]
fn a_size_of_units_changes_nothing_without_a_policy() {
    let warnings = |keys: &str| fsdp(keys, "").unwrap().findings.warnings;
    let [warning] = &*warnings("  fsdp_min_num_params: 5e4\n") else { panic!("one warning") };
    assert!(warning.contains("fsdp_min_num_params") && warning.contains("SIZE_BASED_WRAP"), "{warning}");
    assert_eq!(warnings("  fsdp_min_num_params: 0\n"), [""; 0]);
}

/// Without a count of processes per machine, a launcher's processes count as one on each.
#[test]
fn hybrid_sharding_needs_a_group_where_no_machine_is_known() {
    let groups = |here: Option<usize>, gpus: usize| {
        let file = File::new(
            "a.yaml",
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n",
        );
        let words = ["zero", "--config", file.path.to_str().unwrap()];
        let mut args = Cli::try_parse_from(words).unwrap().train;
        (args.on_this_machine, args.gpus) = (here, gpus);
        configure(args).map(|config| config.mesh)
    };
    assert_eq!(groups(Some(2), 4).unwrap(), MeshShape::Hybrid(2));
    assert_eq!(groups(None, 4).unwrap(), MeshShape::Hybrid(4));
    let error = groups(Some(1), 4).unwrap_err().to_string();
    assert!(error.contains("--shard-group-size"), "{error}");
}

/// Version 1 reads the strategy, version 2 whether units are freed after forward. Both shard fully
/// unless their own key says otherwise.
#[test]
fn each_version_of_fsdp_reads_its_own_key() {
    let found = |keys: &str| {
        let config = fsdp(keys, "").unwrap();
        (config.strategy.map(prediction::Strategy::label), config.findings.warnings)
    };
    for (version, unread, read) in [
        (2, "fsdp_sharding_strategy: SHARD_GRAD_OP", "reshard"),
        (1, "fsdp_reshard_after_forward: false", "strategy"),
    ] {
        let (strategy, warnings) = found(&format!("  fsdp_version: {version}\n  {unread}\n"));
        assert_eq!(strategy, Some("full-shard"), "{unread}");
        let [warning] = &*warnings else { panic!("{warnings:?}") };
        assert!(warning.contains(unread.split(':').next().unwrap()) && warning.contains(read), "{warning}");
    }
    let both = "  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_reshard_after_forward: true\n";
    assert_eq!(found(both), (Some("shard-grad-op"), vec![]));
}

/// Units are gathered and gradients reduced in 16 bits; a rank keeps fp32.
#[test]
fn fsdp_adds_up_gradients_in_fp32() {
    let precision = |flags: &str| fsdp("  fsdp_version: 2\n", flags).unwrap().precision;
    let bf16 = device::DType::Bf16;
    let expected =
        sharding::Precision { gradients: device::DType::F32, ..sharding::Precision::uniform(bf16) };
    assert_eq!(precision(""), expected);
    assert_eq!(precision("--grad-dtype bf16").gradients, bf16);
}

#[test]
fn what_fsdp_has_and_is_not_here_names_its_key() {
    let error = fsdp("  fsdp_sharding_strategy: HYBRID_SHARD_ZERO2\n", "").unwrap_err().to_string();
    assert!(
        error.contains("fsdp_config.fsdp_sharding_strategy") && error.contains("HYBRID_SHARD"),
        "{error}"
    );
}

/// As YAML reads them.
#[test]
fn other_words_for_truth_values_count() {
    for (word, strategy) in [("no", "shard-grad-op"), ("off", "shard-grad-op"), ("yes", "full-shard")] {
        let config = fsdp(&format!("  fsdp_reshard_after_forward: {word}\n  fsdp_version: 2\n"), "").unwrap();
        assert_eq!(config.strategy.map(prediction::Strategy::label), Some(strategy), "{word}");
    }
}

/// In that case Accelerate wraps nothing.
#[test]
fn units_of_no_size_are_one_unit() {
    let keys = "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 0\n";
    assert_eq!(fsdp(keys, "").unwrap().wrap, model::Wrap::Model);
}

/// PyTorch's scaler halves at the first overflow, and doubles after 2,000 steps.
#[test]
fn without_deepspeed_the_loss_scale_is_pytorchs() {
    for kind in ["FSDP", "MULTI_GPU", "DEEPSPEED"] {
        let file = File::new("a.yaml", &format!("distributed_type: {kind}\nmixed_precision: fp16\n"));
        let scaling = |flags: &str| file.config(flags).unwrap().loss_scaling.unwrap();
        let found = (scaling("").hysteresis, scaling("").window);
        assert_eq!(found, if kind == "DEEPSPEED" { (2, 1000) } else { (1, 2000) }, "{kind}");
        let typed = scaling("--hysteresis 3 --loss-scale-window 7");
        assert_eq!((typed.hysteresis, typed.window), (3, 7), "{kind}");
    }
}

#[test]
fn state_dicts_of_fsdp() {
    for kind in ["FULL_STATE_DICT", "SHARDED_STATE_DICT", "sharded_state_dict", "1", "3"] {
        let config = fsdp(&format!("  fsdp_state_dict_type: {kind}\n"), "").unwrap();
        assert_eq!(
            (config.findings.check(Stage::Zero3), config.findings.warnings),
            (Ok(()), vec![]),
            "{kind}"
        );
    }
    for kind in ["LOCAL_STATE_DICT", "2"] {
        let config = fsdp(&format!("  fsdp_state_dict_type: {kind}\n"), "").unwrap();
        let error = config.findings.check(Stage::Zero3).unwrap_err().to_string();
        for word in ["fsdp_state_dict_type", kind, "`--checkpoint`", "one number of ranks"] {
            assert!(error.contains(word), "{word:?} is missing\n{error}");
        }
    }
    let unknown = fsdp("  fsdp_state_dict_type: WHOLE\n", "").unwrap_err().to_string();
    assert!(unknown.contains("FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT"), "{unknown}");
}

/// FSDP's hybrid sharding is within a machine: of four ranks, two are here.
#[test]
fn hybrid_sharding_is_among_the_ranks_of_a_machine() {
    let yaml = "fsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\nnum_processes: 4\n";
    let file = File::new("fsdp.yaml", yaml);
    let path = file.path.display().to_string();
    let args =
        Cli::try_parse_from(["zero", "--device", "cpu", "--gpus", "4", "--config", &path]).unwrap().train;
    let mesh = |on_this_machine| {
        configure(settings::cli::TrainArgs { on_this_machine, ..args.clone() }).unwrap().mesh
    };
    assert_eq!((mesh(None), mesh(Some(2))), (MeshShape::Hybrid(4), MeshShape::Hybrid(2)));
}
