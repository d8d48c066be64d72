//! A training run as a program: it prints the opening lines, the steps or the screen, and the
//! closing tables.

use crate::launch::{self, Ranks};
use crate::metrics::Metrics;
use crate::plan::{self, Plan};
use crate::processes::{self, Logs};
use crate::progress;
use crate::run::{News, Observer};
use crate::signals;
use crate::source;
use crate::speed::Speed;
use crate::stage::AnyStage;
use crate::watch::Watch;
use crate::witness::Witness;
use events::lock;
use report::Report;
use settings::cli::TrainArgs;
use settings::config::DEFAULT_MODEL;
use settings::findings::Findings;
use settings::{Config, Failure, Result, communication, process};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use viz::Departure;

/// Returns the number of the signal that ended `plan`'s run before its last step, or as if one had,
/// given its steps in this process. `None` if it is whole.
fn early(plan: &Plan, steps: usize) -> Option<i32> {
    let short = plan.first_step() as usize + steps < plan.config.steps as usize;
    short.then(|| plan.stop.signal.load(Ordering::Relaxed))
}

/// Trains as the command line says, tells `witness` how far ranks are, and prints. Returns the
/// number of the signal that ended the run early, if one did.
///
/// # Errors
/// Any failure of the run.
pub(crate) fn train(
    stage: AnyStage,
    mut args: TrainArgs,
    witness: Option<Arc<dyn Witness>>,
) -> Result<Option<i32>> {
    let print = args.print_config;
    let unnamed = args.architecture.model.is_none() && args.architecture.init_from.is_none();
    let given = args.given.clone();
    let process = if print { None } else { process::place(&mut args, &|name| std::env::var(name).ok())? };
    let config = deepspeed::configure(args)?.in_process(process)?;
    let mut unsaid = Vec::new();
    if print {
        plan::check(stage, &config)?;
        unsaid = deepspeed::left_out(&config);
    }
    let idle = communication::without_effect(&given, &config.communication, stage.sharded);
    let idle = idle.iter().map(|(flag, why)| format!("{flag} changes nothing in {}: {why}", stage.plan));
    let warnings =
        config.findings.warnings.iter().cloned().chain(unsaid).chain(idle).chain(config.cautions());
    warnings.filter(|_| config.leads()).for_each(|warning| events::complain!("warning: {warning}"));
    if unnamed {
        note_resumed_model(&config);
    }
    if print {
        events::say!("{}", deepspeed::print(&config, stage.plan)?);
        return Ok(None);
    }
    let plan = Plan { witness, ..plan::prepare(stage, config)? };
    let Findings { file, own_settings, .. } = &plan.config.findings;
    if plan.config.leads() && !own_settings.is_empty() {
        events::complain!("note: {file} leaves to this program: {own_settings}");
    }
    if let Some(reader) = plan.brought.as_ref().filter(|_| plan.config.leads()) {
        let doubts = source::doubts(reader, &plan.model, &plan.data).map_err(Failure::usage)?;
        doubts.iter().for_each(|doubt| events::complain!("warning: {doubt}"));
    }
    let logs = Logs::open(&plan)?;
    let outcome = carry_out(plan, &logs);
    logs.end(outcome)
}

/// Says that the model is that of a checkpoint, if it is and another than the default one.
fn note_resumed_model(config: &Config) {
    let other = config.leads() && config.model.name != DEFAULT_MODEL;
    if let Some(directory) = config.output.checkpoint.as_ref().filter(|_| other) {
        let directory = directory.display();
        events::complain!("note: no --model is given: the model is that of the checkpoints in {directory}");
    }
}

/// Trains with all ranks as threads, or as one process of the job.
fn carry_out(plan: Plan, logs: &Logs) -> Result<Option<i32>> {
    let Some(process) = &plan.config.process else {
        return lead(&plan, Ranks::Threads, Vec::new(), logs);
    };
    let joined = processes::join(&plan, process)?;
    let plan = processes::resumed(plan, &joined.group)?;
    if let Some(state) = &plan.resume {
        logs.say(state.words(&plan.config).trim_end());
    }
    if plan.config.leads() {
        lead(&plan, Ranks::Process(joined.group), joined.links, logs)
    } else {
        Ok(early(&plan, processes::follow(&plan, joined, logs)?))
    }
}

