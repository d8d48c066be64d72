//! Precision and loss scaling.

use super::{count, disabled, empty, flag, number, off};
use crate::Resolved;
use crate::keys::Kind::{Any, Choice, Count, Flag, Number};
use crate::keys::{Auto, Key, Kind};
use crate::node::{Node, is_none};
use device::{DType, Rounding};
use settings::cli::TrainArgs;
use settings::float_type::{self, PrecisionName, name};
use sharding::LossScaling;

const HALF: &str = "16-bit parameters and gradients, with f32 masters";
const SCALING: &str = "how the loss scale is found";
const SMALL: Kind = Count(1, u32::MAX as u64);
const DTYPE: Kind = Choice(&["none", "fp32", "fp16", "bf16"]);
/// DeepSpeed's names of the types that gradients accumulate in.
const ACCUMULATED: Kind = Choice(&[
    "none",
    "fp32",
    "float32",
    "float",
    "torch.float32",
    "fp16",
    "float16",
    "half",
    "torch.float16",
    "bf16",
    "bfloat16",
    "torch.bfloat16",
]);

/// The number of overflows until the loss scale halves.
pub(crate) const HYSTERESIS: &str = "fp16.hysteresis";
/// The number of steps without overflow until the loss scale doubles.
pub(crate) const WINDOW: &str = "fp16.loss_scale_window";
/// The type of gradients on the wire.
pub(crate) const SENT: &str = "communication_data_type";
/// The type of gradients in memory.
pub(crate) const GRADIENTS: &str = "data_types.grad_accum_dtype";
/// Whether PyTorch's autocast is on.
pub(crate) const AUTOCAST: &str = "torch_autocast.enabled";
/// The type to which it rounds.
pub(crate) const AUTOCAST_DTYPE: &str = "torch_autocast.dtype";
/// The layers whose weights and gradients DeepSpeed sends in that type.
pub(crate) const SENT_IN_16_BITS: &str = "torch_autocast.lower_precision_safe_modules";
const AUTOCAST_DTYPES: &[&str] =
    &["bfloat16", "bf16", "torch.bfloat16", "float16", "fp16", "half", "torch.float16"];

