//! The lines that a run prints without the screen.

use crate::plan::Plan;
use crate::run::RunEvent;
use crate::speed::{self, Speed};
use checkpoint::ElementType;
use events::lock;
use events::say::{counted, grouped};
use indicatif::{ProgressBar, ProgressStyle};
use report::{Report, StepRow};
use settings::Config;
use settings::size::human;
use settings::{hardware, precision};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The maximum number of lines that a short run prints, not counting the first and the last.
const MAX_LINES: u32 = 30;

/// The time after which a long run prints a line.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The width of a line that shows the run's speed. On a narrower terminal only the bar shows it.
const SPEED_LINE_WIDTH: usize = 100;

/// Returns the first lines: the run and its devices.
pub(crate) fn opening(plan: &Plan) -> String {
    let config = &plan.config;
    let ranks = counted(config.world_size, "rank", "ranks");
    let peak = plan.prediction.ranks.iter().map(|rank| rank.memory.total_peak).max().unwrap_or(0);
    format!(
        "{} · {} · {} parameters · {} · {}\n\
         {}.\n{}{}\
         Global batch {} tokens = {} × {} × {} × {}. Predicted peak {} per rank.\n",
        plan.stage.id,
        config.model.name,
        grouped(plan.model.layout.parameters()),
        precision::describe(config.precision),
        ranks,
        where_ranks_are(config),
        simulated(config),
        plan.resume.as_ref().map(|state| state.words(config)).unwrap_or_default(),
        grouped(config.tokens_per_step()),
        ranks,
        counted(config.micro_batches, "micro-batch", "micro-batches"),
        counted(config.batch_size, "sequence", "sequences"),
        counted(config.sequence_length, "token", "tokens"),
        human(peak),
    )
}

/// Returns the line that warns of a simulated link.
fn simulated(config: &Config) -> String {
    let Some(link) = &config.link else { return String::new() };
    format!(
        "SIMULATED link between the ranks ({}): communication is delayed as if it were real.\n",
        link.describe()
    )
}

/// Describes the ranks and their devices.
fn where_ranks_are(config: &Config) -> String {
    match &config.process {
        None => config.hardware.line(config.world_size, config.threads, config.nccl),
        Some(job) => {
            let (launcher, engine) = (job.position.launcher, &job.engine);
            match (config.nccl, config.hardware.first_gpu()) {
                (Some(version), Some(gpu)) => format!(
                    "The ranks are processes that {launcher} started, connected by NCCL {version} (control messages over {engine}), \
                     this one on {gpu}"
                ),
                _ => {
                    let (the_ranks, threads) =
                        (config.hardware.the_ranks(), hardware::threads(config.threads));
                    format!(
                        "{the_ranks} are processes that {launcher} started, connected by {engine}, on CPU cores, {threads}"
                    )
                }
            }
        }
    }
}

/// Returns the last lines: the files that the run of `report` has written.
pub(crate) fn farewell(plan: &Plan, report: &Report, watched: &events::HubReport) -> Vec<String> {
    let (mut lines, new) = (Vec::new(), report.steps.len());
    let done = plan.first_step() as usize + new;
    let early = done < plan.config.steps as usize;
    if early {
        lines.push(format!("ended early, as asked: {done} of {} steps are done", plan.config.steps));
    } else if plan.stop.lacks_validation() {
        lines.push(
            "ended early, as asked: all steps are done, but the last validation was interrupted".into(),
        );
    }
    let kept = |directory: &PathBuf| {
        let directory = directory.display();
        match (new, early) {
            _ if report.unsaved.is_some() => format!("the last checkpoint is not in {directory}"),
            (0, _) => format!("no step is done: no new checkpoint is saved in {directory}"),
            (_, true) => {
                format!("a checkpoint is saved in {directory}: run the same command to resume")
            }
            (_, false) => format!("a checkpoint is saved in {directory}"),
        }
    };
    lines.extend(plan.config.output.checkpoint.as_ref().map(kept));
    lines.extend(plan.config.output.save.as_ref().map(|dir| {
        let stored = plan.config.save_format.element_type.unwrap_or_else(|| plan.model_files.element_type());
        let rounded = if stored == ElementType::F32 { String::new() } else { format!(" as {stored}") };
        format!("saved to {}{rounded}", dir.display())
    }));
    lines.extend(watched.recorded.as_ref().map(|file| format!("recorded to {}", file.display())));
    if watched.dropped > 0 {
        lines.push(format!("{} events were dropped: viewers could not keep up", grouped(watched.dropped)));
    }
    lines
}

/// Returns the message for a run that continues without its screen. Viewers find it by `name`.
pub(crate) fn detached(name: Option<&str>) -> String {
    let watched = name.map_or_else(String::new, |name| format!(" viz attach {name} shows it;"));
    let process = std::process::id();
    format!("the run continues in process {process}:{watched} kill -TERM {process} ends it\n")
}

/// Returns the warning that there is no checkpoint of `steps` steps.
pub(crate) fn no_checkpoint(steps: u32, why: &str) -> String {
    format!("warning: no checkpoint after {}: {why}", counted(steps as usize, "step", "steps"))
}

