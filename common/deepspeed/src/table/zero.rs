//! `zero_optimization`.

use super::{count, empty, flag, from, number, off, on};
use crate::keys::Kind::{Any, Count, Flag, Number};
use crate::keys::{Auto, Key};
use crate::node::Node;
use checkpoint::ElementType;
use prediction::{Stage, Strategy};
use settings::cli::TrainArgs;
use settings::{Config, GradSync, float_type};

const GATHER_16BIT: &str = "zero_optimization.stage3_gather_16bit_weights_on_model_save";
const QUANTIZED: &str = "quantized communication (ZeRO++)";
const MICS: &str = "MiCS in two levels";

/// Makes the row of a key in `zero_optimization`.
macro_rules! zero {
    ($name:literal, $($rest:expr),+) => { Key::new(concat!("zero_optimization.", $name), $($rest),+) };
}

/// Makes the row of a number of elements. The run takes at least `$low`, as the flag `$flag` does.
macro_rules! elements {
    ($name:literal, $default:literal, $auto:expr, $flag:ident >= $low:literal, $note:literal) => {
        zero!($name, from(0), $default, $note).auto($auto).honoured(
            Some(stringify!($flag)),
            |args, value| args.communication.$flag = Some(count(value).max($low)),
            |run| run.config.communication.$flag.map(Node::count),
        )
    };
}

