//! `check EXERCISE`: builds the reader's answer and checks it.

use super::progress::Progress;
use clap::Args;
use std::process::Command;
use trainer::{Failure, Result};

/// Which exercise.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Its name; all are listed if none is given
    name: Option<String>,
    /// Show so many hints
    #[arg(long, default_value_t = 0, value_name = "N")]
    hints: usize,
}

/// Builds and runs the check in a process of its own, since answers that do not compile must not take this program along.
///
/// # Errors
/// If the answer does not compile or is not right yet.
pub fn run(arguments: &Arguments) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = crate::book::root().join("Cargo.toml");
    let mut process = Command::new(cargo);
    process.args(["run", "--quiet", "--package", "exercises", "--manifest-path"]).arg(manifest).arg("--");
    process.args(&arguments.name).args(["--hints", &arguments.hints.to_string()]);
    let status = process.status().map_err(|e| Failure::run(format!("cannot start cargo: {e}")))?;
    match &arguments.name {
        Some(name) if status.success() => Progress::load().solved(name),
        _ if status.success() => Ok(()),
        _ => Err(Failure::run("not solved yet")),
    }
}
