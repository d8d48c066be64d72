//! FSDP's arguments, with the equivalent stages, flags and code of this workspace.

use super::code;
use prediction::Stage;
use std::path::Path;
use trainer::{Failure, Result};

/// PyTorch's name for a feature, its name in DeepSpeed or elsewhere, how to enable it here, and its
/// implementation: a file and an item in it.
type Row = (&'static str, &'static str, Here, (&'static str, &'static str));

/// The way to enable a feature here.
enum Here {
    /// A program with flags: one entry per alternative.
    Flags(Stage, &'static [&'static str]),
    /// No flag is needed.
    Always(&'static str),
}

use Here::{Always, Flags};
use Stage::{Ddp, Zero3};

const ROWS: &[Row] = &[
    ("`NO_SHARD`", "DDP", Flags(Ddp, &[""]), ("zero0-ddp/src/lib.rs", "struct Ddp")),
    (
        "`SHARD_GRAD_OP`, FSDP2's `reshard_after_forward=False`",
        "between 2 and 3",
        Flags(Zero3, &["--strategy shard-grad-op"]),
        ("zero3/src/variants/residency.rs", "fn residency"),
    ),
    ("`FULL_SHARD`", "ZeRO-3", Flags(Zero3, &[""]), ("zero3/src/lib.rs", "fn gather")),
    (
        "`HYBRID_SHARD`",
        "ZeRO-3 within groups, copies across; MiCS",
        Flags(Zero3, &["--strategy hybrid-shard --shard-group-size 2"]),
        ("common/sharding/src/replicas.rs", "struct ReplicaSum"),
    ),
    (
        "`auto_wrap_policy`, one `fully_shard` per module",
        "a unit",
        Flags(Zero3, &["--wrap block", "--wrap module", "--wrap size:100000"]),
        ("common/model/src/wrap.rs", "enum Wrap"),
    ),
    (
        "`BACKWARD_PRE`, `BACKWARD_POST`",
        "`stage3_prefetch_bucket_size`",
        Flags(Zero3, &["--backward-prefetch pre", "--backward-prefetch post"]),
        ("zero3/src/lib.rs", "fn acquire"),
    ),
    (
        "`limit_all_gathers`",
        "`stage3_max_live_parameters`",
        Flags(Zero3, &["--limit-all-gathers 2", "--max-live-parameters 500000"]),
        ("common/sharding/src/window.rs", "fn has_room"),
    ),
    (
        "`reshard_after_forward=N`",
        "hpZ",
        Flags(Zero3, &["--secondary-shard-size 2"]),
        ("zero3/src/variants/secondary.rs", "struct SecondaryShards"),
    ),
    (
        "`MixedPrecision(param_dtype, reduce_dtype)`",
        "`bf16`, `grad_accum_dtype` fp32, `communication_data_type`",
        Flags(Zero3, &["--precision bf16 --grad-dtype fp32 --reduce-dtype bf16"]),
        ("common/sharding/src/precision.rs", "struct Precision"),
    ),
    (
        "`clip_grad_norm_` of the FSDP module",
        "`gradient_clipping`",
        Flags(Zero3, &["--max-grad-norm 1"]),
        ("common/sharding/src/norm.rs", "fn global_norm"),
    ),
    (
        "`FULL_STATE_DICT`",
        "`stage3_gather_16bit_weights_on_model_save`",
        Flags(Zero3, &["--save out", "--save out --save-dtype bf16"]),
        ("common/trainer/src/run/weights.rs", "fn save_weights"),
    ),
    (
        "`SHARDED_STATE_DICT`",
        "`save_checkpoint`",
        Flags(Zero3, &["--checkpoint kept"]),
        ("common/trainer/src/run/weights.rs", "fn save_checkpoint"),
    ),
    (
        "`sync_module_states`",
        "",
        Always("no broadcast: ranks compare a hash of their weights, and a difference is an error"),
        ("common/trainer/src/run/weights.rs", "fn agree_on_start"),
    ),
    (
        "`CPUOffload`, FSDP2's `CPUOffloadPolicy`",
        "`offload_optimizer` and `offload_param`",
        Flags(Zero3, &["--offload-optimizer cpu --offload-parameters cpu"]),
        ("common/settings/src/offload.rs", "struct OffloadArgs"),
    ),
    (
        "DDP's `bucket_cap_mb` (`25 MiB`)",
        "`reduce_bucket_size` (elements)",
        Flags(Ddp, &["--reduce-bucket 200000"]),
        ("common/sharding/src/buckets.rs", "fn push"),
    ),
    (
        "DDP's `no_sync`",
        "`gradient_accumulation_steps`",
        Flags(Ddp, &["--grad-accum 4"]),
        ("zero0-ddp/src/lib.rs", "fn reduce"),
    ),
];

/// Returns the table.
///
/// # Errors
/// If a flag or an implementation no longer exists.
pub(super) fn text(root: &Path) -> Result<String> {
    let mut text = String::from("| FSDP | ZeRO | here | where |\n|---|---|---|---|\n");
    for (theirs, zero, here, (file, item)) in ROWS {
        let place = code::link(root, file, item)?;
        text += &format!("| {theirs} | {zero} | {} | {place} |\n", said(here)?);
    }
    Ok(text)
}

/// Returns the table cell that says how to enable the feature, if the program accepts the flags.
fn said(here: &Here) -> Result<String> {
    match here {
        Always(words) => Ok((*words).into()),
        Flags(stage, ways) => {
            ways.iter().try_for_each(|flags| {
                let parsed = stages::config(&format!("--gpus 4 {flags}"));
                parsed.map(drop).map_err(|e| Failure::run(format!("fsdp: {flags}: {e}")))
            })?;
            let way = |flags: &&str| format!("`{} {flags}`", stage.package()).replace(" `", "`");
            Ok(ways.iter().map(way).collect::<Vec<_>>().join(", "))
        }
    }
}
