//! The runs behind questions, each executed once.

use planner::Stage;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trainer::{Report, Result};

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
    /// Returns the report of `run`.
    ///
    /// # Errors
    /// The error that the program would print.
    pub fn report(&self, run: &Run) -> Result<Rc<Report>> {
        let command = run.command();
        if let Some(report) = self.reports.borrow().get(&command) {
            return Ok(report.clone());
        }
        let report = Rc::new(stages::train(run.stage, stages::config(run.flags)?)?);
        self.reports.borrow_mut().insert(command, report.clone());
        Ok(report)
    }
}
