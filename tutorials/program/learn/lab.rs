//! Runs that questions are about, each made once.

use super::question::Run;
use clap::Parser;
use planner::Stage;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trainer::cli::Cli;
use trainer::config::Config;
use trainer::{Failure, Report, Result};

/// The runs made so far.
#[derive(Default)]
pub struct Lab {
    reports: RefCell<BTreeMap<String, Rc<Report>>>,
}

impl Lab {
    /// What `run` reports.
    ///
    /// # Errors
    /// What the program would print.
    pub fn report(&self, run: &Run) -> Result<Rc<Report>> {
        let command = run.command();
        if let Some(report) = self.reports.borrow().get(&command) {
            return Ok(report.clone());
        }
        let report = Rc::new(train(run.stage, run.flags)?);
        self.reports.borrow_mut().insert(command, report.clone());
        Ok(report)
    }
}

fn train(stage: Stage, flags: &str) -> Result<Report> {
    let config = config(flags)?;
    match stage {
        Stage::Ddp => trainer::train_quietly::<zero0_ddp::Ddp>(config),
        Stage::Zero1 => trainer::train_quietly::<zero1::Zero1>(config),
        Stage::Zero2 => trainer::train_quietly::<zero2::Zero2>(config),
        Stage::Zero3 => trainer::train_quietly::<zero3::Zero3>(config),
    }
}

/// The settings that `flags` ask for.
///
/// # Errors
/// What the program would print.
pub fn config(flags: &str) -> Result<Config> {
    let words = ["program"].into_iter().chain(flags.split_whitespace());
    Config::new(Cli::try_parse_from(words).map_err(|e| Failure::usage(e.to_string()))?.train)
}
