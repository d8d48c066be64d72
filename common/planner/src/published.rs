//! Published step times beside the planner's estimates.

use serde::Serialize;
use shell::table::{Format, Table};
use std::collections::BTreeMap;
use timeline::calibration::{Comparison, Kind, TypicalError};
use timeline::{Calibration, SOURCES};

/// A published run and its estimate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PublishedRun {
    source: &'static str,
    model: &'static str,
    gpu: &'static str,
    gpus: usize,
    stage: prediction::Stage,
    strategy: prediction::Strategy,
    micro_batches: usize,
    batch_size: usize,
    tokens: usize,
    /// The part of a block's forward that backward recomputes.
    recomputed: f64,
    software: &'static str,
    /// Whether states are offloaded to main memory.
    offloaded: bool,
    /// Measured seconds per step.
    measured: f64,
    /// Estimated seconds per step.
    estimated: f64,
    /// The estimate's error: 0.1 if it is 10 % too long.
    error: f64,
}

impl PublishedRun {
    fn of(compared: &Comparison) -> Self {
        let (run, job) = (&compared.run, &compared.run.job);
        PublishedRun {
            source: run.source,
            model: run.model,
            gpu: run.gpu.label,
            gpus: job.world_size,
            stage: job.stage,
            strategy: job.strategy,
            micro_batches: job.micro_batches,
            batch_size: job.batch_size,
            tokens: job.tokens,
            recomputed: run.recomputed,
            software: run.software.label(),
            offloaded: run.offloads(),
            measured: run.seconds,
            estimated: compared.estimated_seconds(&Calibration::ALL_RUNS),
            error: compared.error(&Calibration::ALL_RUNS),
        }
    }
}

/// Returns every published run.
pub(crate) fn runs() -> Vec<PublishedRun> {
    Comparison::all().iter().map(PublishedRun::of).collect()
}

/// Returns how far estimates are from `runs`, by source and by kind.
pub(crate) fn render(runs: &[PublishedRun], format: Format) -> String {
    let sources = SOURCES.map(|(name, place)| format!("{name}: {place}\n"));
    format!(
        "{}\nErrors are rounded up. + and − say whether the farthest estimate is too long or too short.\n\
         Efficiencies are fitted to all of these runs. Below, each run is estimated with a\n\
         fit without its source, where runs of its kind have several:\n\n{}\n{}",
        by_source(runs).render(format),
        by_kind().render(format),
        sources.concat()
    )
}

/// Returns the errors of estimates by source and GPU.
fn by_source(runs: &[PublishedRun]) -> Table {
    let columns = ["runs", "GPUs", "median error", "largest"];
    let mut table = Table::numbers("published runs", columns);
    let mut groups: BTreeMap<(&str, &str), Vec<&PublishedRun>> = BTreeMap::new();
    for run in runs {
        groups.entry((run.source, run.gpu)).or_default().push(run);
    }
    for ((source, gpu), runs) in groups {
        let mut errors: Vec<f64> = runs.iter().map(|run| run.error).collect();
        errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let (median, largest) = (errors[errors.len() / 2], errors[errors.len() - 1]);
        let gpus = runs.iter().map(|run| run.gpus);
        let (fewest, most) = (gpus.clone().min().unwrap_or(0), gpus.max().unwrap_or(0));
        let gpus = if fewest == most { most.to_string() } else { format!("{fewest}–{most}") };
        let cells = [runs.len().to_string(), gpus, percent(median.abs()), signed(largest)];
        table.row(format!("{source}, {gpu}"), cells);
    }
    table
}

/// Returns the errors of estimates by kind of runs, which stand beside estimates.
fn by_kind() -> Table {
    let mut table = Table::numbers("errors beside estimates", ["runs", "median error", "largest"]);
    for kind in Kind::ALL {
        let TypicalError { gpus, runs, median, largest, is_held_out } = TypicalError::of(kind);
        let offloaded = if kind == Kind::Offloaded { ", states offloaded" } else { "" };
        let fit = if is_held_out { "" } else { ", same fit" };
        let name = format!("{gpus}{offloaded}{fit}");
        table.row(name, [runs.to_string(), percent(median), percent(largest)]);
    }
    table
}

/// Formats an error, rounded away from zero.
fn signed(error: f64) -> String {
    format!("{}{}", if error < 0.0 { "−" } else { "+" }, percent(error.abs()))
}

fn percent(share: f64) -> String {
    format!("{} %", (100.0 * share).ceil())
}
