//! Precision and loss scaling.

use super::{disabled, from, number, off};
use crate::deepspeed::keys::{Auto, Key, Kind};
use crate::deepspeed::read::is_none;

const HALF: &str = "16-bit training";
const SCALING: &str = "loss scaling of 16-bit training";
const DTYPE: Kind = Kind::Choice(&["none", "fp32", "fp16", "bf16"]);

pub(super) static KEYS: &[Key] = &[
    Key::new("fp16.enabled", Kind::Flag, "false", HALF).auto(Auto::Flags).not_yet(off),
    Key::new("fp16.loss_scale", Kind::Number(0.0, 1e30), "0", SCALING).not_yet(|value| number(value) == 0.0),
    Key::new("fp16.initial_scale_power", Kind::Count(0, 32), "16", SCALING)
        .not_yet(|value| number(value) == 16.0),
    Key::new("fp16.loss_scale_window", from(1), "1000", SCALING).not_yet(|value| number(value) == 1000.0),
    Key::new("fp16.hysteresis", from(1), "2", SCALING).not_yet(|value| number(value) == 2.0),
    Key::new("fp16.consecutive_hysteresis", Kind::Flag, "false", SCALING).not_yet(off),
    Key::new("fp16.min_loss_scale", Kind::Number(0.0, 1e30), "1", SCALING)
        .not_yet(|value| number(value) == 1.0),
    Key::new("fp16.auto_cast", Kind::Flag, "false", "tokens are whole numbers: there are no inputs to cast"),
    Key::new("fp16.fp16_master_weights_and_grads", Kind::Flag, "false", "16-bit master weights").not_yet(off),
    Key::new("bf16.enabled", Kind::Flag, "false", HALF).auto(Auto::Flags).not_yet(off),
    Key::new(
        "bf16.immediate_grad_update",
        Kind::Flag,
        "false",
        "gradients are added to as they come, always",
    ),
    Key::new(
        "bf16.check_grad_overflow",
        Kind::Flag,
        "false",
        "a gradient that is not finite always ends the run",
    ),
    Key::new("bfloat16.enabled", Kind::Flag, "false", "old name of bf16.enabled")
        .auto(Auto::Flags)
        .means(|value| Some(("bf16.enabled", value.clone()))),
    Key::new("amp", Kind::Any, "", "NVIDIA Apex's mixed precision").not_yet(disabled),
    Key::new("torch_autocast", Kind::Any, "", "PyTorch's autocast").not_yet(disabled),
    Key::new("communication_data_type", DTYPE, "null", "another dtype on the wire than in memory")
        .not_yet(fp32),
    Key::new(
        "seq_parallel_communication_data_type",
        DTYPE,
        "\"fp32\"",
        "nothing without sequence parallelism",
    ),
    Key::new("data_types.grad_accum_dtype", DTYPE, "null", "another dtype to accumulate gradients in")
        .not_yet(fp32),
    Key::new("fp32_allreduce", Kind::Flag, "false", "sums are in f32, always"),
];

/// What there is already.
fn fp32(value: &crate::deepspeed::node::Node) -> bool {
    is_none(value) || value.as_text() == Some("fp32")
}
