//! A training run as a program: it prints the opening lines, the steps or the screen, and the
//! closing tables.

use crate::launch::{self, Ranks};
use crate::metrics::Metrics;
use crate::plan::{self, Plan};
use crate::processes::{self, Logs};
use crate::progress;
use crate::run::{Observer, RunEvent};
use crate::signals;
use crate::source;
use crate::speed::Speed;
use crate::stage::StageFactory;
use crate::watch::Watch;
use crate::witness::Witness;
use events::lock;
use report::Report;
use screen::Departure;
use settings::cli::TrainArgs;
use settings::config::DEFAULT_MODEL;
use settings::findings::Findings;
use settings::machine::not_started;
use settings::{Config, Failure, Given, Result, communication, process};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, OnceLock};

/// Returns the signal that ended `plan`'s run before its last step or validation, given the number
/// of `steps` done in this process. If a key ended it, the signal is the key's, or SIGINT. `None`
/// if the run is complete.
fn early_exit_signal(plan: &Plan, steps: usize) -> Option<i32> {
    let is_early =
        plan.first_step() as usize + steps < plan.config.steps as usize || plan.stop.lacks_validation();
    is_early.then(|| plan.stop.exit_signal())
}

/// Trains as the command line says, reports to `witness`, and prints. Returns the signal that ended
/// the run early; `None` if it is complete.
///
/// # Errors
/// Any failure of the run.
pub(crate) fn train(
    stage: StageFactory,
    mut args: TrainArgs,
    witness: Option<Arc<dyn Witness>>,
) -> Result<Option<i32>> {
    let print_config = args.print_config;
    let unnamed = args.architecture.model.is_none() && args.architecture.init_from.is_none();
    let given = args.given.clone();
    let process =
        if print_config { None } else { process::detect(&mut args, &|name| std::env::var(name).ok())? };
    let config = deepspeed::configure(args)?.in_process(process)?;
    let unsupported = if print_config { unsupported_settings(stage, &config)? } else { Vec::new() };
    print_warnings(stage, &config, &given, unsupported);
    if unnamed {
        note_resumed_model(&config);
    }
    if print_config {
        events::say!("{}", deepspeed::print(&config, stage.id)?);
        return Ok(None);
    }
    let plan = Plan { witness, ..plan::prepare(stage, config)? };
    print_plan_warnings(&plan)?;
    let logs = Logs::open(&plan)?;
    let outcome = run_plan(plan, &logs);
    logs.end(outcome)
}

/// Returns warnings about settings that a printed configuration file cannot express.
///
/// # Errors
/// If `stage` does not support `config`.
fn unsupported_settings(stage: StageFactory, config: &Config) -> Result<Vec<String>> {
    plan::check(stage, config)?;
    Ok(deepspeed::left_out(config, stage.id))
}

/// Prints warnings about `config`, on the rank that prints for all: what its file says,
/// `unsupported` settings, flags without effect in `stage`, and risks.
fn print_warnings(stage: StageFactory, config: &Config, given: &Given, unsupported: Vec<String>) {
    if !config.leads() {
        return;
    }
    let ineffective_flags = communication::without_effect(given, &config.communication, stage.sharded);
    let ineffective_flags =
        ineffective_flags.iter().map(|(flag, why)| format!("{flag} changes nothing in {}: {why}", stage.id));
    let of_file = config.findings.warnings.iter().cloned();
    let warnings = of_file.chain(unsupported).chain(ineffective_flags).chain(config.warnings());
    warnings.for_each(|warning| events::complain!("warning: {warning}"));
}

/// Prints, on the rank that prints for all, a note about settings that the configuration file
/// leaves to this program, and warnings about the model that the run starts from.
///
/// # Errors
/// If the model's files cannot be read.
fn print_plan_warnings(plan: &Plan) -> Result<()> {
    if !plan.config.leads() {
        return Ok(());
    }
    let Findings { file, own_settings, .. } = &plan.config.findings;
    if !own_settings.is_empty() {
        events::complain!("note: {file} leaves to this program: {own_settings}");
    }
    if let Some(reader) = &plan.pretrained {
        let warnings = source::warnings(reader, &plan.model, &plan.data).map_err(Failure::usage)?;
        warnings.iter().for_each(|warning| events::complain!("warning: {warning}"));
    }
    Ok(())
}

/// Prints a note if the model comes from a checkpoint and is not the default one.
fn note_resumed_model(config: &Config) {
    if let Some(directory) = &config.output.checkpoint
        && config.leads()
        && config.model.name != DEFAULT_MODEL
    {
        let directory = directory.display();
        events::complain!("note: no --model is given: the model is that of the checkpoints in {directory}");
    }
}

