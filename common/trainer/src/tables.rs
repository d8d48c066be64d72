//! The closing tables: where every byte went, predicted beside measured.

use crate::report::Report;
use crate::size::{grouped, human};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use std::collections::BTreeSet;

/// The summary of a finished run.
pub(crate) fn closing(report: &Report) -> String {
    let mut text = memory(report);
    text.push_str(&traffic(report));
    text.push_str(&summary(report));
    text
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().enumerate().map(|(i, title)| {
        Cell::new(title).set_alignment(if i == 0 { CellAlignment::Left } else { CellAlignment::Right })
    }));
    for i in 1..header.len() {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn verdict(predicted: u64, measured: u64) -> String {
    match measured as i128 - predicted as i128 {
        0 => "equal".into(),
        difference => format!("{difference:+} B"),
    }
}

/// Ranks whose rows are alike are shown once.
fn memory(report: &Report) -> String {
    let mut out = String::new();
    let rows = |rank: usize| {
        let classes = report.memory.iter().filter(move |row| row.rank == rank);
        classes.map(|row| (row.class, row.predicted_bytes, row.peak_bytes)).collect::<Vec<_>>()
    };
    let distinct: BTreeSet<_> = (0..report.world_size).map(rows).collect();
    for rows in &distinct {
        let rank = (0..report.world_size).find(|&rank| &self::memory_rows(report, rank) == rows).unwrap_or(0);
        let whose = if distinct.len() == 1 { "every rank".into() } else { format!("rank {rank}") };
        out.push_str(&format!("\nPeak memory of {whose}, in bytes\n"));
        let mut table = table(&["class", "predicted", "measured", "", ""]);
        for (class, predicted, measured) in rows.iter().filter(|(_, p, m)| p + m > 0) {
            table.add_row([
                (*class).to_string(),
                grouped(*predicted),
                grouped(*measured),
                human(*measured),
                verdict(*predicted, *measured),
            ]);
        }
        if let Some(total) = report.total_peak_bytes.get(rank) {
            let (p, m) = (total.predicted_bytes, total.peak_bytes);
            table.add_row(["all at once".into(), grouped(p), grouped(m), human(m), verdict(p, m)]);
        }
        out.push_str(&format!("{table}\n"));
    }
    out
}

fn memory_rows(report: &Report, rank: usize) -> Vec<(&'static str, u64, u64)> {
    let rows = report.memory.iter().filter(|row| row.rank == rank);
    rows.map(|row| (row.class, row.predicted_bytes, row.peak_bytes)).collect()
}

fn traffic(report: &Report) -> String {
    if report.world_size == 1 {
        return "\nOne rank has nobody to send to.\n".into();
    }
    let mut table = table(&["operation", "calls", "predicted", "sent", "", ""]);
    for row in report.traffic.iter().filter(|row| row.rank == 0 && row.calls > 0) {
        table.add_row([
            row.operation.to_string(),
            grouped(row.calls),
            grouped(row.predicted_bytes),
            grouped(row.bytes_sent),
            human(row.bytes_sent),
            verdict(row.predicted_bytes, row.bytes_sent),
        ]);
    }
    format!("\nSent by rank 0 in {} steps, in bytes\n{table}\n", report.steps.len())
}

fn summary(report: &Report) -> String {
    let t = &report.throughput;
    let (first, last) = (report.steps.first(), report.steps.last());
    let loss = |row: Option<&crate::report::StepRow>| row.map_or(f64::NAN, |row| row.loss);
    format!(
        "\n{} · {} parameters · {} ranks · {} steps\n\
         loss {:.4} → {:.4} nats per token{}\n\
         {} tokens/s · {:.1} GFLOP/s\n\
         weights blake3 {}\n",
        report.stage,
        grouped(report.model.parameters),
        report.world_size,
        report.steps.len(),
        loss(first),
        loss(last),
        skipped(report),
        grouped(t.tokens_per_second as u64),
        t.model_flops_per_second / 1e9,
        &report.weights_blake3[..report.weights_blake3.len().min(16)],
    )
}

fn skipped(report: &Report) -> String {
    let scale = report.steps.last().and_then(|row| row.loss_scale);
    scale.map_or(String::new(), |scale| {
        format!("; {} steps skipped by overflow, last loss scale {scale}", report.skipped_steps)
    })
}
