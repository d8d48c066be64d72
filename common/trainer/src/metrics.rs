//! `--metrics`: a row for every step and validation, written as the run goes.

use crate::plan::Plan;
use crate::run::News;
use crate::speed::Speed;
use events::lock;
use report::StepRow;
use serde_json::{Value, json};
use settings::{Failure, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The columns of CSV, which are the keys of JSON.
const COLUMNS: [&str; 13] = [
    "step",
    "loss",
    "grad_norm",
    "lr",
    "tokens",
    "seconds",
    "tokens_per_second",
    "mfu",
    "elapsed_seconds",
    "peak_bytes",
    "loss_scale",
    "skipped",
    "validation_loss",
];

/// The file, and why it ended before the run.
struct Rows {
    file: File,
    error: Option<io::Error>,
}

/// The rows of a run: JSON lines, or CSV if the file's name ends so.
pub(crate) struct Metrics {
    path: PathBuf,
    is_csv: bool,
    speed: Arc<Speed>,
    rows: Mutex<Rows>,
}

impl Metrics {
    /// Creates the file that `plan` asks for, if it does; a resumed run appends to it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn open(plan: &Plan, speed: &Arc<Speed>) -> Result<Option<Self>> {
        let Some(path) = plan.config.output.metrics.clone() else { return Ok(None) };
        let failed =
            |error: io::Error| Failure::run(format!("cannot write --metrics {}: {error}", path.display()));
        let resumes = plan.first_step() > 0;
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        if !resumes {
            file.set_len(0).map_err(failed)?;
        }
        let empty = file.metadata().map_err(failed)?.len() == 0;
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        let rows = Mutex::new(Rows { file, error: None });
        let metrics = Metrics { path, is_csv, speed: speed.clone(), rows };
        if is_csv && empty {
            metrics.write(&COLUMNS.join(","));
        }
        Ok(Some(metrics))
    }

    /// Writes news of the rank that writes for all.
    pub(crate) fn tell(&self, news: News<'_>) {
        match news {
            News::Step(row, peak) => self.row(&self.step(row, peak)),
            News::Validation(steps, loss) => self.row(&json!({ "step": steps, "validation_loss": loss })),
            News::Checkpoint(..) => {}
        }
    }

    fn step(&self, row: &StepRow, peak: u64) -> Value {
        let rate = row.tokens as f64 / row.seconds.max(1e-9);
        json!({
            "step": row.step, "loss": row.loss, "grad_norm": row.grad_norm, "lr": row.lr,
            "tokens": row.tokens, "seconds": row.seconds, "tokens_per_second": rate,
            "mfu": self.speed.utilisation(rate), "elapsed_seconds": self.speed.elapsed().as_secs_f64(),
            "peak_bytes": peak, "loss_scale": row.loss_scale, "skipped": row.skipped,
        })
    }

    fn row(&self, values: &Value) {
        if !self.is_csv {
            return self.write(&values.to_string());
        }
        let cell = |key: &&str| match &values[*key] {
            Value::Null => String::new(),
            value => value.to_string(),
        };
        self.write(&COLUMNS.iter().map(cell).collect::<Vec<_>>().join(","));
    }

    /// Writes a line, unless an earlier one has failed: metrics end no run.
    fn write(&self, line: &str) {
        let mut rows = lock(&self.rows);
        if rows.error.is_none() {
            rows.error = rows.file.write_all(format!("{line}\n").as_bytes()).err();
        }
    }

    /// Returns what is wrong with the file, if anything.
    pub(crate) fn problem(&self) -> Option<String> {
        let mut rows = lock(&self.rows);
        let error = rows.error.take()?;
        Some(format!("the run is done, but --metrics {} is incomplete: {error}", self.path.display()))
    }
}
