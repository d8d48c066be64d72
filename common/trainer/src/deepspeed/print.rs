//! `--print-config`: the resolved settings in DeepSpeed's words.

use super::Resolved;
use super::keys::Fate;
use super::node::Node;
use super::table::keys;
use crate::config::Config;
use crate::error::{Failure, Result};
use crate::schedule::Schedule;
use model::Wrap;
use planner::{Stage, Strategy};

/// What the settings in DeepSpeed's words cannot say.
pub fn left_out(config: &Config) -> Vec<String> {
    let schedule = "this learning-rate schedule has no name in DeepSpeed, which would keep the rate constant: `scheduler` \
                    is left out";
    let wrap = format!("--wrap {} has no name in DeepSpeed: give it beside the file", config.wrap);
    let kept = "--strategy shard-grad-op has no name in DeepSpeed: give it beside the file";
    [
        (matches!(config.schedule, Schedule::WarmupThenCosine { .. }), schedule.into()),
        (config.wrap != Wrap::default(), wrap),
        (config.strategy == Some(Strategy::ShardGradOp), kept.into()),
    ]
    .into_iter()
    .filter_map(|(said, warning)| said.then_some(warning))
    .collect()
}

/// `config`, run by `stage`, as DeepSpeed JSON. Reading it again, with the same flags for what DeepSpeed has no word for
/// (`--gpus`, `--steps`, `--wrap`, the built-in schedule's `--warmup-steps`), gives the same settings.
///
/// # Errors
/// A usage failure if the file asks for another stage, or for what is not here yet.
pub fn print(config: &Config, stage: Stage) -> Result<String> {
    config.findings.check(stage)?;
    let resolved = Resolved { config, stage };
    let mut root = Node::Section(Vec::new());
    for key in keys() {
        if let Fate::Honoured { get, .. } = key.fate
            && let Some(value) = get(&resolved)
        {
            root.insert(key.path, value);
        }
    }
    serde_json::to_string_pretty(&root).map_err(|e| Failure::run(format!("cannot print the settings: {e}")))
}
