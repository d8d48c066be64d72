//! `check EXERCISE`: builds the reader's answer and checks it, once or whenever it is saved.

use super::exercises::{ALL, Exercise};
use super::progress::Progress;
use super::terminal::tell;
use clap::Args;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use trainer::{Failure, Result};

/// How often a file is looked at while nothing else happens.
const GLANCE: Duration = Duration::from_millis(200);

/// Which exercise.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Its name; all are listed if none is given
    name: Option<String>,
    /// Check again whenever it is saved, until it is solved; without a name, one exercise after another
    #[arg(long, conflicts_with = "solution")]
    watch: bool,
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
    match &arguments.name {
        Some(name) => {
            let exercise = Exercise::of(name).ok_or_else(|| {
                let names: Vec<&str> = ALL.iter().map(|exercise| exercise.name).collect();
                Failure::usage(format!("there is no exercise {name:?}; there are {}", names.join(", ")))
            })?;
            one(exercise, arguments)
        }
        None if arguments.watch => {
            let solved = Progress::load();
            let mut open = ALL.iter().filter(|exercise| solved.score(exercise.name).is_none());
            open.try_for_each(|exercise| one(exercise, arguments))?;
            events::say!("All exercises are solved.");
            Ok(())
        }
        None => list(&Progress::load()),
    }
}

/// Checks one exercise, if asked to until it is solved.
fn one(exercise: &Exercise, arguments: &Arguments) -> Result<()> {
    if arguments.watch {
        let file = crate::book::root().join(exercise.file());
        until_solved(&file, || attempt(exercise, arguments))
    } else {
        attempt(exercise, arguments)
    }
}

/// Attempts again whenever `file` has been saved, until an attempt succeeds.
fn until_solved(file: &Path, mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let saved = || std::fs::metadata(file).and_then(|file| file.modified());
    loop {
        // What is saved during an attempt is not in it for sure.
        let before: Option<SystemTime> = saved().ok();
        let Err(failure) = attempt() else { return Ok(()) };
        events::complain!("{failure}\n\nIt is checked again when you save it; Ctrl-C leaves.\n");
        // An editor may take the file away for a moment.
        while saved().is_err() || saved().ok() == before {
            std::thread::sleep(GLANCE);
        }
    }
}

fn attempt(exercise: &Exercise, arguments: &Arguments) -> Result<()> {
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
    events::say!("\nStarters are in tutorials/exercises. cargo run -p tutorials -- check bucket --watch");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_checked_again_when_it_is_saved() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lib.rs");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write("todo!()");
        let mut attempts = Vec::new();
        std::thread::scope(|threads| {
            let solved = until_solved(&file, || {
                attempts.push(std::fs::read_to_string(&file).unwrap());
                if attempts.len() == 1 {
                    // As editors save: the old file goes, a new one comes.
                    threads.spawn(|| {
                        std::fs::remove_file(&file).unwrap();
                        std::thread::sleep(2 * GLANCE);
                        write("done()");
                    });
                }
                if attempts.len() < 2 { Err(Failure::run("not solved yet")) } else { Ok(()) }
            });
            assert!(solved.is_ok());
        });
        assert_eq!(attempts, ["todo!()", "done()"]);
    }
}
