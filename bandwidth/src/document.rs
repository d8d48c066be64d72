//! The measurements as JSON.

use crate::model::Model;
use crate::row::Row;
use serde::Serialize;

#[derive(Serialize)]
struct Document {
    ranks: usize,
    rows: Vec<Measured>,
    links: Vec<Fitted>,
}

#[derive(Serialize)]
struct Measured {
    operation: &'static str,
    engine: String,
    bytes: usize,
    calls: usize,
    median_seconds: f64,
    best_seconds: f64,
    /// Of the median call, in bytes per second, as all bandwidths here.
    algorithm_bandwidth: f64,
    bus_bandwidth: f64,
}

#[derive(Serialize)]
struct Fitted {
    engine: String,
    latency_seconds: f64,
    bytes_per_second: f64,
    /// The median share by which the link misses the rows' medians.
    error: f64,
    /// The value that `--link` takes.
    flag: String,
}

/// Returns the document; `None` without measurements.
pub(crate) fn json(rows: &[Row], models: &[Model]) -> Option<String> {
    let measured = |row: &Row| Measured {
        operation: row.operation.label(),
        engine: row.engine.label(),
        bytes: row.size,
        calls: row.calls,
        median_seconds: row.median.as_secs_f64(),
        best_seconds: row.best.as_secs_f64(),
        algorithm_bandwidth: row.algorithm(row.median) * 1e9,
        bus_bandwidth: row.bus(row.median) * 1e9,
    };
    let fitted = |model: &Model| Fitted {
        engine: model.engine.label(),
        latency_seconds: model.link.latency.as_secs_f64(),
        bytes_per_second: model.link.bandwidth,
        error: model.error,
        flag: model.flag(),
    };
    let document = Document {
        ranks: rows.first()?.ranks,
        rows: rows.iter().map(measured).collect(),
        links: models.iter().map(fitted).collect(),
    };
    serde_json::to_string_pretty(&document).ok()
}
