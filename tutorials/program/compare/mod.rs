//! `compare`: runs stages with the same settings and compares them in numbers, pictures and a
//! recommendation.

mod document;
mod plot;
mod profile;
mod recommend;
mod steps;
mod tables;

use crate::single;
use clap::Args;
use events::say::{counted, grouped};
use prediction::Stage;
use profile::Profile;
use settings::Config;
use settings::cli::TrainArgs;
use settings::size::human;
use std::io::Write;
use std::path::{Path, PathBuf};
use trainer::{Failure, Report, Result};

/// Steps per run, unless --steps overrides it.
const STEPS: u32 = 20;

/// The arguments of `compare`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Stages to compare
    #[arg(long, value_name = "STAGE,…", value_delimiter = ',', value_enum, default_values_t = Stage::ALL)]
    stages: Vec<Stage>,
    /// Numbers of ranks to compare in addition to --gpus, each with the same batch per rank
    /// [default: its halves, down to 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    scaling: Option<Vec<usize>>,
    /// Sizes of buckets to compare, in elements, each for --reduce-bucket, --allgather-bucket and
    /// --prefetch-bucket
    #[arg(long, value_name = "ELEMENTS,…", value_delimiter = ',')]
    buckets: Vec<usize>,
    /// Folder for the tables, pictures and reports
    #[arg(long, value_name = "DIR", default_value = "comparison")]
    out: PathBuf,
    /// Settings of all runs (20 --steps unless given)
    #[command(flatten)]
    train: TrainArgs,
}

struct Run {
    stage: Stage,
    report: Report,
}

/// The result of a stage with the main settings.
struct Outcome {
    stage: Stage,
    /// The run, or the bytes that it needs if they exceed the device's memory.
    ran: std::result::Result<(Run, Profile), u64>,
}

impl Outcome {
    fn run(&self) -> Option<&Run> {
        self.ran.as_ref().ok().map(|(run, _)| run)
    }
}

struct Comparison {
    config: Config,
    outcomes: Vec<Outcome>,
    scaling: Vec<(usize, Run)>,
    buckets: Vec<(usize, Run)>,
}

/// Runs the stages, prints the comparison, and writes the folder.
///
/// # Errors
/// If the flags make no sense, a run fails for another reason than memory, or the folder cannot be
/// written.
pub fn run(arguments: &Arguments) -> Result<()> {
    single::refuse(&arguments.train, "compare")?;
    if let Some(twice) = repeated(&arguments.stages) {
        return Err(Failure::usage(format!("--stages names {twice} twice: each stage has one column")));
    }
    let zero = |sizes: &[usize]| sizes.contains(&0);
    if zero(&arguments.buckets) || arguments.scaling.as_deref().is_some_and(zero) {
        return Err(Failure::usage("--scaling and --buckets take numbers of at least 1"));
    }
    let probe = std::fs::create_dir_all(&arguments.out).and_then(|()| tempfile::tempfile_in(&arguments.out));
    probe.map_err(|e| cannot_write(&arguments.out, &e))?;
    let comparison = gather(arguments)?;
    events::say!("{}", document::terminal(&comparison).trim_end());
    if comparison.outcomes.iter().all(|outcome| outcome.run().is_none()) {
        return Err(Failure::run(recommend::recommendation(&comparison)));
    }
    let written = document::write(&comparison, &arguments.out)?;
    events::say!("\nwritten to {}: {}", arguments.out.display(), written.join(", "));
    Ok(())
}

/// Returns a stage that is listed twice.
fn repeated(stages: &[Stage]) -> Option<Stage> {
    let before = |at: usize| stages[..at].contains(&stages[at]);
    (0..stages.len()).find(|&at| before(at)).map(|at| stages[at])
}

fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::run(format!("cannot write to --out {}: {error}", path.display()))
}

