//! The runs behind questions, each executed once.

use planner::Stage;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trainer::{Failure, Report, Result};

/// A stage with flags.
pub struct Run {
    /// The stage.
    pub stage: Stage,
    /// Its flags, as typed.
    pub flags: &'static str,
}

impl Run {
    /// Returns the command that a reader types.
    pub fn command(&self) -> String {
        format!("cargo run -p {} -- {}", self.stage.package(), self.flags)
    }
}

/// The runs made so far.
#[derive(Default)]
pub struct Runs {
    reports: RefCell<BTreeMap<String, Rc<Report>>>,
}

impl Runs {
    /// Returns the report of `run`. Its checkpoints are saved in a folder of their own, which is
    /// removed: each run begins at its first step.
    ///
    /// # Errors
    /// The error that the program would print.
    pub fn report(&self, run: &Run) -> Result<Rc<Report>> {
        let command = run.command();
        if let Some(report) = self.reports.borrow().get(&command) {
            return Ok(report.clone());
        }
        let fail = |e: std::io::Error| Failure::run(format!("cannot prepare a folder for checkpoints: {e}"));
        let folder = tempfile::tempdir().map_err(fail)?;
        let mut config = stages::config(run.flags)?;
        config.checkpoint.iter_mut().for_each(|checkpoint| checkpoint.directory = folder.path().into());
        let report = Rc::new(stages::train(run.stage, config)?);
        self.reports.borrow_mut().insert(command, report.clone());
        Ok(report)
    }
}
