//! Flags that a command with several runs cannot accept.

use settings::cli::{CollectivesChoice, TrainArgs};
use settings::flag_name;
use trainer::{Failure, Result};

/// Refuses flags that make sense only for a single run.
pub(crate) fn refuse(args: &TrainArgs, command: &str) -> Result<()> {
    let single = [
        "report",
        "record",
        "save",
        "save_dtype",
        "max_shard_size",
        "checkpoint",
        "checkpoint_every",
        "print_config",
        "inject",
        "metrics",
        "log_dir",
        "log_every",
        "rank",
        "master",
        "paused",
        "pace",
        "view",
    ];
    if matches!(args.collectives, CollectivesChoice::Tcp | CollectivesChoice::Mpi) {
        return Err(Failure::usage(format!(
            "{command} trains with ranks that are threads: leave --collectives out of it"
        )));
    }
    let Some(id) = single.into_iter().find(|id| args.given.typed(id).is_some()) else { return Ok(()) };
    let flag = flag_name(id);
    Err(Failure::usage(format!("{flag} belongs to a single run: leave it out of {command}")))
}