/// Trains with all ranks as threads, or as one process of the job.
fn run_plan(plan: Plan, logs: &Logs) -> Result<Option<i32>> {
    let Some(process) = &plan.config.process else {
        return run_as_leader(&plan, Ranks::Threads, Vec::new(), logs);
    };
    let joined = processes::join(&plan, process)?;
    let plan = processes::resumed(plan, &joined.group)?;
    if let Some(state) = &plan.resume {
        logs.say(state.words(&plan.config).trim_end());
    }
    if plan.config.leads() {
        run_as_leader(&plan, Ranks::Process(joined.group), joined.links, logs)
    } else {
        Ok(early_exit_signal(&plan, processes::follow(&plan, joined, logs)?))
    }
}

/// Runs `ranks`, and prints for all ranks of the job.
fn run_as_leader(
    plan: &Plan,
    ranks: Ranks,
    links: Vec<(u32, TcpStream)>,
    logs: &Logs,
) -> Result<Option<i32>> {
    events::say!("{}", progress::opening(plan));
    let speed = Arc::new(Speed::of(plan));
    let metrics = Metrics::open(plan, &speed)?;
    let watch = Watch::start(plan, links)?;
    let report_event = |rank: usize, event: RunEvent<'_>| {
        logs.report(rank, event);
        if let Some(metrics) = &metrics
            && rank == 0
        {
            metrics.report(event);
        }
    };
    let outcome = match plan.config.screen {
        Some(options) => on_screen(plan, ranks, &watch, (options, &speed), &report_event),
        None => in_lines(plan, ranks, &watch, &speed, &report_event),
    };
    watch.wait_for_last_events(&plan.stop);
    let watched = watch.hub.finish();
    let unrecorded =
        watched.recording_error.as_ref().map(|error| format!("the recording is incomplete: {error}"));
    let metrics_problem = metrics.and_then(|metrics| metrics.problem());
    let incomplete = unrecorded.into_iter().chain(metrics_problem);
    let (report, unwritten) = match outcome {
        Ok(done) => done,
        Err(failure) => return Err(incomplete.fold(failure, Failure::with)),
    };
    events::say!("{}", report::closing(&report));
    for line in progress::farewell(plan, &report, &watched) {
        events::say!("{line}");
    }
    let unsaved = report.unsaved.map(|why| format!("the last checkpoint was not saved: {why}"));
    let incomplete = incomplete.map(|file| format!("the run is done, but {file}"));
    let unwritten = unwritten.map(|failure| failure.to_string());
    let problems: Vec<String> = unsaved.into_iter().chain(unwritten).chain(incomplete).collect();
    if problems.is_empty() {
        Ok(early_exit_signal(plan, report.steps.len()))
    } else {
        Err(Failure::run(problems.join("\n")))
    }
}

/// Runs `ranks` and prints lines, with a progress bar on a terminal.
fn in_lines(
    plan: &Plan,
    ranks: Ranks,
    watch: &Watch,
    speed: &Arc<Speed>,
    report_event: &Observer<'_>,
) -> Result<(Report, Option<Failure>)> {
    signals::stop_on_signal(plan, Some(watch.pace.clone()))?;
    let lines = progress::Lines::new(plan, speed);
    let observer = |rank: usize, event: RunEvent<'_>| {
        report_event(rank, event);
        if rank == 0 {
            lines.report(event);
        }
    };
    let run = || launch::run(plan, ranks, watch.emitters.clone(), &observer);
    let done = signals::explain_delay(&plan.stop, plan.stops_after(), run)?;
    lines.finish();
    Ok(done)
}

/// Runs `ranks` behind the screen, which takes this thread.
fn on_screen(
    plan: &Plan,
    ranks: Ranks,
    watch: &Watch,
    (options, speed): (screen::LiveOptions, &Arc<Speed>),
    report_event: &Observer<'_>,
) -> Result<(Report, Option<Failure>)> {
    launch::silence_rank_panics();
    options.prepare(&watch.pace);
    let subscription = watch.hub.subscribe();
    let output = &BehindScreen::default();
    let outcome = std::thread::scope(|scope| {
        let launch = move || {
            let observer = |rank: usize, event: RunEvent<'_>| {
                report_event(rank, event);
                if rank == 0 {
                    output.report(event);
                }
            };
            let outcome = launch::run(plan, ranks, watch.emitters.clone(), &observer);
            watch.wait_for_last_events(&plan.stop);
            watch.hub.end();
            outcome
        };
        let ranks = std::thread::Builder::new().spawn_scoped(scope, launch);
        let ranks = ranks.map_err(|error| Failure::run(not_started("the ranks", &error)))?;
        let screen = screen::live(subscription, watch.pace.clone(), options, plan.stop.flag());
        let listening = after_screen(plan, watch, speed, output, screen.as_ref().ok());
        let outcome = signals::explain_delay(&plan.stop, plan.stops_after(), || ranks.join())
            .unwrap_or_else(|_| Err(Failure::run("the thread that launches the ranks panicked")));
        if let Some(lines) = output.lines.get() {
            lines.finish();
        }
        let of_screen = screen.err().map(|error| error.to_string());
        let of_signals = listening.err().map(|failure| failure.to_string());
        with_problems(outcome, of_screen.into_iter().chain(of_signals))
    });
    output.print_warnings();
    outcome
}