fn gather(arguments: &Arguments) -> Result<Comparison> {
    let base = settings(&arguments.train)?;
    let by_ranks = ranks(arguments, base.world_size).into_iter();
    let by_ranks: Vec<_> =
        by_ranks.map(|n| Ok((n, on_ranks(n, arguments, &base)?))).collect::<Result<_>>()?;
    let by_buckets = arguments.buckets.iter();
    let by_buckets: Vec<_> =
        by_buckets.map(|&n| Ok((n, with_buckets(n, arguments, &base)?))).collect::<Result<_>>()?;
    let mut comparison = Comparison { config: base, outcomes: vec![], scaling: vec![], buckets: vec![] };
    for &stage in &arguments.stages {
        comparison.outcomes.push(outcome(stage, &comparison.config)?);
    }
    let fitting: Vec<Stage> =
        comparison.outcomes.iter().filter_map(Outcome::run).map(|run| run.stage).collect();
    for (ranks, config) in by_ranks {
        for &stage in &fitting {
            let run = outcome_of(stage, config.clone(), &format!("on {}", counted(ranks, "rank", "ranks")))?;
            comparison.scaling.extend(run.map(|run| (ranks, run)));
        }
    }
    for (bucket, config) in by_buckets {
        for &stage in &fitting {
            let run = outcome_of(stage, config.clone(), &format!("with buckets of {bucket}"))?;
            comparison.buckets.extend(run.map(|run| (bucket, run)));
        }
    }
    Ok(comparison)
}

fn settings(args: &TrainArgs) -> Result<Config> {
    let mut args = args.clone();
    args.watching.headless = true;
    if args.given.typed("steps").is_none() {
        args.training.steps = STEPS;
    }
    deepspeed::configure(args)
}

/// Returns the settings of `base` on `ranks` ranks, with its batch per rank, even if a file sets
/// the batch of all ranks.
fn on_ranks(ranks: usize, arguments: &Arguments, base: &Config) -> Result<Config> {
    let mut args = arguments.train.clone();
    args.gpus = ranks;
    (args.training.batch_size, args.training.grad_accum) = (Some(base.batch_size), base.micro_batches);
    args.given.fix("gpus", ranks);
    args.given.fix("batch_size", base.batch_size);
    args.given.fix("grad_accum", base.micro_batches);
    swept(&args, base)
}

/// Returns the settings of `base` with buckets of `elements` elements, even if a file sets others.
fn with_buckets(elements: usize, arguments: &Arguments, base: &Config) -> Result<Config> {
    let mut args = arguments.train.clone();
    let buckets = &mut args.communication;
    buckets.reduce_bucket = Some(elements);
    buckets.allgather_bucket = Some(elements);
    buckets.prefetch_bucket = Some(elements);
    for id in ["reduce_bucket", "allgather_bucket", "prefetch_bucket"] {
        args.given.fix(id, elements);
    }
    swept(&args, base)
}

/// Returns the settings of a run of a sweep. Its warnings are those of `base`: a sweep contradicts
/// the file on purpose.
fn swept(args: &TrainArgs, base: &Config) -> Result<Config> {
    Ok(Config { findings: base.findings.clone(), ..settings(args)? })
}

/// Returns the numbers of ranks to run with, in addition to the `gpus` of the main runs.
fn ranks(arguments: &Arguments, gpus: usize) -> Vec<usize> {
    let halves = std::iter::successors(Some(gpus / 2), |n| Some(n / 2)).take_while(|n| *n > 0);
    let mut ranks = arguments.scaling.clone().unwrap_or_else(|| halves.collect());
    ranks.retain(|n| *n != gpus);
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Runs `stage` and keeps its memory profile.
fn outcome(stage: Stage, config: &Config) -> Result<Outcome> {
    let folder = tempfile::tempdir().map_err(|e| Failure::run(format!("no temporary folder: {e}")))?;
    let recording = folder.path().join("run");
    let mut config = config.clone();
    config.output.record = Some(recording.clone());
    let ran = match outcome_of(stage, config.clone(), "")? {
        Some(run) => Ok((run, Profile::read(&recording).map_err(Failure::run)?)),
        None => Err(settings::planned::predict(stage, &config)?.1.peak.total()),
    };
    Ok(Outcome { stage, ran })
}

/// Runs `stage`. Returns `None` if it runs out of memory.
fn outcome_of(stage: Stage, config: Config, how: &str) -> Result<Option<Run>> {
    // A closed stderr is no reason to stop.
    let _ = write!(std::io::stderr(), "{} … ", format!("{stage} {how}").trim_end());
    match stages::train(stage, config) {
        Ok(report) => {
            let speed = tables::tokens_per_second(&report) as u64;
            events::complain!("{} tokens/s, {}", grouped(speed), human(tables::peak(&report)));
            Ok(Some(Run { stage, report }))
        }
        Err(Failure::OutOfMemory(_)) => {
            events::complain!("does not fit");
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests;
