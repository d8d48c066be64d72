//! From the command line to the closing tables: configuration, data, launch, the training loop and the run report.
//!
//! The loop ([`run`], [`passes`]) drives every stage through one trait, [`Stage`]; it does not know which one it is.

pub mod cli;
pub mod config;
pub mod corpus;
pub mod data;
mod error;
mod explain;
pub mod faults;
mod generate;
mod launch;
mod passes;
mod plan;
mod precision;
mod progress;
pub mod report;
mod run;
mod size;
mod source;
mod stage;
mod tables;
mod timing;
mod wiring;

pub use error::{Failure, Result};
pub use generate::generate;
pub use report::Report;
pub use stage::{GradSync, Setup, Stage, StepOutcome};

use clap::Parser;
use cli::{Cli, Command, TrainArgs};
use config::Config;
use run::Plan;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::Arc;

/// The whole program of a stage: parses the command line, runs, prints, and turns failures into exit codes.
pub fn main<S: Stage>() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Some(Command::Generate(args)) => {
            generate::<S>(&args).map(|texts| texts.iter().for_each(|text| println!("{text}")))
        }
        None => train::<S>(cli.train),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn train<S: Stage>(args: TrainArgs) -> Result<()> {
    let config = Config::new(args)?;
    let plan = plan::prepare::<S>(config)?;
    println!("{}", progress::opening::<S>(&plan));
    stop_on_signal(&plan)?;
    let lines = progress::Lines::new(&plan);
    let report = run_plan::<S>(&plan, &|row| lines.step(row))?;
    lines.finish();
    println!("{}", tables::closing(&report));
    if let Some(dir) = &plan.config.save {
        println!("saved to {}", dir.display());
    }
    Ok(())
}

/// Trains as `config` says, without printing anything, and returns the report.
///
/// # Errors
/// Whatever ends the run early, as it would be printed.
pub fn train_quietly<S: Stage>(config: Config) -> Result<Report> {
    run_plan::<S>(&plan::prepare::<S>(config)?, &|_| {})
}

fn run_plan<S: Stage>(plan: &Plan, observer: &run::Observer<'_>) -> Result<Report> {
    let emitters = (0..plan.config.world_size).map(|rank| events::Emitter::silent(rank as u32)).collect();
    let outcomes = launch::run::<S>(plan, emitters, observer);
    if let Some((rank, error)) = launch::root_cause(&outcomes) {
        return Err(explain::rank_failure(S::PLAN, plan, rank, error));
    }
    let measured: Vec<_> = outcomes.into_iter().flatten().collect();
    let report = plan::report::<S>(plan, &measured)?;
    if let Some(path) = &plan.config.report {
        report.write(path)?;
    }
    Ok(report)
}

/// The first Ctrl-C or SIGTERM ends the run after the current step; a second one at once.
fn stop_on_signal(plan: &Plan) -> Result<()> {
    for signal in [SIGINT, SIGTERM] {
        let failed = |e| Failure::run(format!("cannot listen for signals: {e}"));
        let code = 128 + signal;
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&plan.stop))
            .map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(&plan.stop)).map_err(failed)?;
    }
    Ok(())
}
