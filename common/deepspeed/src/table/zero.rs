//! `zero_optimization`.

use super::{count, empty, flag, from, number, off, on};
use crate::keys::Kind::{Any, Count, Flag, Number};
use crate::keys::{Auto, Key};
use crate::node::Node;
use checkpoint::ElementType;
use planner::{Stage, Strategy};
use settings::cli::TrainArgs;
use settings::{Config, GradSync, float_type};

const GATHER_16BIT: &str = "zero_optimization.stage3_gather_16bit_weights_on_model_save";
const QUANTIZED: &str = "quantized communication (ZeRO++)";
const MICS: &str = "MiCS in two levels";

pub(super) static KEYS: &[Key] = &[
    Key::new("zero_optimization.stage", Count(0, 3), "0", "must match the crate; the crate's if left out")
        .honoured(
            None,
            |args, value| args.file_only.stage = Stage::ALL.get(count(value)).copied(),
            |run| Stage::ALL.iter().position(|&stage| stage == run.stage).map(Node::count),
        ),
    Key::new(
        "zero_optimization.reduce_bucket_size",
        from(0),
        "5e8",
        "elements per reduction, 0 for a tensor at a time; the largest unit's if left out",
    )
    .auto(Auto::Width(1.0, 2))
    .honoured(
        Some("reduce_bucket"),
        |args, value| args.communication.reduce_bucket = Some(count(value).max(1)),
        |run| run.config.communication.reduce_bucket.map(Node::count),
    ),
    Key::new("zero_optimization.reduce_scatter", Flag, "true", "false all-reduces gradients, in ZeRO-1 only")
        .honoured(
            Some("grad_sync"),
            |args, value| {
                args.sharding.grad_sync =
                    Some(if flag(value) { GradSync::ReduceScatter } else { GradSync::AllReduce })
            },
            |run| Some(Node::Flag(run.config.grad_sync == GradSync::ReduceScatter)),
        ),
    Key::new(
        "zero_optimization.contiguous_gradients",
        Flag,
        "true",
        "false copies gradients into buckets before they are reduced",
    )
    .honoured(
        Some("contiguous_gradients"),
        |args, value| args.communication.contiguous_gradients = Some(flag(value)),
        |run| Some(Node::Flag(run.config.communication.contiguous_gradients)),
    ),
    Key::new(
        "zero_optimization.overlap_comm",
        Flag,
        "true in ZeRO-3",
        "false waits for every collective at once and gathers nothing ahead",
    )
    .honoured(
        Some("no_overlap"),
        |args, value| args.communication.no_overlap = !flag(value),
        |run| Some(Node::Flag(run.config.communication.overlap)),
    ),
    Key::new("zero_optimization.allgather_partitions", Flag, "true", "broadcasts in place of all-gathers")
        .not_yet(on),
    Key::new(
        "zero_optimization.allgather_bucket_size",
        from(0),
        "5e8",
        "elements per all-gather of updated parameters; the largest unit's if left out",
    )
    .auto(Auto::Flags)
    .honoured(
        Some("allgather_bucket"),
        |args, value| args.communication.allgather_bucket = Some(count(value).max(1)),
        |run| run.config.communication.allgather_bucket.map(Node::count),
    ),
    Key::new(
        "zero_optimization.sub_group_size",
        from(0),
        "1e9",
        "elements that the optimizer updates at a time, within a unit; the unit's if left out or 0",
    )
    .auto(Auto::Flags)
    .honoured(
        Some("sub_group_size"),
        |args, value| args.communication.sub_group_size = Some(count(value)).filter(|&size| size > 0),
        |run| run.config.communication.sub_group_size.map(Node::count),
    ),
    Key::new(
        "zero_optimization.stage3_prefetch_bucket_size",
        from(0),
        "5e7",
        "elements to gather ahead, 0 for none; one unit if left out",
    )
    .auto(Auto::Width(0.9, 2))
    .honoured(
        Some("prefetch_bucket"),
        |args, value| args.communication.prefetch_bucket = Some(count(value)),
        |run| run.config.communication.prefetch_bucket.map(Node::count),
    ),
    Key::new(
        "zero_optimization.stage3_param_persistence_threshold",
        from(0),
        "1e5",
        "tensors of at most so many elements stay whole; none if left out",
    )
    .auto(Auto::Width(10.0, 1))
    .honoured(
        Some("param_persistence_threshold"),
        |args, value| args.communication.param_persistence_threshold = Some(count(value)),
        |run| run.config.communication.param_persistence_threshold.map(Node::count),
    ),
    Key::new(
        "zero_optimization.stage3_model_persistence_threshold",
        from(0),
        "9.2e18",
        "elements that may stay whole in all; no bound if left out",
    )
    .auto(Auto::Flags)
    .honoured(
        Some("model_persistence_threshold"),
        |args, value| args.communication.model_persistence_threshold = Some(count(value)),
        |run| run.config.communication.model_persistence_threshold.map(Node::count),
    ),
    Key::new(
        "zero_optimization.stage3_max_live_parameters",
        from(0),
        "1e9",
        "elements gathered at once, beyond which nothing is gathered ahead or kept; no bound if left out",
    )
    .auto(Auto::Flags)
    .honoured(
        Some("max_live_parameters"),
        |args, value| args.communication.max_live_parameters = Some(count(value)),
        |run| run.config.communication.max_live_parameters.map(Node::count),
    ),
    Key::new(
        "zero_optimization.stage3_max_reuse_distance",
        from(0),
        "1e9",
        "keeps after forward what backward needs within so many elements; its first unit if left out",
    )
    .auto(Auto::Flags)
    .honoured(
        Some("max_reuse_distance"),
        |args, value| args.communication.max_reuse_distance = Some(count(value)),
        |run| run.config.communication.max_reuse_distance.map(Node::count),
    ),
    Key::new(
        GATHER_16BIT,
        Flag,
        "false",
        "true saves weights in the type in which they are trained; `--save` gathers them in any case",
    )
    .auto(Auto::Flags)
    .honoured(Some("save_dtype"), saves_trained_type, |run| {
        let Config { save_format, precision, .. } = run.config;
        let trained = float_type::stored(precision.parameters);
        let gathers_16bit = save_format.element_type == Some(trained) && trained != ElementType::F32;
        run.stage.sharded().parameters.then_some(Node::Flag(gathers_16bit))
    }),
    Key::new("zero_optimization.stage3_gather_fp16_weights_on_model_save", Flag, "false", "its old name")
        .means(|value| Some((GATHER_16BIT, value.clone()))),
    Key::new(
        "zero_optimization.stage3_module_granularity_threshold",
        from(0),
        "0",
        "units that span modules",
    )
    .not_yet(|value| number(value) == 0.0),
    Key::new(
        "zero_optimization.stage3_use_all_reduce_for_fetch_params",
        Flag,
        "false",
        "gathering by all-reduce",
    )
    .not_yet(off),
    Key::new(
        "zero_optimization.zero_hpz_partition_size",
        from(0),
        "1",
        "ranks that share a second copy of the parameters (hpZ), in ZeRO-3 only; a divisor of the ranks",
    )
    .honoured(
        Some("secondary_shard_size"),
        |args, value| args.sharding.secondary_shard_size = Some(count(value)).filter(|&size| size > 1),
        |run| {
            let size = run.config.mesh.secondary().unwrap_or(1);
            run.stage.sharded().parameters.then(|| Node::count(size))
        },
    ),
    Key::new("zero_optimization.stage3_allgather_sequential", Flag, "false", "a unit is gathered as one"),
    Key::new("zero_optimization.zenflow", Any, "null", "ZenFlow's asynchronous updates").not_yet(empty),
    Key::new("zero_optimization.compute_grad_norm", Flag, "true", "the norm is always computed")
        .missed_unless(on),
    Key::new("zero_optimization.parameter_alignment", Flag, "false", "how DeepSpeed pads its buffers"),
    Key::new(
        "zero_optimization.enable_sanity_checks",
        Flag,
        "false",
        "collectives always compare what ranks ask for",
    ),
    Key::new(
        "zero_optimization.save_muon_momentum_buffer_in_memory",
        Flag,
        "false",
        "matters with Muon only",
    ),
    Key::new("zero_optimization.leaf_module", Any, "", "units are the model's own"),
    Key::new("zero_optimization.zero_quantized_weights", Flag, "false", QUANTIZED).not_yet(off),
    Key::new("zero_optimization.zero_quantized_nontrainable_weights", Flag, "false", QUANTIZED).not_yet(off),
    Key::new("zero_optimization.zero_quantized_gradients", Flag, "false", QUANTIZED).not_yet(off),
    Key::new("zero_optimization.zeropp_loco_param", Any, "null", QUANTIZED).not_yet(empty),
    Key::new(
        "zero_optimization.mics_shard_size",
        Number(-1.0, 1e6),
        "-1",
        "MiCS: ranks that share one copy of the model states, in ZeRO-3 only; a divisor of the ranks",
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
            let size = run.config.mesh.shard_group().map_or(-1.0, |size| size as f64);
            run.stage.sharded().parameters.then_some(Node::Number(size))
        },
    ),
    Key::new("zero_optimization.mics_hierarchical_params_gather", Flag, "false", MICS).not_yet(off),
    Key::new(
        "zero_optimization.round_robin_gradients",
        Flag,
        "false",
        "a rank sends its own slice of gradients to main memory, and no other",
    ),
    Key::new(
        "zero_optimization.use_multi_rank_bucket_allreduce",
        Flag,
        "true",
        "one reduce-scatter does it here",
    ),
    Key::new(
        "zero_optimization.load_from_fp32_weights",
        Flag,
        "true",
        "initial weights are always read in f32",
    ),
    Key::new("zero_optimization.elastic_checkpoint", Flag, "false", "DeepSpeed no longer reads it either"),
    Key::new("zero_optimization.ignore_unused_parameters", Flag, "true", "every parameter is used here"),
    Key::new("zero_optimization.legacy_stage1", Flag, "false", "an implementation of DeepSpeed's"),
    Key::new(
        "zero_optimization.memory_efficient_linear",
        Flag,
        "true",
        "backward keeps no gathered weights here",
    ),
    Key::new(
        "zero_optimization.pipeline_loading_checkpoint",
        Flag,
        "false",
        "how DeepSpeed loads its checkpoints",
    ),
    Key::new("zero_optimization.override_module_apply", Flag, "true", "how DeepSpeed hooks into PyTorch"),
    Key::new("zero_optimization.log_trace_cache_warnings", Flag, "false", "what DeepSpeed prints"),
];

/// Saves weights in the type in which they are trained, unless a flag names a 16-bit type.
fn saves_trained_type(args: &mut TrainArgs, value: &Node) {
    let named = args.output.format.save_dtype;
    args.file_only.saves_trained_type = flag(value) && named.is_none_or(|named| named == ElementType::F32);
}