/// Adds `problems` of the screen to the `outcome` of the run behind it. With any, a run that is
/// complete fails, too, and also reports the results that were not written.
fn with_problems<T>(
    outcome: Result<(T, Option<Failure>)>,
    mut problems: impl Iterator<Item = String>,
) -> Result<(T, Option<Failure>)> {
    let (done, unwritten) = match outcome {
        Ok(done) => done,
        Err(failure) => return Err(problems.fold(failure, Failure::with)),
    };
    let Some(first) = problems.next() else { return Ok((done, unwritten)) };
    let others = problems.chain(unwritten.map(|failure| failure.to_string()));
    Err(others.fold(Failure::run(first), Failure::with))
}

/// The output of a run behind the screen.
#[derive(Default)]
struct BehindScreen {
    /// Prints lines once the screen is detached.
    lines: OnceLock<progress::Lines>,
    /// Warnings that the screen does not show, to be printed when it closes.
    warnings: Mutex<Vec<String>>,
}

impl BehindScreen {
    /// Reports an event of the rank that prints for all.
    fn report(&self, event: RunEvent<'_>) {
        match (self.lines.get(), event) {
            (Some(lines), _) => lines.report(event),
            (None, RunEvent::Checkpoint(steps, Some(why))) => {
                lock(&self.warnings).push(progress::no_checkpoint(steps, why))
            }
            (None, _) => {}
        }
    }

    /// Prints the warnings so far.
    fn print_warnings(&self) {
        lock(&self.warnings).drain(..).for_each(|warning| events::complain!("{warning}"));
    }
}

/// Lets a run whose screen is detached continue in lines, or else stop on a signal. `departure` is
/// `None` if the screen failed.
///
/// # Errors
/// If the system refuses to deliver signals.
fn after_screen(
    plan: &Plan,
    watch: &Watch,
    speed: &Arc<Speed>,
    output: &BehindScreen,
    departure: Option<&Departure>,
) -> Result<()> {
    if let Some(Departure::Detached) = departure {
        signals::outlive_terminal(plan, Some(watch.pace.clone()))?;
        events::say!("{}", progress::detached(watch.hub.run_name()));
        output.print_warnings();
        output.lines.get_or_init(|| progress::Lines::new(plan, speed));
        return Ok(());
    }
    if let Some(Departure::Signal(signal)) = departure {
        plan.stop.set_signal(*signal);
    }
    // The run is about to end: from now on Ctrl-C ends the process at once.
    signals::stop_on_signal(plan, Some(watch.pace.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message that is printed for a run with this outcome and these problems of its
    /// screen; `None` if the run succeeds.
    fn printed(outcome: Result<Option<Failure>>, problems: &[&str]) -> Option<String> {
        let outcome = outcome.map(|unwritten| ((), unwritten));
        let problems = problems.iter().map(|problem| problem.to_string());
        with_problems(outcome, problems).err().map(|failure| failure.to_string())
    }

    #[test]
    fn problems_of_the_screen_do_not_hide_the_failure_of_the_run() {
        let failed = || Err(Failure::run("rank 1 failed"));
        assert_eq!(printed(failed(), &[]).unwrap(), "rank 1 failed");
        assert_eq!(printed(failed(), &["no signals"]).unwrap(), "rank 1 failed\nno signals");
        let both = printed(failed(), &["no terminal", "no signals"]);
        assert_eq!(both.unwrap(), "rank 1 failed\nno terminal\nno signals");
    }

    #[test]
    fn problems_of_the_screen_fail_a_complete_run() {
        let unwritten = || Ok(Some(Failure::run("no report")));
        assert_eq!(printed(Ok(None), &[]), None);
        assert_eq!(printed(unwritten(), &[]), None, "the caller reports it");
        assert_eq!(printed(Ok(None), &["no signals"]).unwrap(), "no signals");
        let all = printed(unwritten(), &["no terminal", "no signals"]);
        assert_eq!(all.unwrap(), "no terminal\nno signals\nno report");
    }

    #[test]
    fn a_failure_keeps_its_exit_code() {
        let failed: Result<((), _)> = Err(Failure::OutOfMemory("rank 0 ran out of memory".into()));
        let failure = with_problems(failed, ["no signals".to_string()].into_iter()).unwrap_err();
        assert!(matches!(failure, Failure::OutOfMemory(_)));
    }
}
