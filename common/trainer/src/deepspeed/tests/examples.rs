//! Configurations as tutorials print them, unchanged but for Python's `True`, and what each leads to.

use super::*;

/// Title, name of the file, text.
const EXAMPLES: &[(&str, &str, &str)] = &[
    (
        "stage 3 with both offloads and fp16",
        "a.json",
        r#"{"train_batch_size": 32, "gradient_accumulation_steps": 4,
            "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
            "fp16": {"enabled": true}}"#,
    ),
    (
        "ZeRO-Infinity",
        "a.json",
        r#"{"zero_optimization": {"stage": 3,
            "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"},
            "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}}}"#,
    ),
    (
        "Accelerate, stage 2, every key commented",
        "zero2.yaml",
        "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  deepspeed_multinode_launcher: standard\n  \
         zero3_init_flag: false\n  zero_stage: 2  # ZeRO-2\n\n  # Optimizer state partitioning\n  \
         offload_optimizer_device: none  # Keep optimizer on GPU\n\n  # Gradient partitioning\n  \
         gradient_accumulation_steps: 4\n  gradient_clipping: 1.0\n\n  # Communication optimization\n  \
         overlap_comm: true  # Overlap communication with computation\n  \
         reduce_scatter: true  # Use reduce-scatter instead of all-reduce\n\n  # Memory optimization\n  \
         allgather_bucket_size: 5e8\n  reduce_bucket_size: 5e8\n\ndistributed_type: DEEPSPEED\n",
    ),
    (
        "Accelerate, stage 3",
        "zero3.yaml",
        "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 3  # ZeRO-3\n\n  \
         # Parameter partitioning\n  stage3_prefetch_bucket_size: 5e8\n  stage3_param_persistence_threshold: 1e6\n  \
         stage3_gather_16bit_weights_on_model_save: true\n\n  # Offloading (optional)\n  \
         offload_optimizer_device: none  # Can use \"cpu\" to save GPU memory\n  \
         offload_param_device: none  # Can use \"cpu\" for even larger models\n\n  # Communication optimization\n  \
         overlap_comm: true\n  stage3_max_live_parameters: 1e9\n  stage3_max_reuse_distance: 1e9\n\n\
         distributed_type: DEEPSPEED\n",
    ),
    (
        "Accelerate, stage 2 on 8 in bf16",
        "zero2_config.yaml",
        "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 4\n  \
         gradient_clipping: 1.0\n  overlap_comm: true\ndistributed_type: DEEPSPEED\nnum_processes: 8\nmachine_rank: 0\n\
         num_machines: 1\nmixed_precision: bf16\n",
    ),
    (
        "Accelerate, stage 3 on 8 in bf16",
        "zero3_config.yaml",
        "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 3\n  stage3_prefetch_bucket_size: 5e8\n  \
         stage3_param_persistence_threshold: 1e6\n  overlap_comm: true\n  offload_optimizer_device: none\n\
         distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\n",
    ),
    (
        "pitfall: stage 3 with no bucket sizes",
        "a.yaml",
        "deepspeed_config:\n  zero_stage: 3\n  # No bucket size configuration\n",
    ),
    (
        "pitfall: bucket sizes",
        "a.yaml",
        "deepspeed_config:\n  zero_stage: 3\n  stage3_prefetch_bucket_size: 5e8  # Tune for your model\n  \
         allgather_bucket_size: 5e8\n  reduce_bucket_size: 5e8\n",
    ),
    ("pitfall: zero_stage by itself", "a.yaml", "zero_stage: 3  # Overkill!\n"),
    (
        "pitfall: gathering before saving, outside its section",
        "a.yaml",
        "zero_stage: 3\nstage3_gather_16bit_weights_on_model_save: true  # Gather before saving\n",
    ),
    (
        "pitfall: offloading, outside its section",
        "a.yaml",
        "offload_optimizer_device: cpu\noffload_optimizer_nvme_path: /nvme/offload  # Fast NVMe required\n",
    ),
    ("pitfall: accumulation", "a.yaml", "gradient_accumulation_steps: 8\n"),
    (
        "stage 2, advanced",
        "a.json",
        r#"{"zero_optimization": {"stage": 2, "overlap_comm": true, "contiguous_gradients": true,
            "allgather_bucket_size": 5e8, "reduce_bucket_size": 5e8, "allreduce_bucket_size": 5e8}}"#,
    ),
    (
        "prefetching, outside its section",
        "a.json",
        r#"{"stage3_prefetch_bucket_size": "auto", "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9}"#,
    ),
    (
        "stage 3, full",
        "a.json",
        r#"{"zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true,
            "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
            "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true}}"#,
    ),
    (
        "offloading the optimizer to the CPU",
        "a.json",
        r#"{"zero_optimization": {"stage": 2,
            "offload_optimizer": {"device": "cpu", "pin_memory": true, "buffer_count": 4, "fast_init": false}}}"#,
    ),
    (
        "offloading to NVMe",
        "a.json",
        r#"{"zero_optimization": {"stage": 3,
            "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "pin_memory": true, "buffer_count": 4,
                "max_in_cpu": 1e9},
            "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "pin_memory": true, "buffer_count": 5,
                "max_in_cpu": 1e9}}}"#,
    ),
    ("bf16", "a.json", r#"{ "bf16": { "enabled": true, "loss_scale": 0 } }"#),
    (
        "fp16",
        "a.json",
        r#"{"fp16": { "enabled": true, "loss_scale": 0, "loss_scale_window": 1000,
            "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1 }}"#,
    ),
];

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
            "runs: {stage}, {} ranks × {} × {} sequences, clip {}\n  {:?}\n",
            config.world_size,
            config.micro_batches,
            config.batch_size,
            config.max_grad_norm,
            config.communication,
        ),
    });
    lines
}

#[test]
fn what_the_examples_lead_to() {
    let outcomes = EXAMPLES.iter().map(|(title, name, text)| format!("## {title}\n{}", outcome(name, text)));
    insta::assert_snapshot!(outcomes.collect::<Vec<_>>().join("\n"));
}

#[test]
fn only_offloading_keeps_examples_from_running() {
    for (title, name, text) in EXAMPLES {
        let config = File::new(name, text).config("").unwrap();
        for missing in &config.findings.missing {
            assert!(missing.path.contains("offload"), "{title}: {}", missing.path);
        }
    }
}

#[test]
fn loss_scaling_of_a_file_is_idle_in_another_precision() {
    let (_, name, text) = EXAMPLES[EXAMPLES.len() - 1];
    let scaled = File::new(name, text).config("").unwrap();
    assert_eq!(scaled.loss_scaling.map(|scaling| scaling.window), Some(1000));
    let config = File::new(name, text).config("--precision fp32").unwrap();
    assert_eq!(config.loss_scaling, None);
    let [warning] = config.findings.warnings.as_slice() else { panic!("{:?}", config.findings.warnings) };
    assert!(warning.contains("fp16.enabled") && warning.contains("--precision"), "{warning}");
}

#[test]
fn accumulation_given_twice_is_named_in_a_warning() {
    let config =
        File::new("zero2_config.yaml", EXAMPLES[4].2).config("--grad-accum 8 --batch-size 4").unwrap();
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
