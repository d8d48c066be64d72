//! The defaults of keys that a file leaves out: this program's, or DeepSpeed's if the file names
//! the optimizer or the scheduler.

use crate::entries::{Entries, Entry};
use crate::hjson;
use crate::keys::{Fate, Key};
use crate::node::Node;
use crate::table;
use settings::cli::TrainArgs;
use settings::config::{BETAS as BUILT_IN_BETAS, default_warmup};

/// The optimizer's name. If a file has it, the settings that it leaves out get DeepSpeed's
/// defaults.
pub(crate) const OPTIMIZER: &str = "optimizer.type";
const RATE: &str = "optimizer.params.lr";
const BETAS: &str = "optimizer.params.betas";
const DECAY: &str = "optimizer.params.weight_decay";
const SETTINGS: [&str; 4] = [RATE, BETAS, "optimizer.params.eps", DECAY];
const SCHEDULER: &str = "scheduler.type";
const PEAK: &str = "scheduler.params.warmup_max_lr";
const WARMUP: &str = "scheduler.params.warmup_num_steps";

/// Returns DeepSpeed's defaults of the settings that a file leaves out although it names its
/// optimizer or its scheduler, except those whose flag was typed.
pub(crate) fn of_the_named(args: &TrainArgs, entries: &Entries) -> Vec<Entry> {
    let elsewhere = |path| path == RATE && entries.get(PEAK).is_some();
    let entry = |path| {
        let key = table::find(path)?;
        let open = entries.get(path).is_none() && !elsewhere(path) && !typed(args, key);
        Some(Entry { key, value: default(key, entries)?, alias: None }).filter(|_| open)
    };
    let scheduler = entries.get(SCHEDULER).and_then(Node::as_text).unwrap_or_default();
    let of_optimizer = SETTINGS.into_iter().filter(|_| entries.get(OPTIMIZER).is_some());
    // `WarmupLR` rises to the optimizer's rate, `WarmupCosineLR` multiplies it.
    let of_decay = [PEAK].into_iter().filter(|_| scheduler.eq_ignore_ascii_case("WarmupDecayLR"));
    let of_scheduler = [WARMUP].into_iter().filter(|_| !scheduler.is_empty());
    of_optimizer.chain(of_decay).chain(of_scheduler).filter_map(entry).collect()
}

/// True if the flag of `key`'s meaning was typed.
fn typed(args: &TrainArgs, key: &Key) -> bool {
    matches!(key.fate, Fate::Honoured { flag: Some(id), .. } if args.given.typed(id).is_some())
}

/// Returns the default in DeepSpeed's code of a setting of the optimizer or the scheduler.
/// DeepSpeed's own Adam has no weight decay by default; PyTorch's AdamW does.
fn default(key: &Key, entries: &Entries) -> Option<Node> {
    let flag = |path| entries.get(path).and_then(Node::as_flag);
    let is_adamw =
        entries.get(OPTIMIZER).and_then(Node::as_text).is_some_and(|name| name.eq_ignore_ascii_case("adamw"));
    let decoupled = is_adamw || flag("optimizer.params.adam_w_mode") != Some(false);
    if key.path == DECAY && decoupled && flag("optimizer.params.torch_adam") == Some(true) {
        return Some(Node::Number(0.01));
    }
    hjson::parse(key.default).ok()
}

/// True if `adam_w_mode: false` makes a difference: DeepSpeed reads it only for Adam, and without
/// weight decay there is nothing to add to the gradient.
pub(crate) fn decays_inside(args: &TrainArgs, entries: &Entries) -> bool {
    let adam =
        entries.get(OPTIMIZER).and_then(Node::as_text).is_none_or(|name| name.eq_ignore_ascii_case("adam"));
    let decay = match entries.get(DECAY).map(Node::as_number) {
        _ if args.given.typed("weight_decay").is_some() => Some(args.training.weight_decay),
        None if entries.get(OPTIMIZER).is_some() => Some(0.0),
        found => found.flatten(),
    };
    adam && decay != Some(0.0)
}

/// Describes which of the settings in `args` are this program's own: those that neither the file
/// nor a flag nor `defaults` give.
pub(crate) fn words(args: &TrainArgs, entries: &Entries, defaults: &[Entry]) -> String {
    let given = |path: &str| entries.get(path).is_some_and(|value| !value.is_auto());
    let own = |path: &str| {
        let by_flag = table::find(path).is_some_and(|key| typed(args, key));
        !given(path) && !by_flag && !defaults.iter().any(|default| default.key.path == path)
    };
    let training = &args.training;
    let (momentum, variance) = BUILT_IN_BETAS;
    let warmup = training.warmup_steps.unwrap_or(default_warmup(training.steps));
    let built_in = args.file_only.scheduler.name.is_none() && args.given.typed("warmup_steps").is_none();
    let words = [
        (own(RATE) && own(PEAK)).then(|| format!("learning rate {}", training.lr)),
        own(BETAS).then(|| format!("betas {momentum} and {variance}")),
        own(DECAY).then(|| format!("weight decay {}", training.weight_decay)),
        built_in.then(|| format!("a warm-up of {warmup} steps, then a cosine")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
