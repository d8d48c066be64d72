//! The four stages by name, run in this process, and the [contract] that each of them satisfies.

pub mod contract;

use clap::{Parser, ValueEnum};
use prediction::Stage;
use settings::Config;
use settings::cli::{Cli, Program, TrainArgs};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use trainer::{Failure, Report, Result, StageFactory, Witness};

/// Returns the implementation of `stage`.
pub fn of(stage: Stage) -> StageFactory {
    match stage {
        Stage::Ddp => StageFactory::of::<zero0_ddp::Ddp>(),
        Stage::Zero1 => StageFactory::of::<zero1::Zero1>(),
        Stage::Zero2 => StageFactory::of::<zero2::Zero2>(),
        Stage::Zero3 => StageFactory::of::<zero3::Zero3>(),
    }
}

/// Returns the stage of that name; `None` if there is none.
pub fn named(name: &str) -> Option<Stage> {
    Stage::from_str(name, false).ok()
}

/// Splits a command line at spaces that are not in double quotes.
pub fn split_arguments(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Parses `flags`.
///
/// # Errors
/// A usage failure, as the program would print it.
pub fn parse(flags: &str) -> Result<TrainArgs> {
    let words = ["program"].into_iter().chain(flags.split_whitespace());
    Ok(Cli::try_parse_from(words).map_err(Failure::usage)?.train)
}

/// Returns the settings that `flags` ask for.
///
/// # Errors
/// Any failure, as the program would print it.
pub fn config(flags: &str) -> Result<Config> {
    deepspeed::configure(parse(flags)?)
}

/// Checks that `stage` supports `config`, whatever the machine and the data.
///
/// # Errors
/// Any failure, as the program would print it.
pub fn check(stage: Stage, config: &Config) -> Result<()> {
    trainer::check(of(stage), config)
}

/// Trains as `config` says, without printing anything.
///
/// # Errors
/// Any failure, as the program would print it.
pub fn train(stage: Stage, config: Config) -> Result<Report> {
    trainer::train_until(of(stage), config, None, Arc::default())
}

/// Trains as [`train`] does and reports to `witness`.
///
/// # Errors
/// Any failure, as the program would print it.
pub fn train_under(stage: Stage, config: Config, witness: Arc<dyn Witness>) -> Result<Report> {
    train_until(stage, config, witness, Arc::default())
}

/// Trains as [`train_under`] does until `stop` is set.
///
/// # Errors
/// Any failure, as the program would print it.
pub fn train_until(
    stage: Stage,
    config: Config,
    witness: Arc<dyn Witness>,
    stop: Arc<AtomicBool>,
) -> Result<Report> {
    trainer::train_until(of(stage), config, Some(witness), stop)
}

/// Runs the whole program of `stage`. The first of `arguments` is the program's name.
pub fn main_from(stage: Stage, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    main_under(stage, arguments, None)
}

/// Runs the whole program of `stage` and reports to `witness`. The first of `arguments` is the
/// program's name.
pub fn main_under(
    stage: Stage,
    arguments: impl IntoIterator<Item = OsString>,
    witness: Option<Arc<dyn Witness>>,
) -> ExitCode {
    trainer::main_under(of(stage), Program::default(), arguments, witness)
}
