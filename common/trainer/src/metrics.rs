//! `--metrics`: a row for every step and validation, written while the run continues.

use crate::line_file::{LineFile, OpenMode};
use crate::plan::Plan;
use crate::run::RunEvent;
use crate::speed::Speed;
use report::StepRow;
use serde_json::{Value, json};
use settings::{Failure, Result};
use std::sync::Arc;

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

/// The rows of a run: CSV if the file's name ends in `.csv`, else JSON lines.
pub(crate) struct Metrics {
    file: LineFile,
    is_csv: bool,
    speed: Arc<Speed>,
}

impl Metrics {
    /// Creates the file that `plan` names; `None` if it names none. A resumed run appends to it.
    ///
    /// # Errors
    /// If the file cannot be written, or the end of one that is continued cannot be read.
    pub(crate) fn open(plan: &Plan, speed: &Arc<Speed>) -> Result<Option<Self>> {
        let Some(path) = &plan.config.output.metrics else { return Ok(None) };
        let failed = |error| Failure::run(format!("cannot write --metrics {}: {error}", path.display()));
        let file = LineFile::open(path.clone(), OpenMode::of_run(plan.first_step() > 0)).map_err(failed)?;
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        if is_csv && file.is_empty().map_err(failed)? {
            file.write(&COLUMNS.join(","));
        }
        Ok(Some(Metrics { file, is_csv, speed: speed.clone() }))
    }

    /// Writes an event of the rank that writes for all.
    pub(crate) fn report(&self, event: RunEvent<'_>) {
        match event {
            RunEvent::Step(row, peak) => self.row(&self.step(row, peak)),
            RunEvent::Validation(steps, loss) => self.row(&json!({ "step": steps, "validation_loss": loss })),
            RunEvent::Checkpoint(..) => {}
        }
    }

    fn step(&self, row: &StepRow, peak: u64) -> Value {
        let rate = row.tokens_per_second();
        json!({
            "step": row.step, "loss": row.loss, "grad_norm": row.grad_norm, "lr": row.lr,
            "tokens": row.tokens, "seconds": row.seconds, "tokens_per_second": rate,
            "mfu": self.speed.utilisation(rate), "elapsed_seconds": self.speed.elapsed().as_secs_f64(),
            "peak_bytes": peak, "loss_scale": row.loss_scale, "skipped": row.skipped,
        })
    }

    fn row(&self, values: &Value) {
        if !self.is_csv {
            return self.file.write(&values.to_string());
        }
        let cell = |key: &&str| match &values[*key] {
            Value::Null => String::new(),
            value => value.to_string(),
        };
        self.file.write(&COLUMNS.iter().map(cell).collect::<Vec<_>>().join(","));
    }

    /// Returns a message if the file is incomplete.
    pub(crate) fn problem(&self) -> Option<String> {
        Some(format!("--metrics {}", self.file.problem()?))
    }
}
