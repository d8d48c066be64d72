//! `compare`: stages with the same settings side by side, in numbers, pictures and a
//! recommendation.

mod document;
mod plot;
mod profile;
mod recommend;
mod steps;
mod tables;

use crate::single;
use clap::Args;
use planner::Stage;
use planner::table::{counted, grouped};
use profile::Profile;
use settings::Config;
use settings::cli::TrainArgs;
use settings::size::human;
use std::io::Write;
use std::path::{Path, PathBuf};
use trainer::{Failure, Report, Result};

/// Steps per run, unless --steps is given.
const STEPS: u32 = 20;

/// What to compare.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Stages to compare
    #[arg(long, value_name = "STAGE,…", value_delimiter = ',', value_enum, default_values_t = Stage::ALL)]
    stages: Vec<Stage>,
    /// Numbers of ranks to compare beside --gpus, each with the same batch per rank [default: its
    /// halves, down to 1]
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

/// A stage with the settings as they are.
struct Outcome {
    stage: Stage,
    /// Its run, or the bytes that it needs, more than the device has.
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

fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::run(format!("cannot write to --out {}: {error}", path.display()))
}

fn gather(arguments: &Arguments) -> Result<Comparison> {
    let base = settings(&arguments.train, |_| {})?;
    let mut comparison = Comparison { config: base, outcomes: vec![], scaling: vec![], buckets: vec![] };
    for &stage in &arguments.stages {
        comparison.outcomes.push(outcome(stage, &comparison.config)?);
    }
    let fitting: Vec<Stage> =
        comparison.outcomes.iter().filter_map(Outcome::run).map(|run| run.stage).collect();
    for ranks in ranks(arguments) {
        let config = settings(&arguments.train, |args| args.gpus = ranks)?;
        for &stage in &fitting {
            let run = outcome_of(stage, config.clone(), &format!("on {}", counted(ranks, "rank", "ranks")))?;
            comparison.scaling.extend(run.map(|run| (ranks, run)));
        }
    }
    for &bucket in &arguments.buckets {
        let config = settings(&arguments.train, |args| {
            let buckets = &mut args.communication;
            buckets.reduce_bucket = Some(bucket);
            buckets.allgather_bucket = Some(bucket);
            buckets.prefetch_bucket = Some(bucket);
        })?;
        for &stage in &fitting {
            let run = outcome_of(stage, config.clone(), &format!("with buckets of {bucket}"))?;
            comparison.buckets.extend(run.map(|run| (bucket, run)));
        }
    }
    Ok(comparison)
}

fn settings(args: &TrainArgs, change: impl FnOnce(&mut TrainArgs)) -> Result<Config> {
    let mut args = args.clone();
    args.watching.headless = true;
    if args.given.typed("steps").is_none() {
        args.training.steps = STEPS;
    }
    change(&mut args);
    deepspeed::configure(args)
}

/// Returns the other numbers of ranks to run with.
fn ranks(arguments: &Arguments) -> Vec<usize> {
    let gpus = arguments.train.gpus;
    let halves = std::iter::successors(Some(gpus / 2), |n| Some(n / 2)).take_while(|n| *n > 0);
    let mut ranks = arguments.scaling.clone().unwrap_or_else(|| halves.collect());
    ranks.retain(|n| *n != gpus);
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Runs `stage` and keeps the profile of its memory.
fn outcome(stage: Stage, config: &Config) -> Result<Outcome> {
    let folder = tempfile::tempdir().map_err(|e| Failure::run(format!("no temporary folder: {e}")))?;
    let recording = folder.path().join("run");
    let mut config = config.clone();
    config.output.record = Some(recording.clone());
    let ran = match outcome_of(stage, config.clone(), "")? {
        Some(run) => Ok((run, Profile::read(&recording).map_err(Failure::run)?)),
        None => Err(settings::prediction::predict(stage, &config)?.1.peak.total()),
    };
    Ok(Outcome { stage, ran })
}

/// Runs `stage`. Returns `None` if it runs out of memory.
fn outcome_of(stage: Stage, config: Config, how: &str) -> Result<Option<Run>> {
    // Nobody may read it: that is no reason to stop.
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
