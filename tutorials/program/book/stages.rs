//! Measurements of all stages side by side, for the README's table.

use crate::learn::question::Figure;
use crate::learn::runs::{Run, Runs};
use events::Class;
use events::say::grouped;
use prediction::Stage;
use trainer::{Report, Result};

/// The run behind most guesses of the first chapter. Runs with the same flags are executed once.
const FIVE: &str = "--gpus 4 --steps 5 --headless";

/// Returns a table with a row per stage.
pub(super) fn text(runs: &Runs) -> Result<String> {
    let row = |stage| Ok(row(stage, &*runs.report(&Run::new(stage, FIVE))?));
    let rows = Stage::ALL.into_iter().map(row).collect::<Result<String>>()?;
    let titles = "| | run it | parameters | gradients | optimizer | temporary¹ | sent |";
    Ok(format!("{titles}\n|---|---|--:|--:|--:|--:|--:|\n{rows}"))
}

fn row(stage: Stage, report: &Report) -> String {
    let peak = |class| Figure::Peak(class).of(report).1;
    let [parameters, gradients, optimizer] =
        [Class::Parameters, Class::Gradients, Class::Optimizer].map(peak).map(grouped);
    let temporary = grouped(peak(Class::CommunicationBuckets) + peak(Class::GatheredParameters));
    let sweep = report.model.parameters as f64 * 4.0 * 3.0 / 4.0 * report.steps.len() as f64;
    let sent = Figure::SentInAll.of(report).1 as f64 / sweep;
    let note = if sent.fract() == 0.0 { "" } else { "²" };
    let states = format!("{parameters} | {gradients} | {optimizer}");
    format!("| {stage} | `cargo run -p {}` | {states} | {temporary} | {sent:.2}{note} |\n", stage.package())
}