pub(super) static KEYS: &[Key] = &[
    Key::new("fp16.enabled", Flag, "false", HALF).auto(Auto::Flags).honoured(
        Some("precision"),
        |args, value| switch(args, value, PrecisionName::Fp16),
        |run| Some(Node::Flag(run.config.precision.parameters == DType::F16)),
    ),
    Key::new("fp16.loss_scale", Number(0.0, 1e30), "0", "0 searches for the scale").honoured(
        Some("loss_scale"),
        |args, value| args.types.loss_scale = Some(number(value)),
        |run| scaling(run, |scaling| scaling.fixed.unwrap_or(0.0)),
    ),
    Key::new("fp16.initial_scale_power", Count(0, 64), "16", SCALING).honoured(
        Some("initial_scale_power"),
        |args, value| args.types.initial_scale_power = Some(small(value)),
        |run| scaling(run, |scaling| scaling.initial_power.into()),
    ),
    Key::new(WINDOW, Count(0, u32::MAX as u64), "1000", SCALING).honoured(
        Some("loss_scale_window"),
        |args, value| args.types.loss_scale_window = Some(small(value)),
        |run| scaling(run, |scaling| scaling.window.into()),
    ),
    Key::new(HYSTERESIS, SMALL, "2", "how the loss scale is found; 1 without ZeRO").honoured(
        Some("hysteresis"),
        |args, value| args.types.hysteresis = Some(small(value)),
        |run| scaling(run, |scaling| scaling.hysteresis.into()),
    ),
    Key::new("fp16.consecutive_hysteresis", Flag, "false", SCALING).honoured(
        Some("consecutive_hysteresis"),
        |args, value| args.types.consecutive_hysteresis = Some(flag(value)),
        |run| fp16(run).map(|scaling| Node::Flag(scaling.consecutive_hysteresis)),
    ),
    Key::new("fp16.min_loss_scale", Number(0.0, 1e30), "1", SCALING).honoured(
        Some("min_loss_scale"),
        |args, value| args.types.min_loss_scale = Some(number(value)),
        |run| scaling(run, |scaling| scaling.minimum),
    ),
    Key::new("fp16.auto_cast", Flag, "false", "tokens are whole numbers: there are no inputs to cast"),
    Key::new("fp16.fp16_master_weights_and_grads", Flag, "false", "16-bit master weights").not_yet(off),
    Key::new("bf16.enabled", Flag, "false", HALF).auto(Auto::Flags).honoured(
        Some("precision"),
        |args, value| switch(args, value, PrecisionName::Bf16),
        |run| Some(Node::Flag(run.config.precision.parameters == DType::Bf16)),
    ),
    Key::new("bf16.immediate_grad_update", Flag, "false", "gradients always accumulate at once"),
    Key::new("bf16.bf16_master_weights_and_grads", Flag, "false", "16-bit master weights").not_yet(off),
    Key::new("bf16.bf16_optimizer_states", Flag, "false", "16-bit optimizer states").not_yet(off),
    Key::new("bf16.check_grad_overflow", Flag, "true", "a gradient that is not finite always ends the run")
        .missed_unless(|_| false),
    Key::new("bfloat16.enabled", Flag, "false", "old name of bf16.enabled")
        .auto(Auto::Flags)
        .means(|value| Some(("bf16.enabled", value.clone()))),
    Key::new("amp", Any, "", "NVIDIA Apex's mixed precision").not_yet(disabled),
    Key::new(AUTOCAST, Flag, "false", "PyTorch's autocast: fp32 weights, products in bf16").honoured(
        Some("precision"),
        |args, value| switch(args, value, PrecisionName::Autocast),
        |run| Some(Node::Flag(rounds(run))),
    ),
    Key::new(AUTOCAST_DTYPE, Choice(AUTOCAST_DTYPES), "", "bfloat16 alone; must be given")
        .auto(Auto::No)
        .honoured(None, |_, _| {}, |run| rounds(run).then(|| Node::text("bfloat16"))),
    Key::new(SENT_IN_16_BITS, Any, "", "their weights and gradients are sent in 16 bits there, in fp32 here")
        .missed_unless(empty),
    Key::new(SENT, DTYPE, "null", "gradients on the wire; as parameters if left out").honoured(
        Some("reduce_dtype"),
        |args, value| args.types.reduce_dtype = dtype(value),
        |run| Some(Node::text(name(run.config.precision.reduce))),
    ),
    Key::new(
        "seq_parallel_communication_data_type",
        DTYPE,
        "\"fp32\"",
        "no effect without sequence parallelism",
    ),
    Key::new(GRADIENTS, ACCUMULATED, "null", "gradients in memory; as parameters if left out").honoured(
        Some("grad_dtype"),
        |args, value| args.types.grad_dtype = dtype(value),
        |run| Some(Node::text(name(run.config.precision.gradients))),
    ),
    Key::new("data_types.param_dtype", DTYPE, "null", "parameters of a type of their own").not_yet(is_none),
    Key::new("data_types.buffer_dtype", DTYPE, "null", "the models here have no buffers"),
    Key::new("data_types.keep_in_fp32_modules", Any, "\"auto\"", "the models here have no buffers"),
    Key::new("fp32_allreduce", Flag, "false", "old name of communication_data_type fp32")
        .means(|value| flag(value).then(|| (SENT, Node::text("fp32")))),
];

/// Sets the precision if the section is switched on. One that is off leaves it to the other
/// section, or to the flags.
fn switch(args: &mut TrainArgs, value: &Node, precision: PrecisionName) {
    if flag(value) {
        args.types.precision = precision;
    }
}

/// True if products round to bf16.
fn rounds(run: &Resolved<'_>) -> bool {
    run.config.precision.rounding == Rounding::Bf16
}

/// Returns the DeepSpeed keys that have the meaning of `mixed_precision: bf16` without DeepSpeed
/// and FSDP.
pub(crate) fn autocast() -> [(&'static str, Node); 3] {
    [
        (AUTOCAST, Node::Flag(true)),
        (AUTOCAST_DTYPE, Node::text("bfloat16")),
        (SENT_IN_16_BITS, Node::List(Vec::new())),
    ]
}

/// Returns the type of a name in [`DTYPE`] or [`ACCUMULATED`]; `none` counts as left out.
fn dtype(value: &Node) -> Option<DType> {
    let word = value.as_text()?.to_ascii_lowercase();
    match word.strip_prefix("torch.").unwrap_or(&word) {
        "float32" | "float" => Some(DType::F32),
        "float16" | "half" => Some(DType::F16),
        "bfloat16" => Some(DType::Bf16),
        short => float_type::dtype(short),
    }
}

/// Returns a count that [`SMALL`] allows.
fn small(value: &Node) -> u32 {
    count(value) as u32
}

/// Returns how the loss of fp16 is scaled.
fn scaling(run: &Resolved<'_>, get: fn(&LossScaling) -> f64) -> Option<Node> {
    fp16(run).map(|scaling| Node::Number(get(&scaling)))
}

/// Returns the loss scaling; `None` if only gradients are fp16, in which case the section has no
/// meaning.
fn fp16(run: &Resolved<'_>) -> Option<LossScaling> {
    run.config.loss_scaling.filter(|_| run.config.precision.parameters == DType::F16)
}
