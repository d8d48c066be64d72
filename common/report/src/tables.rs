//! The closing tables: predicted and measured memory and traffic.

use crate::account::Recomputed;
use crate::hardware_rows::taken;
use crate::report::Report;
use crate::rows::{MemoryRow, StepRow};
use events::Place;
use events::say::{counted, grouped, time};
use settings::size::human;
use shell::table::{Format, Table};
use std::collections::BTreeMap;

/// Renders the summary of a finished run.
pub fn closing(report: &Report) -> String {
    if report.steps.is_empty() {
        return "\nEnded before its first step was done: predictions are for whole steps.\n".into();
    }
    let (gpu, again) = (taken(&report.gpu), recomputed(report));
    let moved = transfers(report);
    format!("{}{gpu}{again}{}{moved}{}", memory(report), traffic(report), summary(report))
}

fn table(title: String) -> Table {
    Table::numbers(title, ["predicted", "measured", "", ""])
}

fn row(table: &mut Table, name: &str, predicted: u64, measured: u64) {
    table.row(name, bytes(predicted, measured));
}

/// Returns the cells of predicted and measured bytes.
fn bytes(predicted: u64, measured: u64) -> [String; 4] {
    [grouped(predicted), grouped(measured), human(measured), verdict(predicted, measured, " B")]
}

/// Returns the cells of predicted and measured bytes, of measured calls, and of the verdict: about
/// the bytes if they differ, else about the calls, which `unit` names.
fn cells([predicted, measured]: [u64; 2], [predicted_calls, calls]: [u64; 2], unit: &str) -> [String; 4] {
    let verdict = if predicted == measured {
        verdict(predicted_calls, calls, unit)
    } else {
        verdict(predicted, measured, " B")
    };
    [grouped(predicted), grouped(measured), grouped(calls), verdict]
}

/// Returns `equal`, or the amount by which the measured figure is larger.
fn verdict(predicted: u64, measured: u64, unit: &str) -> String {
    match i128::from(measured) - i128::from(predicted) {
        0 => "equal".into(),
        difference => format!("{difference:+}{unit}"),
    }
}

/// Renders one table per kind of rank: ranks with equal rows share one.
fn memory(report: &Report) -> String {
    let mut kinds: BTreeMap<Vec<(u64, u64)>, Vec<usize>> = BTreeMap::new();
    for rank in 0..report.world_size {
        let rows = report.memory.iter().filter(|row| row.rank == rank);
        let totals = report.total_peak_bytes.iter().filter(|total| total.rank == rank);
        let figures = rows.map(|row| (row.predicted_bytes, row.peak_bytes));
        let figures = figures.chain(totals.map(|total| (total.predicted_bytes, total.peak_bytes))).collect();
        kinds.entry(figures).or_default().push(rank);
    }
    let mut ranks: Vec<Vec<usize>> = kinds.into_values().collect();
    ranks.sort();
    ranks.iter().map(|ranks| format!("\n{}", memory_of(report, ranks))).collect()
}

