//! `explain REPORT`: why a finished run was as slow as it was.

use clap::Args;
use report::{Report, diagnosis};
use std::path::PathBuf;
use trainer::Result;

/// Which run.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The file that a run's --report has written
    report: PathBuf,
}

/// Prints the explanation.
///
/// # Errors
/// If there is no such report.
pub fn run(arguments: &Arguments) -> Result<()> {
    Report::read(&arguments.report).map(|report| events::say!("{}", diagnosis(&report).trim_end()))
}