/// Runs `ranks`, and prints for all ranks of the job.
fn lead(plan: &Plan, ranks: Ranks, links: Vec<(u32, TcpStream)>, logs: &Logs) -> Result<Option<i32>> {
    events::say!("{}", progress::opening(plan));
    let speed = Arc::new(Speed::of(plan));
    let metrics = Metrics::open(plan, &speed)?;
    let watch = Watch::start(plan, true, links)?;
    let tell = |rank: usize, news: News<'_>| {
        logs.tell(rank, news);
        metrics.iter().filter(|_| rank == 0).for_each(|metrics| metrics.tell(news));
    };
    let outcome = match plan.config.screen {
        Some(options) => on_screen(plan, ranks, &watch, (options, &speed), &tell),
        None => in_lines(plan, ranks, &watch, &speed, &tell),
    };
    watch.settle(&plan.stop);
    let watched = watch.hub.finish();
    let report = outcome?;
    events::say!("{}", report::closing(&report));
    for line in progress::farewell(plan, &report, &watched) {
        events::say!("{line}");
    }
    let unsaved = report.unsaved.map(|why| format!("the last checkpoint was not saved: {why}"));
    let unrecorded = watched
        .recording_error
        .map(|error| format!("the run is done, but its recording is incomplete: {error}"));
    let unmeasured = metrics.and_then(|metrics| metrics.problem());
    match [unsaved, unrecorded, unmeasured]
        .into_iter()
        .flatten()
        .reduce(|first, second| format!("{first}\n{second}"))
    {
        Some(message) => Err(Failure::run(message)),
        None => Ok(early(plan, report.steps.len())),
    }
}

/// Runs `ranks` and prints lines, with a progress bar on a terminal.
fn in_lines(
    plan: &Plan,
    ranks: Ranks,
    watch: &Watch,
    speed: &Arc<Speed>,
    tell: &Observer<'_>,
) -> Result<Report> {
    signals::stop_on_signal(plan, Some(watch.pace.clone()))?;
    let lines = progress::Lines::new(plan, speed);
    let observer = |rank: usize, news: News<'_>| {
        tell(rank, news);
        if rank == 0 {
            lines.tell(news);
        }
    };
    let run = || launch::run(plan, ranks, watch.emitters.clone(), &observer);
    let report = signals::explain_delay(&plan.stop, plan.stops_after(), run)?;
    lines.finish();
    Ok(report)
}

/// Runs `ranks` behind the screen, which takes this thread.
fn on_screen(
    plan: &Plan,
    ranks: Ranks,
    watch: &Watch,
    (options, speed): (viz::LiveOptions, &Arc<Speed>),
    tell: &Observer<'_>,
) -> Result<Report> {
    launch::hush_rank_panics();
    options.prepare(&watch.pace);
    let subscription = watch.hub.subscribe();
    // The lines of a run whose screen was left.
    let detached = OnceLock::new();
    let lines: &OnceLock<progress::Lines> = &detached;
    // What the screen does not show, until it is left.
    let unseen: &Mutex<Vec<String>> = &Mutex::default();
    let complain = || lock(unseen).drain(..).for_each(|warning| events::complain!("{warning}"));
    let outcome = std::thread::scope(|scope| {
        let ranks = scope.spawn(move || {
            let observer = |rank: usize, news: News<'_>| {
                tell(rank, news);
                if rank != 0 {
                    return;
                }
                match (lines.get(), news) {
                    (Some(lines), _) => lines.tell(news),
                    (None, News::Checkpoint(steps, Some(why))) => {
                        lock(unseen).push(progress::no_checkpoint(steps, why))
                    }
                    (None, _) => {}
                }
            };
            let report = launch::run(plan, ranks, watch.emitters.clone(), &observer);
            watch.settle(&plan.stop);
            watch.hub.end();
            report
        });
        let screen = viz::live(subscription, watch.pace.clone(), options, plan.stop.flag.clone());
        match screen {
            Ok(Departure::Detached) => {
                signals::outlive_terminal(plan, Some(watch.pace.clone()))?;
                events::say!("{}", progress::detached(watch.hub.run_name()));
                complain();
                lines.get_or_init(|| progress::Lines::new(plan, speed));
            }
            ref departure => {
                if let Ok(Departure::Signal(signal)) = departure {
                    plan.stop.signal.store(*signal, Ordering::Relaxed);
                }
                // The run is about to end: from now on Ctrl-C ends the process at once.
                signals::stop_on_signal(plan, Some(watch.pace.clone()))?;
            }
        }
        let report = signals::explain_delay(&plan.stop, plan.stops_after(), || ranks.join())
            .unwrap_or_else(|_| Err(Failure::run("the thread that launches the ranks panicked")));
        lines.get().iter().for_each(|lines| lines.finish());
        screen.map_err(Failure::run)?;
        report
    });
    complain();
    outcome
}
