//! `fit`: the largest micro-batch of each stage under a capacity, predicted and then measured.

use crate::single;
use clap::Args;
use events::Place;
use prediction::{Job, Stage, largest_batch_within, predict};
use settings::Config;
use settings::cli::TrainArgs;
use settings::size::human;
use shell::table::{Format, Table};
use trainer::{Failure, Result};

/// Maximum number of sequences to run. On larger devices a measurement would take long and show
/// nothing new.
const MOST: usize = 1024;
/// Steps of a run. The second reaches the peak.
const STEPS: u32 = 2;

/// The arguments of `fit`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Stages to fit
    #[arg(long, value_name = "STAGE,…", value_delimiter = ',', value_enum, default_values_t = Stage::ALL)]
    stages: Vec<Stage>,
    /// Only predict
    #[arg(long)]
    predict_only: bool,
    /// Settings of all runs; --device-memory is the capacity
    #[command(flatten)]
    train: TrainArgs,
}

/// The largest micro-batch of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    stage: Stage,
    /// Predicted maximum number of sequences; 0 if not even one fits.
    predicted: usize,
    /// The result of [`beyond`] for that number.
    beyond: Option<[u64; 3]>,
    measured: Option<Measured>,
}

/// The largest micro-batch that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Measured {
    /// Maximum number of sequences.
    batch: usize,
    /// Peak bytes with that number; 0 if none fits.
    peak: u64,
    /// The sizes tried, in order, and whether each one fitted.
    tried: Vec<(usize, bool)>,
}

/// Predicts, runs, and prints both results side by side.
///
/// # Errors
/// If the flags make no sense, a run fails for another reason than memory, or prediction and
/// measurement differ.
pub fn run(arguments: &Arguments) -> Result<()> {
    single::refuse(&arguments.train, "fit")?;
    let typed = |id: &str| arguments.train.given.typed(id).is_some();
    if typed("batch_size") {
        return Err(Failure::usage("fit looks for the largest --batch-size: leave it out"));
    }
    if typed("steps") {
        return Err(Failure::usage(format!("fit runs {STEPS} steps with each batch: leave --steps out")));
    }
    let Some(capacity) = arguments.train.memory.device_memory else {
        return Err(Failure::usage("fit needs a capacity: add --device-memory 40MB, say"));
    };
    let mut found = Vec::new();
    for &stage in &arguments.stages {
        found.push(fit(stage, arguments, capacity)?);
    }
    events::say!("{}", table(&found, capacity).render(Format::Terminal));
    beyond_table(&found).iter().for_each(|table| events::say!("{}", table.render(Format::Terminal)));
    for found in &found {
        found.measured.iter().for_each(|measured| events::say!("{}", tried(found.stage, measured)));
    }
    match found.iter().find(|found| found.measured.as_ref().is_some_and(|m| m.batch != found.predicted)) {
        None => Ok(()),
        Some(found) => Err(Failure::run(format!(
            "{}: prediction and measurement differ; one of the two has a bug",
            found.stage
        ))),
    }
}

fn fit(stage: Stage, arguments: &Arguments, capacity: u64) -> Result<Found> {
    let config = settings(&arguments.train)?;
    stages::check(stage, &config).map_err(|failure| {
        Failure::usage(format!("{failure}\nOr name the stages that can with --stages."))
    })?;
    let (job, _) = settings::planned::predict(stage, &config)?;
    let limits = [Some(capacity), config.memory.host_memory, None];
    let predicted = largest_batch_within(&job, limits).unwrap_or(0);
    let mut found = Found { stage, predicted, beyond: beyond(&job, predicted)?, measured: None };
    if arguments.predict_only {
        return Ok(found);
    }
    if predicted > MOST {
        return Err(Failure::usage(format!(
            "{} holds {predicted} sequences of {}: more than the {MOST} that are worth running\n\
             Choose less --device-memory, a larger --model or --seq-len, or --predict-only.",
            human(capacity),
            config.sequence_length,
        )));
    }
    events::complain!("{stage}: up to {predicted} predicted; running …");
    found.measured = Some(search(|batch| peak(stage, &config, batch))?);
    Ok(found)
}

