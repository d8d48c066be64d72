//! Activation checkpointing, and DeepSpeed's other keys.

use super::{disabled, empty, flag, from, number, off, switched_off};
use crate::keys::{Key, Kind};
use crate::node::Node;
use events::Place;
use model::Checkpointing;
use settings::cli::TrainArgs;

const CHECKPOINTING: &str = "the section arranges checkpoints that the model's code makes and switches none on; `--checkpoint-activations block` does";
const SHOWN: &str = "the screen, the closing tables and `--report` show it";

pub(super) static KEYS: &[Key] = &[
    Key::new(
        "activation_checkpointing.cpu_checkpointing",
        Kind::Flag,
        "false",
        "true keeps each block's input alone, in main memory",
    )
    .honoured(Some("offload_activations"), checkpoint_in_main_memory, |run| {
        Some(Node::Flag(run.config.offload.activations == Place::Host))
    }),
    Key::new("activation_checkpointing.partition_activations", Kind::Flag, "false", CHECKPOINTING)
        .missed_unless(off),
    Key::new("activation_checkpointing.contiguous_memory_optimization", Kind::Flag, "false", CHECKPOINTING)
        .missed_unless(off),
    Key::new("activation_checkpointing.number_checkpoints", from(0), "null", CHECKPOINTING)
        .missed_unless(|value| number(value) == 0.0),
    Key::new("activation_checkpointing.synchronize_checkpoint_boundary", Kind::Flag, "false", CHECKPOINTING)
        .missed_unless(off),
    Key::new("activation_checkpointing.profile", Kind::Flag, "false", CHECKPOINTING).missed_unless(off),
    Key::new("steps_per_print", Kind::Number(0.0, f64::MAX), "10", SHOWN),
    Key::new("wall_clock_breakdown", Kind::Flag, "false", SHOWN).missed_unless(off),
    Key::new("memory_breakdown", Kind::Flag, "false", SHOWN).missed_unless(off),
    Key::new("dump_state", Kind::Flag, "false", "`--print-config` shows it").missed_unless(off),
    Key::new("flops_profiler", Kind::Any, "", SHOWN).missed_unless(switched_off),
    Key::new("comms_logger", Kind::Any, "", SHOWN).missed_unless(switched_off),
    Key::new("tensorboard", Kind::Any, "", SHOWN).missed_unless(switched_off),
    Key::new("wandb", Kind::Any, "", SHOWN).missed_unless(switched_off),
    Key::new("comet", Kind::Any, "", SHOWN).missed_unless(switched_off),
    Key::new("csv_monitor", Kind::Any, "", SHOWN).missed_unless(switched_off),
    Key::new("monitor_config", Kind::Any, "", SHOWN).missed_unless(switched_off),
    Key::new("log_level", Kind::Any, "", "what DeepSpeed prints"),
    Key::new(
        "vocabulary_size",
        from(1),
        "null",
        "DeepSpeed uses it for warnings only; the model has its own",
    ),
    Key::new("dataloader_drop_last", Kind::Flag, "false", "batches are always whole here"),
    Key::new("zero_allow_untested_optimizer", Kind::Flag, "false", "the one optimizer here is tested"),
    Key::new(
        "zero_force_ds_cpu_optimizer",
        Kind::Flag,
        "true",
        "the CPU updates what is offloaded, with the one optimizer here",
    ),
    Key::new("disable_allgather", Kind::Flag, "false", "DeepSpeed reads and ignores it"),
    Key::new("prescale_gradients", Kind::Flag, "false", "the loss is divided before backward, always"),
    Key::new(
        "gradient_predivide_factor",
        Kind::Number(0.0, f64::MAX),
        "1.0",
        "matters with prescale_gradients only",
    ),
    Key::new("sparse_gradients", Kind::Flag, "false", "sparse embedding gradients").not_yet(off),
    Key::new(
        "checkpoint",
        Kind::Any,
        "",
        "how DeepSpeed writes its checkpoints; `--checkpoint` saves one, `--save` the weights",
    )
    .missed_unless(empty),
    Key::new(
        "nebula",
        Kind::Any,
        "",
        "where DeepSpeed writes its checkpoints; `--checkpoint` saves one, `--save` the weights",
    )
    .missed_unless(switched_off),
    Key::new("hybrid_engine", Kind::Any, "", "generating while training").not_yet(disabled),
    Key::new("elasticity", Kind::Any, "", "a batch that follows the number of GPUs").not_yet(disabled),
    Key::new("autotuning", Kind::Any, "", "a search for the best settings").not_yet(disabled),
    Key::new("sparse_attention", Kind::Any, "", "sparse attention").not_yet(empty),
    Key::new("pipeline", Kind::Any, "", "pipeline parallelism").not_yet(empty),
    Key::new("tensor_parallel", Kind::Any, "", "tensor parallelism").not_yet(empty),
    Key::new("sequence_parallel_size", from(1), "1", "sequence parallelism")
        .not_yet(|value| number(value) <= 1.0),
    Key::new("progressive_layer_drop", Kind::Any, "", "dropping layers").not_yet(disabled),
    Key::new("curriculum_learning", Kind::Any, "", "curricula").not_yet(disabled),
    Key::new("data_efficiency", Kind::Any, "", "curricula and random token dropping").not_yet(disabled),
    Key::new("quantize_training", Kind::Any, "", "quantized training").not_yet(disabled),
    Key::new("weight_quantization", Kind::Any, "", "quantized weights").not_yet(empty),
    Key::new("compression_training", Kind::Any, "", "compression").not_yet(empty),
    Key::new("eigenvalue", Kind::Any, "", "curvature estimates").not_yet(disabled),
    Key::new("compile", Kind::Any, "", "kernels are compiled with the program"),
];

/// Switches checkpoints on, since the key is about those that the model's code would make.
fn checkpoint_in_main_memory(args: &mut TrainArgs, value: &Node) {
    if !flag(value) {
        return;
    }
    args.offload.offload_activations = Place::Host;
    if args.given.typed("checkpoint_activations").is_none() {
        args.memory.checkpoint_activations = Checkpointing::Block;
    }
}