/// The steps since the last line.
struct Since {
    tokens: u64,
    seconds: f64,
    line: Instant,
}

impl Default for Since {
    fn default() -> Self {
        Since { tokens: 0, seconds: 0.0, line: Instant::now() }
    }
}

/// When a line is due.
struct Cadence {
    /// Number of steps from one line to the next.
    steps: u32,
    /// True if a line is also due after [`LINE_INTERVAL`].
    also_after_time: bool,
}

/// Prints a line for some of the steps; on a terminal a progress bar below them.
pub(crate) struct Lines {
    first: u32,
    steps: u32,
    cadence: Cadence,
    speed: Arc<Speed>,
    /// True if lines show the run's speed.
    timed: bool,
    since: Mutex<Since>,
    bar: Option<ProgressBar>,
}

impl Lines {
    /// Returns the lines of `plan`'s run.
    pub(crate) fn new(plan: &Plan, speed: &Arc<Speed>) -> Self {
        let steps = plan.config.steps;
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")
                .unwrap_or(ProgressStyle::default_bar());
            ProgressBar::new(u64::from(steps)).with_style(style)
        });
        let timed = events::say::width(&std::io::stdout()).is_none_or(|columns| columns >= SPEED_LINE_WIDTH);
        events::say!(
            "{:>6}  {:>8}  {:>9}  {:>9}  {:>9}  {:>9}{}{}",
            "step",
            "loss",
            "lr",
            "grad norm",
            "tokens/s",
            "memory",
            if plan.config.loss_scaling.is_some() { "  loss scale" } else { "" },
            if timed { "     MFU   elapsed      left" } else { "" },
        );
        let first = plan.first_step();
        let cadence = match plan.config.output.log_every {
            Some(steps) => Cadence { steps, also_after_time: false },
            None => Cadence { steps: (steps - first).div_ceil(MAX_LINES).max(1), also_after_time: true },
        };
        Lines { first, steps, cadence, speed: speed.clone(), timed, since: Mutex::default(), bar }
    }

    /// Prints an event of the rank that prints for all.
    pub(crate) fn report(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Step(row, peak) => self.step(row, peak),
            RunEvent::Validation(steps, loss) => {
                self.beside_the_bar(|| {
                    events::say!(
                        "{:>6}  {loss:>8.4}  validation, after {}",
                        "",
                        counted(steps as usize, "step", "steps")
                    );
                });
            }
            RunEvent::Checkpoint(steps, failed) => self.beside_the_bar(|| match failed {
                None => {
                    let steps = counted(steps as usize, "step", "steps");
                    events::say!("{:>16}  checkpoint, after {steps}", "");
                }
                Some(why) => events::complain!("{}", no_checkpoint(steps, why)),
            }),
        }
    }

    fn beside_the_bar(&self, say: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    fn step(&self, row: &StepRow, peak: u64) {
        let mut since = lock(&self.since);
        since.tokens += row.tokens;
        since.seconds += row.seconds;
        let rate = since.tokens as f64 / since.seconds.max(1e-9);
        let text = SpeedText {
            utilisation: speed::share(self.speed.utilisation(rate)),
            elapsed: speed::clock(Some(self.speed.elapsed())),
            left: speed::clock(self.speed.left(row.step)),
        };
        let ends = [self.first, self.steps - 1];
        let Cadence { steps, also_after_time } = self.cadence;
        let due = row.step.is_multiple_of(steps) || also_after_time && since.line.elapsed() >= LINE_INTERVAL;
        if due || ends.contains(&row.step) || row.skipped {
            let shown = self.timed.then_some(&text);
            self.beside_the_bar(|| line(row, rate, peak, shown));
            *since = Since::default();
        }
        if let Some(bar) = &self.bar {
            bar.set_position(u64::from(row.step) + 1);
            bar.set_message(format!(
                "loss {:.4}  {} tokens/s  MFU {}  {}, {} left",
                row.loss,
                grouped(rate as u64),
                text.utilisation,
                text.elapsed,
                text.left
            ));
        }
    }

    /// Removes the bar when the run is over.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How fast the run is, in words.
struct SpeedText {
    utilisation: String,
    elapsed: String,
    left: String,
}

fn line(row: &StepRow, rate: f64, peak: u64, text: Option<&SpeedText>) {
    let speed = text.map_or_else(String::new, |SpeedText { utilisation, elapsed, left }| {
        format!("  {utilisation:>6}  {elapsed:>8}  {left:>8}")
    });
    events::say!(
        "{:>6}  {:>8.4}  {:>9.3e}  {:>9.4}  {:>9}  {:>9}{}{speed}{}",
        row.step,
        row.loss,
        row.lr,
        row.grad_norm,
        grouped(rate as u64),
        human(peak),
        row.loss_scale.map_or_else(String::new, |scale| format!("  {scale:>10}")),
        if row.skipped { "  overflow: skipped" } else { "" },
    );
}
