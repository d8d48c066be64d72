//! What a file leaves to this program, and what it means where the file names the optimizer.

use crate::hjson;
use crate::keys::Key;
use crate::node::Node;
use crate::read::{Entries, Entry};
use crate::table;
use settings::cli::TrainArgs;
use settings::config::default_warmup;

/// The optimizer's name; a file that has it means DeepSpeed's defaults for what it leaves out.
const OPTIMIZER: &str = "optimizer.type";
/// Paths of the optimizer's settings, and the flags of the same meaning.
const SETTINGS: [(&str, Option<&str>); 4] = [
    ("optimizer.params.lr", Some("lr")),
    ("optimizer.params.betas", None),
    ("optimizer.params.eps", None),
    (DECAY, Some("weight_decay")),
];
const DECAY: &str = "optimizer.params.weight_decay";
const PEAK: &str = "scheduler.params.warmup_max_lr";

/// Returns DeepSpeed's defaults of the settings that a file which names its optimizer leaves out,
/// as far as no flag was typed.
pub(crate) fn of_the_optimizer(args: &TrainArgs, entries: &Entries) -> Vec<Entry> {
    let open = |(path, flag): &&(&'static str, Option<&str>)| {
        let elsewhere = *path == SETTINGS[0].0 && entries.get(PEAK).is_some();
        entries.get(path).is_none() && !elsewhere && flag.is_none_or(|id| args.given.typed(id).is_none())
    };
    let named = entries.get(OPTIMIZER).is_some();
    let entry = |(path, _): &(&'static str, Option<&str>)| {
        let key = table::find(path)?;
        Some(Entry { key, value: default(key, entries)?, alias: None })
    };
    SETTINGS.iter().filter(|setting| named && open(setting)).filter_map(entry).collect()
}

/// Returns the default in DeepSpeed's code of a setting of the optimizer. Its own Adam decays
/// nothing by itself; PyTorch's AdamW does.
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

/// True if `adam_w_mode: false` makes a difference: DeepSpeed reads it for Adam alone, and without
/// weight decay there is nothing to put inside the gradient.
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

/// Says which of the settings that `args` ended up with are this program's own.
pub(crate) fn words(args: &TrainArgs, entries: &Entries) -> String {
    let silent = |path: &str| match entries.get(path) {
        None => entries.get(OPTIMIZER).is_none(),
        Some(value) => value.is_auto(),
    };
    let typed = |id: &str| args.given.typed(id).is_some();
    let training = &args.training;
    let peak = entries.get(PEAK).is_some_and(|value| !value.is_auto());
    let warmup = training.warmup_steps.unwrap_or(default_warmup(training.steps));
    let built_in = args.file_only.scheduler.name.is_none() && !typed("warmup_steps");
    let words = [
        (silent("optimizer.params.lr") && !peak && !typed("lr"))
            .then(|| format!("learning rate {}", training.lr)),
        silent("optimizer.params.betas").then(|| "betas 0.9 and 0.95".into()),
        (silent(DECAY) && !typed("weight_decay")).then(|| format!("weight decay {}", training.weight_decay)),
        built_in.then(|| format!("a warm-up of {warmup} steps, then a cosine")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
