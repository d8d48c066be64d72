//! DeepSpeed's keys, with the equivalent flags and code of this workspace.

use super::code;
use deepspeed::keys::{Fate, Key};
use deepspeed::table::keys;
use std::path::Path;
use trainer::{Failure, Result};

/// A key, or a common prefix of several, and the code that implements it: a file and an item in it.
const PLACES: &[(&str, &str, &str)] = &[
    ("train_", "common/deepspeed/src/batch.rs", "fn settle"),
    ("gradient_accumulation_steps", "common/trainer/src/run.rs", "fn micro_batch"),
    ("gradient_clipping", "common/sharding/src/optimizer/update.rs", "fn clip"),
    ("optimizer.params.lr", "common/settings/src/lr_schedule.rs", "fn rate"),
    ("optimizer.", "common/sharding/src/optimizer/update.rs", "fn kernel"),
    ("scheduler.", "common/settings/src/lr_schedule.rs", "fn rate"),
    ("zero_optimization.stage3_prefetch_bucket_size", "common/sharding/src/window.rs", "fn next_ahead"),
    (
        "zero_optimization.stage3_param_persist",
        "common/sharding/src/partition.rs",
        "fn with_persistent_tensors",
    ),
    (
        "zero_optimization.stage3_model_persist",
        "common/sharding/src/partition.rs",
        "fn with_persistent_tensors",
    ),
    ("zero_optimization.stage3_max_live_parameters", "common/sharding/src/window.rs", "fn has_room"),
    ("zero_optimization.stage3_max_reuse_distance", "zero3/src/variants/residency.rs", "fn residency"),
    ("zero_optimization.stage", "zero3/src/lib.rs", "const SHARDED"),
    ("zero_optimization.reduce_bucket_size", "common/sharding/src/buckets.rs", "fn push"),
    ("zero_optimization.overlap_comm", "common/sharding/src/buckets.rs", "fn push"),
    ("zero_optimization.allgather_bucket_size", "zero2/src/lib.rs", "fn update"),
    ("zero_optimization.reduce_scatter", "zero1/src/lib.rs", "fn new"),
    ("zero_optimization.contiguous_gradients", "common/sharding/src/buckets.rs", "fn convert"),
    ("zero_optimization.sub_group_size", "common/sharding/src/optimizer/shard.rs", "fn update"),
    (
        "zero_optimization.zero_hpz_partition_size",
        "zero3/src/variants/secondary.rs",
        "struct SecondaryShards",
    ),
    ("zero_optimization.offload_", "common/settings/src/offload.rs", "struct OffloadArgs"),
    ("activation_checkpointing.cpu_checkpointing", "common/settings/src/offload.rs", "struct OffloadArgs"),
    ("fsdp_config.fsdp_offload_params", "common/settings/src/offload.rs", "struct OffloadArgs"),
    ("zero_optimization.mics_shard_size", "common/sharding/src/replicas.rs", "struct ReplicaSum"),
    ("fp16.enabled", "common/sharding/src/precision.rs", "struct Precision"),
    ("fp16.", "common/sharding/src/loss_scale.rs", "struct LossScaler"),
    ("bf16.enabled", "common/sharding/src/precision.rs", "struct Precision"),
    ("torch_autocast.", "common/device/src/operations/matmul.rs", "enum Rounding"),
    ("communication_data_type", "common/sharding/src/buckets.rs", "fn convert"),
    ("data_types.grad_accum_dtype", "common/trainer/src/states.rs", "fn allocate_gradients"),
    ("num_processes", "common/settings/src/config.rs", "struct Config"),
    ("fsdp_config.fsdp_auto_wrap_policy", "common/model/src/wrap.rs", "enum Wrap"),
    ("fsdp_config.fsdp_min_num_params", "common/model/src/wrap.rs", "enum Wrap"),
    ("fsdp_config.fsdp_backward_prefetch", "common/sharding/src/window.rs", "fn next_ahead"),
    (
        "fsdp_config.fsdp_activation_checkpointing_offload",
        "common/settings/src/offload.rs",
        "struct OffloadArgs",
    ),
    ("fsdp_config.fsdp_activation_checkpointing", "common/model/src/keep.rs", "enum Checkpointing"),
    ("fsdp_config.", "zero3/src/variants/residency.rs", "fn residency"),
    ("parallelism_config.", "common/sharding/src/replicas.rs", "struct ReplicaSum"),
    ("use_cpu", "common/settings/src/hardware.rs", "fn choose"),
    ("deepspeed_config.deepspeed_config_file", "common/deepspeed/src/merge.rs", "fn merge"),
];

/// Returns a table with a row for every key that changes a run.
///
/// # Errors
/// If a key has no implementation listed, or one that no longer exists.
pub(super) fn text(root: &Path) -> Result<String> {
    let honoured = keys().filter(|key| matches!(key.fate, Fate::Honoured { .. }));
    let rows = honoured.map(|key| row(root, key)).collect::<Result<String>>()?;
    Ok(format!("| key | flag | does | where |\n|---|---|---|---|\n{rows}"))
}

fn row(root: &Path, key: &Key) -> Result<String> {
    let fail = |what: &str| Failure::run(format!("translation: {}: {what}", key.path));
    let place = PLACES.iter().find(|(begins, ..)| key.path.starts_with(begins));
    let (_, file, item) = place.ok_or_else(|| fail("it has no place in the code"))?;
    let link = code::link(root, file, item).map_err(|e| fail(&e.to_string()))?;
    let flag = key.flag().map_or_else(String::new, |flag| format!("`{flag}`"));
    Ok(format!("| `{}` | {flag} | {} | {link} |\n", key.path, key.note))
}