fn memory_of(report: &Report, ranks: &[usize]) -> String {
    let whose = match ranks {
        [_] | [] => format!("rank {}", ranks.first().unwrap_or(&0)),
        _ if ranks.len() == report.world_size => "each rank".into(),
        _ => format!("ranks {}", ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    };
    let rank = ranks.first().copied().unwrap_or(0);
    let mut tables = String::new();
    let totals: Vec<_> = report.total_peak_bytes.iter().filter(|total| total.rank == rank).collect();
    for total in &totals {
        let what = if totals.len() > 1 { total.place.label() } else { "peak bytes" };
        let mut table = table(format!("{what}, {whose}"));
        let used =
            |r: &&MemoryRow| r.rank == rank && r.place == total.place && r.predicted_bytes + r.peak_bytes > 0;
        for r in report.memory.iter().filter(used) {
            row(&mut table, r.class.label(), r.predicted_bytes, r.peak_bytes);
        }
        if total.place == Place::Device || total.predicted_bytes + total.peak_bytes > 0 {
            row(&mut table, "= at any one time", total.predicted_bytes, total.peak_bytes);
            let between = if tables.is_empty() { "" } else { "\n" };
            tables.push_str(&format!("{between}{}", table.render(Format::Terminal)));
        }
    }
    tables
}

/// Renders the transfers of rank 0 between its places; empty if nothing is offloaded.
fn transfers(report: &Report) -> String {
    if report.transfers.is_empty() {
        return String::new();
    }
    let mut table = Table::numbers("moved by rank 0", ["predicted", "measured", "transfers", ""]);
    for r in report.transfers.iter().filter(|r| r.rank == 0 && r.calls + r.predicted_calls > 0) {
        let moved = [r.predicted_bytes, r.bytes];
        table.row(r.route.label(), cells(moved, [r.predicted_calls, r.calls], " transfers"));
    }
    format!("\n{}", table.render(Format::Terminal))
}

fn traffic(report: &Report) -> String {
    if report.world_size == 1 {
        return "\nA single rank sends nothing.\n".into();
    }
    let title = format!("sent by rank 0, {}", counted(report.steps.len(), "step", "steps"));
    let mut table = Table::numbers(title, ["predicted", "measured", "calls", ""]);
    for r in report.traffic.iter().filter(|r| r.rank == 0 && r.calls + r.predicted_calls > 0) {
        let sent = [r.predicted_bytes, r.bytes_sent];
        table.row(r.operation.label(), cells(sent, [r.predicted_calls, r.calls], " calls"));
    }
    if let Some(r) = report.traffic_to_neighbours.first() {
        let [predicted, measured, _, verdict] = bytes(r.predicted_bytes, r.bytes_sent);
        table.row("of that to neighbours", [predicted, measured, String::new(), verdict]);
    }
    format!("\n{}", table.render(Format::Terminal))
}

fn summary(report: &Report) -> String {
    let throughput = &report.throughput;
    let loss = |row: Option<&StepRow>| row.map_or(f64::NAN, |row| row.loss);
    let validation =
        report.evaluations.last().map(|e| format!(", validation {:.4}", e.loss)).unwrap_or_default();
    format!(
        "\n{} · {} parameters · {}{} · {}\n\
         loss {:.4} → {:.4} nats per token{validation}{}\n\
         {} tokens/s · {:.1} GFLOP/s\n\
         weights blake3 {}\n",
        report.stage,
        grouped(report.model.parameters),
        counted(report.world_size, "rank", "ranks"),
        report
            .link
            .as_ref()
            .map(|link| format!(" over a SIMULATED link ({})", link.name))
            .unwrap_or_default(),
        counted(report.steps.len(), "step", "steps"),
        loss(report.steps.first()),
        loss(report.steps.last()),
        skipped(report),
        grouped(throughput.tokens_per_second as u64),
        throughput.model_flops_per_second / 1e9,
        report.weights_blake3.get(..16).unwrap_or_default(),
    )
}

/// Renders the cost of activation checkpointing: predicted operations and measured time. Empty if
/// there is none.
fn recomputed(report: &Report) -> String {
    let Some(recomputed) = Recomputed::of(report) else { return String::new() };
    let share = |part: f64| format!("{:.2} %", 100.0 * part);
    let mut table = table("recomputed, per rank".into());
    let (predicted, measured) = (recomputed.operations(), time(recomputed.seconds));
    table.row("in a step", [predicted, measured, String::new(), String::new()]);
    let shares =
        [share(recomputed.of_operations), share(recomputed.of_seconds), String::new(), String::new()];
    table.row("of forward and backward", shares);
    format!("\n{}", table.render(Format::Terminal))
}

/// Describes the cost of loss scaling; empty if there was none.
fn skipped(report: &Report) -> String {
    let scale = report.steps.last().and_then(|row| row.loss_scale);
    scale.map_or(String::new(), |scale| {
        let skipped = counted(report.skipped_steps as usize, "step", "steps");
        format!("; {skipped} skipped by overflow, last loss scale {scale}")
    })
}
