//! The program of every stage: launch, the training loop, and what a run prints and shows.
//!
//! The loop ([`run`], [`passes`]) drives every stage through one trait, [`Stage`], and does not
//! know which one it is.

mod contribution;
mod doctor;
mod explain;
mod faults;
mod generate;
mod hooks;
mod launch;
mod passes;
mod plan;
mod processes;
mod progress;
mod rank_error;
mod resume;
mod run;
mod source;
mod stage;
mod stop;
mod watch;
mod watched;
mod witness;

pub use generate::generate;
pub use report::Report;
pub use settings::{Communication, Failure, GradSync, Result};
pub use stage::{Setup, Stage, StageKind, StepOutcome};
pub use witness::{At, Witness};

use clap::Parser;
use collectives::Group;
use events::Emitter;
use plan::Plan;
use processes::Logs;
use run::News;
use settings::Config;
use settings::cli::{Cli, Command, TrainArgs};
use settings::communication;
use settings::process;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use stage::AnyStage;
use std::ffi::OsString;
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use stop::StopRequest;
use watch::Watch;

/// Runs the whole program of a stage: parses the command line, trains, prints, and turns failures
/// into exit codes.
pub fn main<S: StageKind>() -> ExitCode {
    main_from::<S>(std::env::args_os())
}

/// Runs [`main`] with `arguments` in place of the command line; the first is the program's name.
pub fn main_from<S: StageKind>(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    program(AnyStage::of::<S>(), Cli::parse_from(arguments))
}

