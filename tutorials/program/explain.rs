//! `explain REPORT`: explains the speed of a finished run.

use clap::Args;
use report::{Report, diagnosis};
use std::path::PathBuf;
use trainer::Result;

/// The arguments of `explain`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The file that a run's --report has written
    report: PathBuf,
}

/// Prints the explanation.
///
/// # Errors
/// If the report does not exist.
pub fn run(arguments: &Arguments) -> Result<()> {
    Report::read(&arguments.report).map(|report| events::say!("{}", diagnosis(&report).trim_end()))
}
