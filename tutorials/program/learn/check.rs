//! `check EXERCISE`: builds the reader's answer and checks it, once or after every save.

use super::exercises::{ALL, Exercise};
use super::progress::Progress;
use super::terminal::tell;
use clap::{ArgGroup, Args};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use trainer::{Failure, Result};

/// Interval at which a file is polled.
const GLANCE: Duration = Duration::from_millis(200);

/// The arguments of `check`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("some").args(["name", "watch"]).multiple(true))]
pub struct Arguments {
    /// Its name; all are listed if none is given
    name: Option<String>,
    /// Check again after every save, until it is solved; without a name, one exercise after another
    #[arg(long, conflicts_with = "solution")]
    watch: bool,
    /// Show this many hints
    #[arg(long, default_value_t = 0, value_name = "N", requires = "some")]
    hints: usize,
    /// Check the solution in place of what you wrote
    #[arg(long, requires = "name")]
    solution: bool,
}

/// Checks an exercise, or lists them.
///
/// # Errors
/// If no such exercise exists, or the answer does not compile or is not correct yet.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Some(name) = &arguments.name else {
        let progress = Progress::load();
        let open = ALL.iter().filter(|exercise| progress.score(&exercise.name).is_none());
        return if arguments.watch { watch(open, arguments) } else { list(&progress) };
    };
    let exercise = Exercise::of(name)?;
    if arguments.watch { watch([exercise].into_iter(), arguments) } else { attempt(exercise, arguments) }
}

/// Checks exercises until they are solved, one after another, or the reader leaves.
fn watch<'a>(mut open: impl Iterator<Item = &'a Exercise>, arguments: &Arguments) -> Result<()> {
    let typed = typed();
    let solved = open.all(|exercise| {
        let file = crate::workspace::root().join(exercise.file());
        // Every attempt shows the first hints.
        let more = exercise.hints.get(arguments.hints..).unwrap_or_default();
        until_solved(&file, &typed, more, || attempt(exercise, arguments))
    });
    if solved {
        events::say!("\nAll exercises are solved.");
    }
    Ok(())
}

/// Returns a channel with the lines that the reader types.
fn typed() -> Receiver<String> {
    let (lines, typed) = channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(|line| lines.send(line.ok()?).ok()).count()
    });
    typed
}

/// Retries after every save of `file`. True once an attempt succeeds, false if the reader leaves.
/// An empty line shows the next of the `hints`.
fn until_solved(
    file: &Path,
    typed: &Receiver<String>,
    hints: &[String],
    mut attempt: impl FnMut() -> Result<()>,
) -> bool {
    let look = || {
        let file = std::fs::metadata(file).ok()?;
        Some((file.modified().ok()?, file.len()))
    };
    let mut hints = hints.iter();
    loop {
        // A save during an attempt may not have been included in it.
        let before = look();
        let Err(failure) = attempt() else { return true };
        events::complain!("{failure}\n\nSave it to check again. Enter: a hint; q and Enter: leave.");
        let (mut earlier, mut now) = (before, before);
        // An editor may remove or empty the file for a moment. A save is complete once two
        // consecutive polls see the same time and length.
        while now.is_none() || now == before || now != earlier {
            match typed.recv_timeout(GLANCE).as_deref().map(str::trim) {
                Ok("q" | "quit") => return false,
                Ok(_) => {
                    let hint = hints.next().map(String::as_str);
                    tell(hint.unwrap_or("No more hints. One way is in solution.rs, beside src."));
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(GLANCE),
            }
            (earlier, now) = (now, look());
        }
        events::say!();
    }
}

fn attempt(exercise: &Exercise, arguments: &Arguments) -> Result<()> {
    let place = ALL.iter().position(|other| other.name == exercise.name).map_or(0, |place| place + 1);
    let Exercise { name, task, .. } = exercise;
    events::say!("{name}, exercise {place} of {}: {task}\n{}\n", ALL.len(), exercise.file());
    exercise.hints.iter().take(arguments.hints).for_each(|hint| tell(&format!("hint: {hint}")));
    events::complain!("building it …");
    match check(exercise, arguments.solution)? {
        Some(_) if arguments.solution => Ok(()),
        Some(score) => Progress::load().solved(&exercise.name, score),
        None if arguments.watch => Err(Failure::run("not solved yet.")),
        None if arguments.hints < exercise.hints.len() => {
            Err(Failure::run(format!("not solved yet. A hint: --hints {}", arguments.hints + 1)))
        }
        None => Err(Failure::run("not solved yet. One way is in solution.rs, beside src")),
    }
}

fn list(progress: &Progress) -> Result<()> {
    for Exercise { name, chapter, task, .. } in ALL.iter() {
        let score = progress.score(name);
        let mark = if score.is_some() { "✓" } else { " " };
        events::say!("{mark} chapter {chapter:>2}  {name:<17}  {task}");
        score.iter().for_each(|score| events::say!("{:33}{score}", ""));
    }
    events::say!("\nStarters are in tutorials/exercises. cargo run -p tutorials -- check bucket --watch");
    Ok(())
}

/// Builds and runs the check in a process of its own, because an answer that does not compile must
/// not stop this program. Returns the score. `None` if the answer is wrong.
fn check(exercise: &Exercise, solution: bool) -> Result<Option<Value>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let failed = |e: &dyn std::fmt::Display| Failure::run(format!("cannot check {}: {e}", exercise.name));
    let score = tempfile::NamedTempFile::new().map_err(|e| failed(&e))?;
    let mut process = Command::new(cargo);
    process.args(["run", "--quiet", "--package", &exercise.name, "--manifest-path"]);
    process.arg(crate::workspace::root().join("Cargo.toml")).args(["--", "--score"]).arg(score.path());
    process.stdin(Stdio::null());
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
        write("wrong");
        let mut attempts = Vec::new();
        let (_reader, typed) = channel();
        let solved = std::thread::scope(|threads| {
            until_solved(&file, &typed, &[], || {
                attempts.push(std::fs::read_to_string(&file).unwrap());
                if attempts.len() == 1 {
                    // Saves like an editor: removes the old file, creates a new one, writes it.
                    threads.spawn(|| {
                        std::fs::remove_file(&file).unwrap();
                        std::thread::sleep(2 * GLANCE);
                        write("right");
                    });
                }
                if attempts.last().unwrap() == "right" { Ok(()) } else { Err(Failure::run("not solved yet")) }
            })
        });
        // On a busy machine an attempt may see the new file before its text. That attempt must not
        // be the last one.
        assert!(solved && attempts[0] == "wrong", "{attempts:?}");
    }

    #[test]
    fn whoever_leaves_is_asked_no_more() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (reader, typed) = channel();
        ["", "", "quit"].into_iter().for_each(|line| reader.send(line.into()).unwrap());
        let mut attempts = 0;
        let solved = until_solved(file.path(), &typed, &["a hint".into()], || {
            attempts += 1;
            Err(Failure::run("not solved yet"))
        });
        assert_eq!((solved, attempts, typed.try_recv().is_err()), (false, 1, true));
    }
}
