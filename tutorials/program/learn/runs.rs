//! The runs that questions ask about, each executed once.

use events::lock;
use prediction::Stage;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use trainer::{Failure, Report, Result};

/// A stage with flags.
#[derive(Deserialize)]
pub struct Run {
    /// The stage.
    pub stage: Stage,
    /// Its flags, as typed.
    pub flags: String,
}

impl Run {
    /// Returns the run of `stage` with `flags`.
    pub fn new(stage: Stage, flags: &str) -> Self {
        Run { stage, flags: flags.into() }
    }

    /// Returns the command that a reader types.
    pub fn command(&self) -> String {
        format!("cargo run -p {} -- {}", self.stage.package(), self.flags)
    }
}

/// The report of a run, once it exists. The thread that produces it holds the lock.
type Slot = Arc<Mutex<Option<Arc<Report>>>>;

/// The runs executed so far. Clones share them, across threads too.
#[derive(Clone, Default)]
pub struct Runs {
    slots: Arc<Mutex<BTreeMap<String, Slot>>>,
}

impl Runs {
    /// Returns the report of `run`. Its checkpoints are saved in a folder of their own, which is
    /// removed, so that each run starts at its first step.
    ///
    /// # Errors
    /// The error that the program would print.
    pub fn report(&self, run: &Run) -> Result<Arc<Report>> {
        let mut slots = lock(&self.slots);
        let slot = slots.entry(run.command()).or_default().clone();
        drop(slots);
        let mut made = lock(&slot);
        if let Some(report) = &*made {
            return Ok(report.clone());
        }
        let fail = |e: std::io::Error| Failure::run(format!("cannot prepare a folder for checkpoints: {e}"));
        let folder = tempfile::tempdir().map_err(fail)?;
        let mut config = stages::config(&run.flags)?;
        config.output.checkpoint.iter_mut().for_each(|directory| *directory = folder.path().into());
        let report = Arc::new(stages::train(run.stage, config)?);
        *made = Some(report.clone());
        Ok(report)
    }
}
