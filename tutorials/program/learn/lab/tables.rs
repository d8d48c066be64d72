//! The evidence as tables: a faulty run next to the same run without the fault.

use super::case::{RANKS, STEPS};
use super::evidence::Evidence;
use events::LocalMetrics;
use shell::table::{Format, Table};

pub(crate) fn all(ill: &Evidence, healthy: &Evidence) -> String {
    let tables = [run(ill, healthy), contributions(ill, healthy), ranks(ill, healthy)];
    let tables = tables.map(|table| table.render(Format::Terminal)).join("\n");
    format!("{tables}\n* differs from the healthy run. {}", ending(ill))
}

/// Compares memory and traffic with the plan, or returns the error of the run.
fn ending(ill: &Evidence) -> String {
    match &ill.outcome {
        Ok(report) if report.predictions_hold() => "Memory and traffic are as predicted, to the byte.".into(),
        Ok(_) => "Memory or traffic are not as predicted.".into(),
        Err(failure) => format!("The run ended with this error:\n\n{failure}"),
    }
}

/// Returns a table of the run as a whole.
fn run(ill: &Evidence, healthy: &Evidence) -> Table {
    let columns = ["loss", "healthy", "norm", "healthy", "ms", "healthy"];
    let mut table = Table::numbers("the run, by step", columns);
    for step in 0..STEPS as usize {
        let cells = [ill, healthy].map(|run| {
            run.steps.get(step).map_or(["-".into(), "-".into(), "-".into()], |row| {
                [format!("{:.4}", row.loss), format!("{:.4}", row.grad_norm), milliseconds(row.seconds)]
            })
        });
        let [ill, healthy] = cells;
        let beside = ill.into_iter().zip(healthy).flat_map(|(ill, healthy)| [ill, healthy]);
        table.row(step.to_string(), beside);
    }
    table
}

/// Formats a rank's part of a step, and says whether it is the same in every healthy run.
type Cell = (fn(&LocalMetrics) -> String, bool);

/// Returns a table of each rank's contribution to a step.
fn contributions(ill: &Evidence, healthy: &Evidence) -> Table {
    let loss: Cell = (|part| format!("{:.4}", part.loss), true);
    let norm: Cell = (|part| format!("{:.4}", part.grad_norm), true);
    by_rank("each rank's part", ["loss", "norm"], [loss, norm], ill, healthy)
}

/// Returns a table of the parameters with which each rank computes, and how long it waits.
fn ranks(ill: &Evidence, healthy: &Evidence) -> Table {
    let parameters: Cell = (|part| format!("{:04x}", part.parameters >> 48), true);
    let waiting: Cell = (|part| milliseconds(part.waited), false);
    by_rank("holds, ms waited", ["param", "ms"], [parameters, waiting], ill, healthy)
}

/// Returns a table with a row per step and two cells per rank. A star marks a value that should be
/// constant but differs from the healthy run's.
fn by_rank(title: &str, names: [&str; 2], cells: [Cell; 2], ill: &Evidence, healthy: &Evidence) -> Table {
    let columns = names.into_iter().flat_map(|name| (0..RANKS).map(move |rank| format!("{name} {rank}")));
    let mut table = Table::numbers(title, columns);
    for step in (0..STEPS).filter(|&step| ill.part(step, 0).is_some()) {
        let cell = |(of, constant): Cell, rank| match (ill.part(step, rank), healthy.part(step, rank)) {
            (Some(ill), Some(healthy)) if constant && of(ill) != of(healthy) => format!("{}*", of(ill)),
            (Some(ill), _) => of(ill),
            (None, _) => "-".into(),
        };
        let row = cells.into_iter().flat_map(|of| (0..RANKS).map(move |rank| cell(of, rank)));
        table.row(step.to_string(), row);
    }
    table
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0}", 1e3 * seconds)
}
