//! `check EXERCISE`: builds the reader's answer and checks it.

use super::exercises::{ALL, Exercise};
use super::progress::Progress;
use super::terminal::tell;
use clap::Args;
use serde_json::Value;
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
    /// Check the solution in place of what you wrote
    #[arg(long)]
    solution: bool,
}

/// Checks an exercise, or lists them.
///
/// # Errors
/// If there is no such exercise, or the answer does not compile or is not right yet.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Some(name) = &arguments.name else {
        return list(&Progress::load());
    };
    let exercise = Exercise::of(name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|exercise| exercise.name).collect();
        Failure::usage(format!("there is no exercise {name:?}; there are {}", names.join(", ")))
    })?;
    events::say!("{}: {}\n{}\n", exercise.name, exercise.task, exercise.file());
    exercise.hints.iter().take(arguments.hints).for_each(|hint| tell(&format!("hint: {hint}")));
    events::complain!("building it …");
    match check(exercise, arguments.solution)? {
        Some(_) if arguments.solution => Ok(()),
        Some(score) => Progress::load().solved(exercise.name, score),
        None if arguments.hints < exercise.hints.len() => {
            Err(Failure::run(format!("not solved yet. A hint: --hints {}", arguments.hints + 1)))
        }
        None => Err(Failure::run("not solved yet. One way is in solution.rs, beside src")),
    }
}

fn list(progress: &Progress) -> Result<()> {
    for Exercise { name, chapter, task, .. } in ALL {
        let state = progress.score(name).map_or(String::new(), |score| format!("\n{:32}{score}", ""));
        events::say!("chapter {chapter:>2}   {name:<17}  {task}{state}");
    }
    events::say!("\nStarters are in tutorials/exercises. cargo run -p tutorials -- check bucket");
    Ok(())
}

/// Builds and runs the check in a process of its own, since answers that do not compile must not take this program along.
/// The score; none if the answer is not right.
fn check(exercise: &Exercise, solution: bool) -> Result<Option<Value>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let failed = |e: &dyn std::fmt::Display| Failure::run(format!("cannot check {}: {e}", exercise.name));
    let score = tempfile::NamedTempFile::new().map_err(|e| failed(&e))?;
    let mut process = Command::new(cargo);
    process.args(["run", "--quiet", "--package", exercise.name, "--manifest-path"]);
    process.arg(crate::book::root().join("Cargo.toml")).args(["--", "--score"]).arg(score.path());
    if solution {
        process.arg("--solution");
    }
    let status = process.status().map_err(|e| failed(&e))?;
    if !status.success() {
        return Ok(None);
    }
    let text = std::fs::read(score.path()).map_err(|e| failed(&e))?;
    serde_json::from_slice(&text).map(Some).map_err(|e| failed(&e))
}
