//! `fit`: the largest micro-batch of each stage under a capacity, predicted and then measured.

use crate::single;
use clap::Args;
use planner::table::{Format, Table};
use planner::{Stage, explain_fit};
use settings::Config;
use settings::cli::TrainArgs;
use settings::size::human;
use trainer::{Failure, Result};

/// The most sequences to run. For larger devices a measurement would take long and show nothing
/// new.
const MOST: usize = 1024;

/// Which stages, and under which capacity.
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
    /// Most sequences, as predicted; 0 if not even one fits.
    predicted: usize,
    /// The measurement.
    measured: Option<Measured>,
}

/// The largest micro-batch, measured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Measured {
    /// Most sequences.
    batch: usize,
    /// Peak bytes with that many; 0 for none.
    peak: u64,
    /// The sizes tried, in order, and whether each fitted.
    tried: Vec<(usize, bool)>,
}

/// Predicts, runs, and prints both side by side.
///
/// # Errors
/// If the flags make no sense, a run fails for another reason than memory, or prediction and
/// measurement differ.
pub fn run(arguments: &Arguments) -> Result<()> {
    single::refuse(&arguments.train, "fit")?;
    let Some(capacity) = arguments.train.memory.device_memory else {
        return Err(Failure::usage("fit needs a capacity: add --device-memory 40MB, say"));
    };
    let mut found = Vec::new();
    for &stage in &arguments.stages {
        found.push(fit(stage, arguments, capacity)?);
    }
    events::say!("{}", table(&found, capacity).render(Format::Terminal));
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
    let config = with_batch(&arguments.train, 1)?;
    let (job, _) = settings::prediction::predict(stage, &config)?;
    let fit = explain_fit(&job, capacity).map_err(|e| Failure::usage(e.to_string()))?;
    let predicted =
        fit.stages.iter().find(|fit| fit.stage == stage).and_then(|fit| fit.largest_batch).unwrap_or(0);
    if arguments.predict_only {
        return Ok(Found { stage, predicted, measured: None });
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
    Ok(Found { stage, predicted, measured: Some(search(|batch| peak(stage, arguments, batch))?) })
}

/// Returns the largest micro-batch for which `peak` returns a peak: doubles until one does not fit,
/// then halves the distance.
fn search(peak: impl Fn(usize) -> Result<Option<u64>>) -> Result<Measured> {
    let mut measured = Measured { batch: 0, peak: 0, tried: Vec::new() };
    let mut too_large = 1;
    while attempt(&mut measured, too_large, &peak)? {
        too_large *= 2;
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
fn peak(stage: Stage, arguments: &Arguments, batch: usize) -> Result<Option<u64>> {
    let config = Config { steps: 2, ignore_plan: true, screen: None, ..with_batch(&arguments.train, batch)? };
    match stages::train(stage, config) {
        Ok(report) => Ok(report.total_peak_bytes.iter().map(|row| row.peak_bytes).max()),
        Err(Failure::OutOfMemory(_)) => Ok(None),
        Err(other) => Err(other),
    }
}

fn with_batch(args: &TrainArgs, batch: usize) -> Result<Config> {
    let mut args = args.clone();
    (args.training.batch_size, args.watching.headless) = (Some(batch), true);
    deepspeed::configure(args)
}

fn table(found: &[Found], capacity: u64) -> Table {
    let mut table = Table::numbers(
        format!("under {} per rank", human(capacity)),
        ["predicted", "by running", "peak", ""],
    );
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

/// Returns `ZeRO-2 tried 1 ✓, 2 ✓, 4 ✗, 3 ✓`.
fn tried(stage: Stage, measured: &Measured) -> String {
    let mark = |(batch, fitted): &(usize, bool)| format!("{batch} {}", if *fitted { "✓" } else { "✗" });
    let all: Vec<String> = measured.tried.iter().map(mark).collect();
    format!("{:<7} tried {}", stage.label(), all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searching_finds_the_last_that_fits() {
        for largest in 0..40 {
            let found = search(|batch| Ok((batch <= largest).then_some(batch as u64 * 10))).unwrap();
            assert_eq!((found.batch, found.peak), (largest, largest as u64 * 10));
            assert!(found.tried.len() <= 12, "{:?}", found.tried);
        }
    }

    #[test]
    fn prediction_and_running_find_the_same() {
        let flags = "x --device-memory 300kB --model tiny --gpus 2 --seq-len 8 --threads 1";
        #[derive(clap::Parser)]
        struct Program {
            #[command(flatten)]
            arguments: Arguments,
        }
        let program: Program = clap::Parser::parse_from(flags.replace("300kB", "12MB").split_whitespace());
        let found: Vec<Found> =
            Stage::ALL.into_iter().map(|stage| fit(stage, &program.arguments, 12_000_000).unwrap()).collect();
        for found in &found {
            assert_eq!(found.measured.as_ref().unwrap().batch, found.predicted, "{}", found.stage);
        }
        assert_eq!(found[0].predicted, 0, "DDP's model states alone are larger");
        assert!(found[3].predicted >= found[2].predicted && found[2].predicted > found[1].predicted);
        insta::assert_snapshot!(table(&found, 12_000_000).render(Format::Terminal));
    }
}