/// Returns the bytes that a rank with `batch` sequences holds in main memory and on disk, and the
/// bytes that it moves per step between these and its device. `None` if nothing leaves the device.
fn beyond(job: &Job, batch: usize) -> Result<Option<[u64; 3]>> {
    let job = Job { batch_size: batch.max(1), ..job.clone() };
    let rank = predict(&job).map_err(Failure::usage)?.ranks[0];
    let bytes = [rank.host.total_peak, rank.disk.total_peak, rank.transfers.step.total_bytes()];
    Ok(job.placement.any().then_some(bytes))
}

/// Returns the largest micro-batch for which `peak` returns a peak: doubles until one does not fit,
/// then halves the distance.
fn search(peak: impl Fn(usize) -> Result<Option<u64>>) -> Result<Measured> {
    let mut measured = Measured { batch: 0, peak: 0, tried: Vec::new() };
    let mut too_large = 1;
    while attempt(&mut measured, too_large, &peak)? {
        too_large = too_large.checked_mul(2).ok_or_else(|| {
            Failure::run(format!("{too_large} sequences fit: the batch does not change the peak"))
        })?;
    }
    while too_large - measured.batch > 1 {
        let middle = measured.batch + (too_large - measured.batch) / 2;
        if !attempt(&mut measured, middle, &peak)? {
            too_large = middle;
        }
    }
    Ok(measured)
}

/// Tries one size. True if it fits.
fn attempt(
    measured: &mut Measured,
    batch: usize,
    peak: &impl Fn(usize) -> Result<Option<u64>>,
) -> Result<bool> {
    let fitted = peak(batch)?;
    measured.tried.push((batch, fitted.is_some()));
    if let Some(peak) = fitted {
        (measured.batch, measured.peak) = (batch, peak);
    }
    Ok(fitted.is_some())
}

/// Returns the peak bytes of a run with `batch` sequences, whatever was predicted; `None` if memory
/// ran out.
fn peak(stage: Stage, config: &Config, batch: usize) -> Result<Option<u64>> {
    let mut config = Config { steps: STEPS, screen: None, batch_size: batch, ..config.clone() };
    config.memory.ignore_plan = true;
    match stages::train(stage, config) {
        Ok(report) => Ok(report.peak(Place::Device)),
        Err(Failure::OutOfMemory(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Returns the settings of all runs, with one sequence per micro-batch even if a file sets more.
fn settings(args: &TrainArgs) -> Result<Config> {
    let mut args = args.clone();
    args.watching.headless = true;
    Ok(Config { batch_size: 1, ..deepspeed::configure(args)? })
}

fn table(found: &[Found], capacity: u64) -> Table {
    let title = format!("under {} per rank", human(capacity));
    let mut table = Table::numbers(title, ["predicted", "by running", "peak", ""]);
    for found in found {
        let sequences = |batch: usize| if batch == 0 { "none".to_string() } else { batch.to_string() };
        let cells = match &found.measured {
            None => [sequences(found.predicted), "-".into(), "-".into(), "-".into()],
            Some(measured) => {
                let verdict = if measured.batch == found.predicted { "equal" } else { "DIFFERENT" };
                let peak = if measured.batch == 0 { "-".into() } else { human(measured.peak) };
                [sequences(found.predicted), sequences(measured.batch), peak, verdict.into()]
            }
        };
        table.row(found.stage.label(), cells);
    }
    table
}

/// Returns a table of the data stored and moved beyond the device with the predicted batches.
/// `None` if there is none.
fn beyond_table(found: &[Found]) -> Option<Table> {
    let mut table = Table::numbers("with as many as predicted", ["main memory", "disk", "moved a step"]);
    for found in found {
        let cells = found.beyond?.map(|bytes| if bytes == 0 { "-".into() } else { human(bytes) });
        table.row(found.stage.label(), cells);
    }
    Some(table)
}

/// Returns `ZeRO-2 tried 1 ✓, 2 ✓, 4 ✗, 3 ✓`.
fn tried(stage: Stage, measured: &Measured) -> String {
    let mark = |(batch, fitted): &(usize, bool)| format!("{batch} {}", if *fitted { "✓" } else { "✗" });
    let all: Vec<String> = measured.tried.iter().map(mark).collect();
    format!("{:<7} tried {}", stage.label(), all.join(", "))
}

#[cfg(test)]
mod tests;