fn program(stage: AnyStage, cli: Cli) -> ExitCode {
    let result =
        match cli.command {
            Some(Command::Generate(args)) => generate::sample(stage, &args)
                .map(|texts| texts.iter().for_each(|text| events::say!("{text}"))),
            Some(Command::Doctor(args)) => doctor::examine(&args),
            Some(Command::Explain(args)) => Report::read(&args.report)
                .map(|report| events::say!("{}", report::diagnosis(&report).trim_end())),
            None => train(stage, cli.train),
        };
    match result {
        Ok(()) => events::say::code(),
        Err(failure) => {
            events::complain!("error: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn train(stage: AnyStage, mut args: TrainArgs) -> Result<()> {
    let print = args.print_config;
    let idle = communication::without_effect(&args.given, stage.sharded);
    let process = if print { None } else { process::place(&mut args, &|name| std::env::var(name).ok())? };
    let config = deepspeed::configure(args)?.in_process(process)?;
    let unsaid = if print { deepspeed::left_out(&config) } else { Vec::new() };
    let idle = idle.iter().map(|(flag, why)| format!("{flag} changes nothing in {}: {why}", stage.name));
    let warnings = config.findings.warnings.iter().cloned().chain(unsaid).chain(idle).chain(config.caution());
    warnings.filter(|_| config.leads()).for_each(|warning| events::complain!("warning: {warning}"));
    if print {
        events::say!("{}", deepspeed::print(&config, stage.plan)?);
        return Ok(());
    }
    let plan = plan::prepare(stage, config)?;
    let logs = Logs::open(&plan)?;
    let outcome = match &plan.config.process {
        None => lead(&plan, Ranks::Threads, Vec::new(), &logs),
        Some(process) => {
            let joined = processes::join(&plan, process)?;
            if plan.config.leads() {
                lead(&plan, Ranks::Process(joined.group), joined.links, &logs)
            } else {
                processes::follow(&plan, joined, &logs)
            }
        }
    };
    logs.end(&outcome);
    outcome
}

/// The ranks that run in this process.
enum Ranks {
    /// All of them, as threads.
    Threads,
    /// One; the others are processes of their own.
    Process(Group),
}

/// Trains, and prints for all ranks.
fn lead(plan: &Plan, ranks: Ranks, links: Vec<(u32, TcpStream)>, logs: &Logs) -> Result<()> {
    events::say!("{}", progress::opening(plan));
    let watch = Watch::start(plan, true, links)?;
    let outcome = match plan.config.screen {
        Some(options) => on_screen(plan, ranks, &watch, options, logs),
        None => in_lines(plan, ranks, &watch, logs),
    };
    watch.settle();
    let watched = watch.hub.finish();
    let report = outcome?;
    events::say!("{}", report::closing(&report));
    for line in progress::farewell(plan, report.steps.len(), &watched) {
        events::say!("{line}");
    }
    Ok(())
}

/// Trains with plain lines or a progress bar.
fn in_lines(plan: &Plan, ranks: Ranks, watch: &Watch, logs: &Logs) -> Result<Report> {
    stop_on_signal(plan)?;
    let lines = progress::Lines::new(plan);
    let observer = |rank: usize, news: News<'_>| {
        logs.tell(rank, news);
        if rank == 0 {
            lines.tell(news);
        }
    };
    let run = || run_plan(plan, ranks, watch.emitters.clone(), &observer);
    let report = explaining_delays(&plan.stop, run)?;
    lines.finish();
    Ok(report)
}

/// Trains with the screen on this thread and the ranks on others.
fn on_screen(
    plan: &Plan,
    ranks: Ranks,
    watch: &Watch,
    options: viz::LiveOptions,
    logs: &Logs,
) -> Result<Report> {
    launch::hush_rank_panics();
    options.prepare(&watch.pace);
    let subscription = watch.hub.subscribe();
    std::thread::scope(|scope| {
        let ranks = scope.spawn(move || {
            let observer = |rank: usize, news: News<'_>| logs.tell(rank, news);
            let report = run_plan(plan, ranks, watch.emitters.clone(), &observer);
            watch.settle();
            watch.hub.end();
            report
        });
        let screen = viz::live(subscription, watch.pace.clone(), options, plan.stop.flag.clone());
        // The run is about to end. A signal from here on ends the process at once, without the
        // tables.
        stop_on_signal(plan)?;
        let report = explaining_delays(&plan.stop, || ranks.join())
            .unwrap_or_else(|_| Err(Failure::run("the thread that launches the ranks panicked")));
        screen.map_err(|e| Failure::run(e.to_string()))?;
        report
    })
}

/// Trains as `config` says, without printing anything, and returns the report. Records if asked to.
///
/// # Errors
/// Whatever ends the run early, as it would be printed.
pub fn train_quietly<S: StageKind>(config: Config) -> Result<Report> {
    train_under::<S>(config, None)
}

/// Trains as [`train_quietly`] does, observed by a witness.
///
/// # Errors
/// As [`train_quietly`].
pub fn train_under<S: StageKind>(config: Config, witness: Option<Arc<dyn Witness>>) -> Result<Report> {
    train_until::<S>(config, witness, Arc::default())
}

/// Trains as [`train_under`] does until `enough` is set: the report is of the steps that were
/// complete by then.
///
/// # Errors
/// As [`train_quietly`].
pub fn train_until<S: StageKind>(
    config: Config,
    witness: Option<Arc<dyn Witness>>,
    enough: Arc<AtomicBool>,
) -> Result<Report> {
    train_unseen(AnyStage::of::<S>(), config, witness, enough)
}

fn train_unseen(
    stage: AnyStage,
    config: Config,
    witness: Option<Arc<dyn Witness>>,
    enough: Arc<AtomicBool>,
) -> Result<Report> {
    let stop = Arc::new(StopRequest::new(enough, config.world_size));
    let plan = Plan { witness, stop, ..plan::prepare(stage, config)? };
    let silent = |_: usize, _: News<'_>| {};
    if plan.config.record.is_none() {
        let emitters = (0..plan.config.world_size).map(|rank| Emitter::silent(rank as u32)).collect();
        return run_plan(&plan, Ranks::Threads, emitters, &silent);
    }
    let watch = Watch::start(&plan, false, Vec::new())?;
    let report = run_plan(&plan, Ranks::Threads, watch.emitters.clone(), &silent);
    match watch.hub.finish().recording_error {
        Some(error) => Err(Failure::run(error)),
        None => report,
    }
}

fn run_plan(
    plan: &Plan,
    ranks: Ranks,
    emitters: Vec<Emitter>,
    observer: &run::Observer<'_>,
) -> Result<Report> {
    let measured = match ranks {
        Ranks::Threads => launch::all(plan, emitters, observer)?,
        Ranks::Process(mut group) => {
            emitters.into_iter().for_each(|emitter| group.attach(emitter));
            launch::one(plan, group, observer)?
        }
    };
    let report = plan::report(plan, &measured);
    if let Some(path) = &plan.config.report {
        report.write(path)?;
    }
    Ok(report)
}

/// How long a run may take to stop before the user is told why.
const STOP_DELAY: Duration = Duration::from_secs(2);

/// Waits for a run in `wait`; if it does not stop soon after a stop request, prints why.
fn explaining_delays<T>(request: &StopRequest, wait: impl FnOnce() -> T) -> T {
    let (running, watched) = channel::<()>();
    let over = move |within| watched.recv_timeout(within) == Err(RecvTimeoutError::Disconnected);
    std::thread::scope(|scope| {
        // `over` sees that it is dropped, even if waiting panics.
        let _running = running;
        scope.spawn(move || {
            while !request.is_set() {
                if over(Duration::from_millis(100)) {
                    return;
                }
            }
            if !over(STOP_DELAY) {
                match request.writing.load(Ordering::Relaxed) {
                    false => events::complain!(
                        "stopping after the current layer; Ctrl-C or SIGTERM ends the run at once"
                    ),
                    true => events::complain!(
                        "the run's results are being written; Ctrl-C or SIGTERM ends the run at once, without them"
                    ),
                }
            }
        });
        wait()
    })
}

/// Signals that follow the first one sooner belong to it: launcher and terminal may both forward
/// the same Ctrl-C.
const ONE_SIGNAL: Duration = Duration::from_millis(500);

/// Makes the first Ctrl-C or SIGTERM stop the run. Another one, after [`ONE_SIGNAL`], ends the
/// process at once; so does the first if the run is stopping already because the user has quit the
/// screen.
fn stop_on_signal(plan: &Plan) -> Result<()> {
    let failed = |e| Failure::run(format!("cannot listen for signals: {e}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let stop = Arc::clone(&plan.stop);
    let listen = move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            let to_end = stop.flag.swap(true, Ordering::AcqRel);
            if to_end && first.is_none_or(|first| first.elapsed() >= ONE_SIGNAL) {
                low_level::exit(128 + signal);
            }
            first.get_or_insert_with(Instant::now);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
    Ok(())
}
