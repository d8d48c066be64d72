//! Batch, optimizer and learning rate.

use super::{count, flag, from, number, on};
use crate::keys::Kind::{Choice, Count, Flag, Number, Pair, Positive};
use crate::keys::{Auto, Key, Kind, pair};
use crate::node::Node;
use settings::file::SchedulerName;
use settings::lr_schedule::Climb;
use settings::lr_schedule::LrSchedule::{WarmupCosineLr, WarmupDecayLr, WarmupLr, WarmupThenCosine};

const ARITHMETIC: &str = "which implementation does the arithmetic";
const DECAY: &str = "decoupled; of matrices only (DeepSpeed's is of norms, too)";
const STEPS: Kind = Count(0, u32::MAX as u64);
const RATE: Kind = Positive(1e6);
const RATIO: Kind = Number(0.0, 1.0);

pub(super) static KEYS: &[Key] = &[
    Key::new("train_batch_size", from(1), "", "sequences per step over all ranks; see the batch rule")
        .auto(Auto::Flags)
        .honoured(
            None,
            |args, value| args.file_only.batch.total = Some(count(value)),
            |run| {
                let config = run.config;
                let product = config.micro_batches as f64 * config.batch_size as f64;
                Some(Node::Number(config.world_size as f64 * product))
            },
        ),
    Key::new("train_micro_batch_size_per_gpu", from(1), "", "`--batch-size`; see the batch rule")
        .auto(Auto::Flags)
        .honoured(
            None,
            |args, value| args.file_only.batch.micro = Some(count(value)),
            |run| Some(Node::count(run.config.batch_size)),
        ),
    Key::new("gradient_accumulation_steps", from(1), "", "`--grad-accum`; see the batch rule")
        .auto(Auto::Flags)
        .honoured(
            None,
            |args, value| args.file_only.batch.accumulation = Some(count(value)),
            |run| Some(Node::count(run.config.micro_batches)),
        ),
    Key::new(
        "gradient_clipping",
        Number(0.0, 1e12),
        "1.0",
        "largest norm; 0 never clips (the default of old versions)",
    )
    .auto(Auto::Flags)
    .honoured(
        Some("max_grad_norm"),
        |args, value| match number(value) {
            0.0 => args.file_only.unclipped = true,
            norm => args.training.max_grad_norm = norm,
        },
        |run| {
            let norm = run.config.max_grad_norm;
            Some(Node::Number(if norm.is_finite() { norm } else { 0.0 }))
        },
    ),
    Key::new(
        "optimizer.type",
        Choice(&["AdamW", "Adam"]),
        "",
        "AdamW is the optimizer here; DeepSpeed's Adam is AdamW too unless `adam_w_mode` is false; with it, DeepSpeed's defaults count",
    )
    .auto(Auto::No)
    .honoured(None, |_, _| {}, |_| Some(Node::text("AdamW"))),
    Key::new("optimizer.params.lr", RATE, "0.001", "peak learning rate").auto(Auto::Flags).honoured(
        Some("lr"),
        |args, value| args.training.lr = number(value),
        |run| Some(Node::Number(run.config.lr_schedule.peak())),
    ),
    Key::new(
        "optimizer.params.betas",
        Pair,
        "[0.9, 0.999]",
        "decay of momentum and variance; 0.9 and 0.95 if neither they nor optimizer.type are given",
    )
    .auto(Auto::Flags)
    .honoured(
        None,
        |args, value| args.file_only.betas = pair(value).map(|(a, b)| (a as f32, b as f32)),
        |run| {
            let (momentum, variance) = run.config.betas;
            Some(Node::List(vec![Node::single(momentum), Node::single(variance)]))
        },
    ),
    Key::new("optimizer.params.eps", Number(1e-30, 1.0), "1e-8", "added to the root of the variance")
        .auto(Auto::Flags)
        .honoured(
            None,
            |args, value| args.file_only.eps = Some(number(value) as f32),
            |run| Some(Node::single(run.config.eps)),
        ),
    Key::new("optimizer.params.weight_decay", Number(0.0, 0.99), "0", DECAY)
        .auto(Auto::Flags)
        .honoured(
            Some("weight_decay"),
            |args, value| args.training.weight_decay = number(value),
            |run| Some(Node::single(run.config.weight_decay)),
        ),
    Key::new("optimizer.params.torch_adam", Flag, "false", ARITHMETIC),
    Key::new("optimizer.params.fused", Flag, "null", ARITHMETIC),
    Key::new("optimizer.params.foreach", Flag, "null", ARITHMETIC),
    Key::new("optimizer.params.capturable", Flag, "false", ARITHMETIC),
    Key::new("optimizer.params.adam_w_mode", Flag, "true", "Adam with the decay inside the gradient")
        .not_yet(on),
    Key::new(
        "optimizer.params.bias_correction",
        Flag,
        "true",
        "false leaves momentum and variance as they are, small in the first steps",
    )
    .honoured(
        None,
        |args, value| args.file_only.biased = !flag(value),
        |run| Some(Node::Flag(run.config.bias_correction)),
    ),
    Key::new("optimizer.params.set_grad_none", Flag, "true", "gradients are zeroed after every step anyway"),
    Key::new("optimizer.params.fp32_optimizer_states", Flag, "true", "16-bit optimizer states").not_yet(on),
    Key::new("optimizer.params.amsgrad", Flag, "false", "the AMSGrad variant").not_yet(super::off),
    Key::new(
        "optimizer.params.max_grad_norm",
        Number(0.0, f64::MAX),
        "0",
        "DeepSpeed refuses it with Adam; `gradient_clipping` is used",
    )
    .missed_unless(|value| number(value) == 0.0),
    Key::new("optimizer.legacy_fusion", Flag, "false", "which kernel does the arithmetic"),
    Key::new(
        "scheduler.type",
        Choice(&["WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]),
        "",
        "left out: linear warm-up, then a cosine to a tenth",
    )
    .auto(Auto::No)
    .honoured(
        None,
        |args, value| {
            args.file_only.scheduler.name = match value.as_text().unwrap_or("").to_ascii_lowercase().as_str()
            {
                "warmuplr" => Some(SchedulerName::WarmupLr),
                "warmupdecaylr" => Some(SchedulerName::WarmupDecayLr),
                _ => Some(SchedulerName::WarmupCosineLr),
            }
        },
        |run| match run.config.lr_schedule {
            WarmupThenCosine { .. } => None,
            WarmupLr { .. } => Some(Node::text("WarmupLR")),
            WarmupDecayLr { .. } => Some(Node::text("WarmupDecayLR")),
            WarmupCosineLr { .. } => Some(Node::text("WarmupCosineLR")),
        },
    ),
    Key::new("scheduler.params.warmup_min_lr", Number(0.0, 1e6), "0", "rate at the start of the warm-up")
        .auto(Auto::Flags)
        .honoured(
            None,
            |args, value| args.file_only.scheduler.low = number(value),
            |run| match run.config.lr_schedule {
                WarmupLr { low, .. } | WarmupDecayLr { low, .. } => Some(Node::Number(low)),
                _ => None,
            },
        ),
    Key::new(
        "scheduler.params.warmup_max_lr",
        RATE,
        "0.001",
        "peak learning rate; if left out, `optimizer.params.lr` for `WarmupLR`",
    )
    .auto(Auto::Flags)
    .honoured(
        Some("lr"),
        |args, value| args.training.lr = number(value),
        |run| match run.config.lr_schedule {
            WarmupLr { high, .. } | WarmupDecayLr { high, .. } => Some(Node::Number(high)),
            _ => None,
        },
    ),
    Key::new("scheduler.params.warmup_num_steps", STEPS, "1000", "length of the warm-up, at least 2")
        .auto(Auto::Flags)
        .honoured(
            Some("warmup_steps"),
            |args, value| args.training.warmup_steps = Some(count(value) as u32),
            |run| run.config.lr_schedule.warm_up().map(|warmup| Node::count(warmup.steps as usize)),
        ),
    Key::new("scheduler.params.warmup_type", Choice(&["log", "linear"]), "\"log\"", "shape of the warm-up")
        .honoured(
            None,
            |args, value| {
                let linear = value.as_text().is_some_and(|text| text.eq_ignore_ascii_case("linear"));
                args.file_only.scheduler.climb = if linear { Climb::Linear } else { Climb::Log };
            },
            |run| {
                let word = |climb| if climb == Climb::Linear { "linear" } else { "log" };
                run.config.lr_schedule.warm_up().map(|warmup| Node::text(word(warmup.climb)))
            },
        ),
    Key::new(
        "scheduler.params.total_num_steps",
        Count(1, u32::MAX as u64),
        "",
        "where the decay ends; `auto` is `--steps`",
    )
    .auto(Auto::Flags)
    .honoured(
        None,
        |args, value| args.file_only.scheduler.total = Some(count(value) as u32),
        |run| match run.config.lr_schedule {
            WarmupDecayLr { total, .. } | WarmupCosineLr { total, .. } => Some(Node::count(total as usize)),
            _ => None,
        },
    ),
    Key::new(
        "scheduler.params.warmup_min_ratio",
        RATIO,
        "0",
        "share of the peak at the start of the warm-up",
    )
    .honoured(
        None,
        |args, value| args.file_only.scheduler.warmup_min_ratio = number(value),
        |run| match run.config.lr_schedule {
            WarmupCosineLr { warmup_min_ratio, .. } => Some(Node::Number(warmup_min_ratio)),
            _ => None,
        },
    ),
    Key::new("scheduler.params.cos_min_ratio", RATIO, "0.0001", "share of the peak at the end of the cosine")
        .honoured(
            None,
            |args, value| args.file_only.scheduler.cos_min_ratio = Some(number(value)),
            |run| match run.config.lr_schedule {
                WarmupCosineLr { cos_min_ratio, .. } => Some(Node::Number(cos_min_ratio)),
                _ => None,
            },
        ),
    Key::new(
        "scheduler.params.last_batch_iteration",
        Number(-1.0, 1e12),
        "-1",
        "a run starts at its first step here",
    )
    .missed_unless(|value| number(value) < 0.0),
];
