//! The identity of a run: the settings in which a run that resumes must match the checkpoint's run.

use checkpoint::Manifest;
use model::Model;
use serde_json::{Value, json};
use settings::cli::ResumeWith;
use settings::config::default_warmup;
use settings::config::resumed::{self, ARCHITECTURE};
use settings::data::{Data, Split};
use settings::lr_schedule::{Climb, WarmUp};
use settings::{Config, Failure, LrSchedule, Result, labels};
use std::path::Path;

/// Windows of the training tokens that are hashed.
const WINDOWS: usize = 64;
/// Tokens per window.
const WINDOW: usize = 64;

/// The keys that may differ: (key, its description in errors, the `--resume-with` value that
/// permits a difference).
const SETTINGS: [(&str, &str, ResumeWith); 9] = [
    ("data", "the training tokens", ResumeWith::Data),
    ("order", "the seed of their order (--shuffle-seed)", ResumeWith::Order),
    ("schedule", "the learning rate (--lr, --warmup-steps)", ResumeWith::Lr),
    ("optimizer", "AdamW's constants", ResumeWith::Lr),
    ("end", "the step at which the learning rate's decay ends", ResumeWith::Lr),
    ("steps", "the number of steps (--steps)", ResumeWith::Steps),
    ("precision", "the element types (--precision)", ResumeWith::Precision),
    ("batch", "the tokens of a step", ResumeWith::Batch),
    ("clipping", "the norm to which gradients are clipped", ResumeWith::Clipping),
];

/// Returns the identity of a run.
///
/// # Errors
/// If the data cannot be read.
pub(crate) fn identity(config: &Config, model: &Model, data: &Data) -> Result<Value> {
    let (tokens, length) = (config.tokens_per_step(), config.sequence_length);
    Ok(json!({
        ARCHITECTURE: resumed::identity(&model.config),
        "data": sampled(data)?,
        "order": config.corpus.source.shuffle,
        "schedule": schedule(config),
        "optimizer": optimizer(config),
        "end": end(config),
        "steps": config.steps,
        "precision": precision(config),
        "batch": format!("{tokens} in sequences of {length}"),
        "clipping": config.max_grad_norm,
    }))
}

/// Returns the number of training tokens, and a hash of windows of them at equal distances.
fn sampled(data: &Data) -> Result<String> {
    let length = data.len(Split::Training);
    let window = length.min(WINDOW);
    let mut hasher = blake3::Hasher::new();
    for number in 0..WINDOWS {
        let start = (length - window) * number / (WINDOWS - 1);
        for token in data.window(Split::Training, start, window)? {
            hasher.update(&token.to_le_bytes());
        }
    }
    Ok(format!("{length} tokens, samples of them with hash {}", &hasher.finalize().to_hex()[..16]))
}

/// Returns the learning rate's schedule, without what follows from the number of steps.
fn schedule(config: &Config) -> String {
    match config.lr_schedule {
        LrSchedule::WarmupThenCosine { peak, warmup, steps } if warmup == default_warmup(steps) => {
            format!("up to {peak} in the usual warm-up, then a cosine")
        }
        LrSchedule::WarmupThenCosine { peak, warmup, .. } => {
            format!("up to {peak} in {warmup} steps, then a cosine")
        }
        LrSchedule::WarmupLr { low, high, warmup } => format!("{}, then constant", climb(low, high, warmup)),
        LrSchedule::WarmupDecayLr { low, high, warmup, .. } => {
            format!("{}, then down in a line", climb(low, high, warmup))
        }
        LrSchedule::WarmupCosineLr { peak, warmup_min_ratio, cos_min_ratio, warmup, .. } => {
            let from = climb(warmup_min_ratio * peak, peak, warmup);
            format!("{from}, then a cosine to {}", cos_min_ratio * peak)
        }
    }
}

/// Returns the step at which the learning rate's decay ends, if the schedule has one of its own.
fn end(config: &Config) -> Option<u32> {
    match config.lr_schedule {
        LrSchedule::WarmupDecayLr { total, .. } | LrSchedule::WarmupCosineLr { total, .. } => Some(total),
        _ => None,
    }
}

fn climb(low: f64, high: f64, WarmUp { steps, climb }: WarmUp) -> String {
    let shape = if climb == Climb::Log { "a logarithm" } else { "a line" };
    format!("from {low} up to {high} in {steps} steps along {shape}")
}

/// Returns AdamW's constants.
fn optimizer(config: &Config) -> String {
    let Config { betas: (beta1, beta2), eps, weight_decay, bias_correction, .. } = config;
    let biased = if *bias_correction { "" } else { ", no bias correction" };
    format!("betas {beta1} and {beta2}, eps {eps:e}, weight decay {weight_decay}{biased}")
}

fn precision(config: &Config) -> String {
    let scaled = if config.loss_scaling.is_some() { ", scaled loss" } else { "" };
    format!("{}{scaled}", settings::precision::describe(config.precision))
}

/// Checks that a run of `now`'s identity may resume the checkpoint in `path`.
///
/// # Errors
/// A usage failure that names every setting that differs and is not `meant` to, with both values.
pub(super) fn check(path: &Path, manifest: &Manifest, now: &Value, meant: &[ResumeWith]) -> Result<()> {
    let then = &manifest.identity;
    if let Some(how) = other_architecture(&then[ARCHITECTURE], &now[ARCHITECTURE]) {
        let path = path.to_path_buf();
        return Err(Failure::usage(checkpoint::CheckpointError::OtherModel { path, how }.to_string()));
    }
    // If both decays end with their runs, only the number of steps differs.
    let follows = |of: &Value| of["end"] == of["steps"];
    let is_other = |key: &str| then[key] != now[key] && !(key == "end" && follows(then) && follows(now));
    let differs = |(key, _, with): &&(&str, &str, ResumeWith)| is_other(key) && !meant.contains(with);
    let differing: Vec<_> = SETTINGS.iter().filter(differs).collect();
    if differing.is_empty() {
        return Ok(());
    }
    let line = |(key, words, _): &&(&str, &str, ResumeWith)| {
        format!("  {words}: {} there, {} now\n", shown(&then[*key]), shown(&now[*key]))
    };
    Err(Failure::usage(format!(
        "{} was saved with different settings:\n{}Give the same ones, accept the differences with --resume-with {}, \
         or give another directory to start from the beginning.",
        path.display(),
        differing.iter().map(line).collect::<String>(),
        accepting(meant, is_other),
    )))
}

/// Returns the value of `--resume-with` that accepts what is `meant` and each key that `differs`.
pub(super) fn accepting(meant: &[ResumeWith], differs: impl Fn(&str) -> bool) -> String {
    let accepted = SETTINGS.iter().filter(|(key, _, with)| meant.contains(with) || differs(key));
    let mut words: Vec<String> = accepted.map(|(_, _, with)| labels::word(with)).collect();
    words.dedup();
    words.join(",")
}

/// Returns the first key in which two architectures differ, in words.
fn other_architecture(kept: &Value, now: &Value) -> Option<String> {
    let key = now.as_object()?.keys().find(|key| kept[key.as_str()] != now[key.as_str()])?;
    Some(format!("its {key} is {}, this one's {}", kept[key.as_str()], now[key.as_str()]))
}

/// Returns `value` without quotes.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".into(),
        other => other.to_string(),
    }
}
