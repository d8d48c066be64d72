//! The program of every stage: launch, the training loop, and what a run prints and shows.
//!
//! The loop (`run`, `passes`) drives every stage through one trait, [`Stage`], and does not
//! know which one it is.

mod checkpoints;
mod clocks;
mod contribution;
mod doctor;
mod export;
mod faults;
mod generate;
mod hooks;
mod instrumented_stage;
mod launch;
mod line_file;
mod metrics;
mod outputs;
mod passes;
mod plan;
mod processes;
mod program;
mod progress;
mod rank_error;
mod rank_failure;
mod resume;
mod run;
mod signals;
mod source;
mod speed;
mod stage;
mod states;
mod stop;
mod watch;
mod witness;

pub use generate::generate;
pub use report::Report;
pub use settings::{Communication, Failure, GradSync, Result};
pub use stage::{Setup, Stage, StageFactory, StageKind, StageStates};
pub use states::ModelStates;
pub use witness::{At, Milestone, Witness};

use events::Emitter;
use launch::Ranks;
use plan::Plan;
use settings::Config;
use settings::cli::{Command, Help, Program};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stop::StopRequest;
use watch::Watch;

/// Runs the whole program of a stage, of this name and version: parses the command line, trains,
/// prints, and turns failures into exit codes.
pub fn main<S: StageKind>(name: &'static str, version: &'static str) -> ExitCode {
    main_under(StageFactory::of::<S>(), Program { name, version }, std::env::args_os(), None)
}

/// Runs the whole program of `stage` as [`main`] does, called `program`, with `arguments` in place
/// of the command line; the first is the program's name. Reports to `witness`.
pub fn main_under(
    stage: StageFactory,
    program: Program,
    arguments: impl IntoIterator<Item = OsString>,
    witness: Option<Arc<dyn Witness>>,
) -> ExitCode {
    signals::ignore_file_size_signal();
    let cli = program.parse(arguments);
    let print = |lines: Vec<String>| lines.iter().for_each(|line| events::say!("{line}"));
    exit_code(match cli.command {
        Some(Command::Generate(args)) => generate::print_texts(stage, &args),
        Some(Command::Export(args)) => export::export(&args).map(print),
        Some(Command::Doctor { gpus }) => doctor::examine(gpus),
        Some(Command::Explain { report }) => {
            Report::read(&report).map(|report| events::say!("{}", report::diagnosis(&report).trim_end()))
        }
        Some(Command::Shell(shell)) => shell
            .text(program.command(Help::Full))
            .map(|text| print(vec![text.trim_end().into()]))
            .map_err(Failure::run),
        None => match program::train(stage, cli.train, witness) {
            // The exit code that a shell reports for a process ended by the signal.
            Ok(Some(signal)) => return ExitCode::from(128 + signal as u8),
            ended => ended.map(|_| ()),
        },
    })
}

/// Returns the exit code of a program that ended with `result`, and prints its failure.
pub fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => events::say::code(),
        Err(failure) => {
            events::complain!("error: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

/// Checks that `stage` supports `config`, whatever the machine and the data.
///
/// # Errors
/// A usage failure that names the flag, and the key of the file that stands for it.
pub fn check(stage: StageFactory, config: &Config) -> Result<()> {
    plan::check(stage, config).map(drop)
}

/// Trains as `config` says until `stop` is set, and reports to `witness`. Returns the report of the
/// steps that were complete by then. Prints nothing; records if asked to.
///
/// # Errors
/// Any failure, as the program would print it.
pub fn train_until(
    stage: StageFactory,
    config: Config,
    witness: Option<Arc<dyn Witness>>,
    stop: Arc<AtomicBool>,
) -> Result<Report> {
    let stop = Arc::new(StopRequest::new(stop, config.world_size));
    let plan = Plan { witness, stop, ..plan::prepare(stage, config)? };
    let recorded = plan.config.output.record.is_some();
    let watch = recorded.then(|| Watch::record(&plan)).transpose()?;
    let emitters = match &watch {
        Some(watch) => watch.emitters.clone(),
        None => (0..plan.config.world_size).map(|rank| Emitter::silent(rank as u32)).collect(),
    };
    let outcome = launch::run(&plan, Ranks::Threads, emitters, &|_, _| {});
    let report = outcome.and_then(|(report, unwritten)| unwritten.map_or(Ok(report), Err));
    match (report, watch.and_then(|watch| watch.hub.finish().recording_error)) {
        (report, None) => report,
        (Ok(_), Some(error)) => Err(Failure::run(error)),
        (Err(failure), Some(error)) => Err(failure.with(error)),
    }
}
