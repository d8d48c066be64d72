//! Activation checkpointing, and DeepSpeed's other keys.

use super::{disabled, empty, flag, from, number, off, switched_off};
use crate::keys::Key;
use crate::keys::Kind::{Any, Choice, Flag, Number};
use crate::node::Node;
use events::Place;
use model::Checkpointing;
use settings::cli::TrainArgs;

const CHECKPOINTING: &str = "the section arranges checkpoints that the model's code makes and switches none on; `--checkpoint-activations block` does";
const SHOWN: &str = "the screen, the closing tables and `--report` show it";

pub(super) static KEYS: &[Key] = &[
    Key::new(
        "activation_checkpointing.cpu_checkpointing",
        Flag,
        "false",
        "true keeps each block's input alone, in main memory",
    )
    .honoured(Some("offload_activations"), checkpoint_in_main_memory, |run| {
        Some(Node::Flag(run.config.offload.activations == Place::Host))
    }),
    Key::new("activation_checkpointing.partition_activations", Flag, "false", CHECKPOINTING)
        .missed_unless(off),
    Key::new("activation_checkpointing.contiguous_memory_optimization", Flag, "false", CHECKPOINTING)
        .missed_unless(off),
    Key::new("activation_checkpointing.number_checkpoints", from(0), "null", CHECKPOINTING)
        .missed_unless(|value| number(value) == 0.0),
    Key::new("activation_checkpointing.synchronize_checkpoint_boundary", Flag, "false", CHECKPOINTING)
        .missed_unless(off),
    Key::new("activation_checkpointing.profile", Flag, "false", CHECKPOINTING).missed_unless(off),
    Key::new("steps_per_print", Number(0.0, f64::MAX), "null", SHOWN),
    Key::new("wall_clock_breakdown", Flag, "false", SHOWN).missed_unless(off),
    Key::new("memory_breakdown", Flag, "false", SHOWN).missed_unless(off),
    Key::new("dump_state", Flag, "false", "`--print-config` shows it").missed_unless(off),
    Key::new("flops_profiler", Any, "", SHOWN).missed_unless(switched_off),
    Key::new("comms_logger", Any, "", SHOWN).missed_unless(switched_off),
    Key::new("tensorboard", Any, "", SHOWN).missed_unless(switched_off),
    Key::new("wandb", Any, "", SHOWN).missed_unless(switched_off),
    Key::new("comet", Any, "", SHOWN).missed_unless(switched_off),
    Key::new("csv_monitor", Any, "", SHOWN).missed_unless(switched_off),
    Key::new("monitor_config", Any, "", SHOWN).missed_unless(switched_off),
    Key::new("log_level", Any, "", "what DeepSpeed prints"),
    Key::new(
        "vocabulary_size",
        from(1),
        "null",
        "DeepSpeed uses it for warnings only; the model has its own",
    ),
    Key::new("graph_harvesting", Flag, "false", "CUDA graphs of DeepSpeed's bf16 optimizer")
        .missed_unless(off),
    Key::new("dataloader_drop_last", Flag, "false", "batches are always whole here"),
    Key::new("zero_allow_untested_optimizer", Flag, "false", "the one optimizer here is tested"),
    Key::new(
        "zero_force_ds_cpu_optimizer",
        Flag,
        "true",
        "the CPU updates what is offloaded, with the one optimizer here",
    ),
    Key::new("disable_allgather", Flag, "false", "DeepSpeed reads and ignores it"),
    Key::new("prescale_gradients", Flag, "false", "the loss is divided before backward, always"),
    Key::new(
        "gradient_predivide_factor",
        Number(0.0, f64::MAX),
        "1.0",
        "matters for rounding only, without prescale_gradients",
    ),
    Key::new(
        "gradient_allreduce_op",
        Choice(&["mean", "sum"]),
        "\"mean\"",
        "gradients that are summed over ranks",
    )
    .not_yet(|value| value.as_text().is_some_and(|text| text.eq_ignore_ascii_case("mean"))),
    Key::new("expert_parallel", Any, "", "experts: the models here have none").not_yet(disabled),
    Key::new("use_data_before_expert_parallelism", Flag, "false", "experts: the models here have none"),
    Key::new("disable_python_gc", Flag, "false", "there is no Python here"),
    Key::new("managed_gradient_accumulation", Flag, "true", "micro-batches always accumulate by themselves"),
    Key::new("timers", Any, "", SHOWN),
    Key::new("sparse_gradients", Flag, "false", "sparse embedding gradients").not_yet(off),
    Key::new(
        "checkpoint",
        Any,
        "",
        "how DeepSpeed writes its checkpoints; `--checkpoint` saves one, `--save` the weights",
    )
    .missed_unless(empty),
    Key::new(
        "nebula",
        Any,
        "",
        "where DeepSpeed writes its checkpoints; `--checkpoint` saves one, `--save` the weights",
    )
    .missed_unless(switched_off),
    Key::new("hybrid_engine", Any, "", "generating while training").not_yet(disabled),
    Key::new("elasticity", Any, "", "a batch that follows the number of GPUs").not_yet(disabled),
    Key::new("autotuning", Any, "", "a search for the best settings").not_yet(disabled),
    Key::new("sparse_attention", Any, "", "sparse attention").not_yet(empty),
    Key::new("pipeline", Any, "", "DeepSpeed reads it for models that are pipelines").missed_unless(empty),
    Key::new("tensor_parallel", Any, "", "tensor parallelism").not_yet(|value| {
        empty(value) || value.get("autotp_size").and_then(Node::as_number).is_some_and(|size| size <= 1.0)
    }),
    Key::new("sequence_parallel_size", from(1), "1", "sequence parallelism")
        .not_yet(|value| number(value) <= 1.0),
    Key::new("progressive_layer_drop", Any, "", "dropping layers").not_yet(disabled),
    Key::new("curriculum_learning", Any, "", "curricula").not_yet(disabled),
    Key::new("data_efficiency", Any, "", "curricula and random token dropping").not_yet(disabled),
    Key::new("quantize_training", Any, "", "quantized training").not_yet(disabled),
    Key::new("weight_quantization", Any, "", "quantized weights").not_yet(empty),
    Key::new("compression_training", Any, "", "compression").not_yet(switched_off),
    Key::new("eigenvalue", Any, "", "curvature estimates").not_yet(disabled),
    Key::new("compile", Any, "", "kernels are compiled with the program"),
];

/// Switches activation checkpointing on, since the key is about checkpoints that the model's code
/// would make.
pub(super) fn checkpoint_in_main_memory(args: &mut TrainArgs, value: &Node) {
    if !flag(value) {
        return;
    }
    args.offload.activations = Place::Host;
    if args.given.typed("checkpoint_activations").is_none() {
        args.memory.checkpoint_activations = Checkpointing::Block;
    }
}