pub(super) static KEYS: &[Key] = &[
    zero!("stage", Count(0, 3), "0", "must match the crate; the crate's if left out").honoured(
        None,
        |args, value| args.file_only.stage = Stage::ALL.get(count(value)).copied(),
        |run| Stage::ALL.iter().position(|&stage| stage == run.stage).map(Node::count),
    ),
    elements!(
        "reduce_bucket_size",
        "5e8",
        Auto::Width(1.0, 2),
        reduce_bucket >= 1,
        "elements per reduction, 0 for a tensor at a time; the largest unit's if left out"
    ),
    zero!("reduce_scatter", Flag, "true", "false all-reduces gradients, in ZeRO-1 only").honoured(
        Some("grad_sync"),
        |args, value| {
            args.sharding.grad_sync =
                Some(if flag(value) { GradSync::ReduceScatter } else { GradSync::AllReduce })
        },
        |run| Some(Node::Flag(run.config.grad_sync == GradSync::ReduceScatter)),
    ),
    zero!(
        "contiguous_gradients",
        Flag,
        "true",
        "false copies gradients into buckets before they are reduced"
    )
    .honoured(
        Some("contiguous_gradients"),
        |args, value| args.communication.contiguous_gradients = Some(flag(value)),
        |run| Some(Node::Flag(run.config.communication.contiguous_gradients)),
    ),
    zero!(
        "overlap_comm",
        Flag,
        "true in ZeRO-3",
        "false waits for each collective where it is issued, gathers nothing ahead, and ends every update in its step"
    )
    .honoured(
        Some("no_overlap"),
        |args, value| args.communication.no_overlap = !flag(value),
        |run| Some(Node::Flag(run.config.communication.overlap)),
    ),
    zero!("allgather_partitions", Flag, "true", "DeepSpeed reads and ignores it").missed_unless(on),
    elements!(
        "allgather_bucket_size",
        "5e8",
        Auto::Flags,
        allgather_bucket >= 1,
        "elements per all-gather of updated parameters; the largest unit's if left out"
    ),
    zero!(
        "sub_group_size",
        from(0),
        "1e9",
        "elements that the optimizer updates at a time, within a unit; if left out or 0 the unit's, or 4,194,304 where states \
         are offloaded"
    )
    .auto(Auto::Flags)
    .honoured(
        Some("sub_group_size"),
        |args, value| args.communication.sub_group_size = Some(count(value)).filter(|&size| size > 0),
        |run| run.config.communication.sub_group_size.map(Node::count),
    ),
    elements!(
        "stage3_prefetch_bucket_size",
        "5e7",
        Auto::Width(0.9, 2),
        prefetch_bucket >= 0,
        "elements to gather ahead, 0 for none; one unit if left out"
    ),
    elements!(
        "stage3_param_persistence_threshold",
        "1e5",
        Auto::Width(10.0, 1),
        param_persistence_threshold >= 0,
        "tensors of at most this many elements stay whole; none if left out"
    ),
    elements!(
        "stage3_model_persistence_threshold",
        "9.2e18",
        Auto::Flags,
        model_persistence_threshold >= 0,
        "elements that may stay whole in all; no bound if left out"
    ),
    elements!(
        "stage3_max_live_parameters",
        "1e9",
        Auto::Flags,
        max_live_parameters >= 0,
        "elements gathered at once, beyond which nothing is gathered ahead or kept; no bound if left out"
    ),
    elements!(
        "stage3_max_reuse_distance",
        "1e9",
        Auto::Flags,
        max_reuse_distance >= 0,
        "keeps a unit after forward if backward needs it within this many elements; only the units that backward begins with if left out"
    ),
    Key::new(
        GATHER_16BIT,
        Flag,
        "false",
        "true saves weights in the type in which they are trained; `--save` gathers them in any case",
    )
    .auto(Auto::Flags)
    .honoured(Some("save_dtype"), saves_trained_type, |run| {
        run.stage.sharded().parameters.then_some(Node::Flag(saves_as_trained(run.config)))
    }),
    zero!("stage3_gather_fp16_weights_on_model_save", Flag, "false", "its old name")
        .means(|value| Some((GATHER_16BIT, value.clone()))),
    zero!("stage3_module_granularity_threshold", from(0), "0", "units that span modules")
        .not_yet(|value| number(value) == 0.0),
    zero!("stage3_use_all_reduce_for_fetch_params", Flag, "false", "gathering by all-reduce").not_yet(off),
    zero!(
        "zero_hpz_partition_size",
        from(0),
        "1",
        "ranks that share a second copy of the parameters (hpZ), in ZeRO-3 only; a divisor of the ranks"
    )
    .honoured(
        Some("secondary_shard_size"),
        |args, value| args.sharding.secondary_shard_size = Some(count(value)).filter(|&size| size > 1),
        |run| {
            let size = run.config.mesh.secondary_group_size().unwrap_or(1);
            run.stage.sharded().parameters.then(|| Node::count(size))
        },
    ),
    zero!("stage3_allgather_sequential", Flag, "false", "a unit is gathered as one"),
    zero!("zenflow", Any, "null", "ZenFlow's asynchronous updates").not_yet(empty),
    zero!("compute_grad_norm", Flag, "true", "the norm is always computed").missed_unless(on),
    zero!("parameter_alignment", Flag, "false", "how DeepSpeed pads its buffers"),
    zero!("enable_sanity_checks", Flag, "false", "collectives always compare what ranks ask for"),
    zero!("save_muon_momentum_buffer_in_memory", Flag, "false", "matters with Muon only"),
    zero!("leaf_module", Any, "", "units are the model's own"),
    zero!("zero_quantized_weights", Flag, "false", QUANTIZED).not_yet(off),
    zero!("zero_quantized_nontrainable_weights", Flag, "false", QUANTIZED).not_yet(off),
    zero!("zero_quantized_gradients", Flag, "false", QUANTIZED).not_yet(off),
    zero!("zeropp_loco_param", Any, "null", QUANTIZED).not_yet(empty),
    zero!(
        "mics_shard_size",
        Number(-1.0, 1e6),
        "-1",
        "MiCS: ranks that share one copy of the model states, in ZeRO-3 only; a divisor of the ranks"
    )
    .honoured(
        Some("strategy"),
        |args, value| {
            if number(value) >= 1.0 {
                args.sharding.strategy = Some(Strategy::HybridShard);
                args.sharding.shard_group_size = args.sharding.shard_group_size.or(Some(count(value)));
            }
        },
        |run| {
            let size = run.config.mesh.shard_group_size().map_or(-1.0, |size| size as f64);
            run.stage.sharded().parameters.then_some(Node::Number(size))
        },
    ),
    zero!("mics_hierarchical_params_gather", Flag, "false", MICS).not_yet(off),
    zero!(
        "round_robin_gradients",
        Flag,
        "false",
        "a rank sends its own slice of gradients to main memory, and no other"
    ),
    zero!(
        "use_multi_rank_bucket_allreduce",
        Flag,
        "true",
        "DeepSpeed all-reduces each bucket (true) or reduces it to its owners (false); here one reduce-scatter, \
         which sends half of the all-reduce"
    ),
    zero!("load_from_fp32_weights", Flag, "true", "initial weights are always read in f32"),
    zero!("elastic_checkpoint", Flag, "false", "DeepSpeed no longer reads it either"),
    zero!("ignore_unused_parameters", Flag, "true", "every parameter is used here"),
    zero!("legacy_stage1", Flag, "false", "an implementation of DeepSpeed's"),
    zero!("memory_efficient_linear", Flag, "true", "backward keeps no gathered weights here"),
    zero!("pipeline_loading_checkpoint", Flag, "false", "how DeepSpeed loads its checkpoints"),
    zero!("override_module_apply", Flag, "true", "how DeepSpeed hooks into PyTorch"),
    zero!("log_trace_cache_warnings", Flag, "false", "what DeepSpeed prints"),
];

/// Saves weights in the type in which they are trained, unless a flag names a 16-bit type.
fn saves_trained_type(args: &mut TrainArgs, value: &Node) {
    let named = args.output.format.save_dtype;
    args.file_only.saves_trained_type = flag(value) && named.is_none_or(|named| named == ElementType::F32);
}

/// True if weights are saved in the type in which they are trained, of 16 bits.
pub(crate) fn saves_as_trained(config: &Config) -> bool {
    let trained = float_type::stored(config.precision.parameters);
    config.save_format.element_type == Some(trained) && trained != ElementType::F32
}
