//! The stages as libraries: any of them, by name, run in this process.

use planner::Stage;
use trainer::cli::TrainArgs;
use trainer::config::Config;
use trainer::{Failure, Report, Result};

/// Trains as `config` says, without printing anything.
///
/// # Errors
/// What the program would print.
pub(crate) fn train(stage: Stage, config: Config) -> Result<Report> {
    match stage {
        Stage::Ddp => trainer::train_quietly::<zero0_ddp::Ddp>(config),
        Stage::Zero1 => trainer::train_quietly::<zero1::Zero1>(config),
        Stage::Zero2 => trainer::train_quietly::<zero2::Zero2>(config),
        Stage::Zero3 => trainer::train_quietly::<zero3::Zero3>(config),
    }
}

/// Refuses flags that only a single run understands.
///
/// # Errors
/// A usage failure that names the flag.
pub(crate) fn refuse_single(args: &TrainArgs, command: &str) -> Result<()> {
    let single = ["report", "record", "save", "print_config", "inject", "paused", "pace", "view"];
    match single.into_iter().find(|id| args.given.typed(id).is_some()) {
        None => Ok(()),
        Some(id) => Err(Failure::usage(format!(
            "--{} belongs to a single run: leave it out of {command}",
            id.replace('_', "-")
        ))),
    }
}
