//! The build script of exercises that are a part of a stage. It writes the stage's source with the
//! reader's part in place of the stage's own. For the checks' tests it writes all such sources.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// A change to the stage's source.
enum Change {
    /// Removes the method or, if a trait requires it, replaces its body.
    Method(&'static str, Option<&'static str>),
    /// Replaces each text, which must occur exactly once, with another.
    Text(&'static [(&'static str, &'static str)]),
}

/// Exercise, stage, change.
const STAGES: [(&str, &str, Change); 5] = [
    (
        "bucket",
        "zero0-ddp",
        Change::Text(&[
            ("reductions: Buckets,", "reductions: exercises::bucket::Buckets,"),
            (
                "setup.reductions(Group::all_reduce)",
                "exercises::bucket::Buckets::new(push, &setup, Group::all_reduce)",
            ),
        ]),
    ),
    (
        "shard-norm",
        "zero1",
        Change::Text(&[(
            "global_norm(&self.rank, &self.",
            "exercises::shard_norm::of_stage(norm, &self.rank, &self.",
        )]),
    ),
    ("zero1-step", "zero1", Change::Method("fn update(", Some("self.written_update(update)"))),
    (
        "zero2-accumulate",
        "zero2",
        Change::Text(&[
            ("self.gradients.accumulate(&self.rank, summed)", "self.accumulate(summed)"),
            ("self.gradients.finish(&self.rank, summed)", "self.accumulate(summed)"),
        ]),
    ),
    ("zero3-gather", "zero3", Change::Method("fn gather(", None)),
];

fn main() -> Result<(), Box<dyn Error>> {
    let name = env::var("CARGO_PKG_NAME")?;
    println!("cargo::rerun-if-changed=../checks/stage.rs");
    let wanted = STAGES.iter().filter(|(exercise, ..)| name == "exercises" || *exercise == name);
    for (exercise, stage, change) in wanted {
        let source = format!("../../../{stage}/src/lib.rs");
        println!("cargo::rerun-if-changed={source}");
        let text = changed(&with_modules_of(stage, &fs::read_to_string(&source)?), change)
            .ok_or(format!("{source} has changed: the exercise {exercise} does not find its part in it"))?;
        fs::write(Path::new(&env::var("OUT_DIR")?).join(format!("{exercise}.rs")), text)?;
    }
    Ok(())
}

/// Returns `source` with its modules imported from the stage's crate.
fn with_modules_of(stage: &str, source: &str) -> String {
    source.replace("\npub mod ", &format!("\nuse {stage}::"))
}

/// Returns `source` after the change, without the module's documentation, which `include!` does not
/// accept.
fn changed(source: &str, change: &Change) -> Option<String> {
    let lines: Vec<&str> = source.lines().filter(|line| !line.starts_with("//!")).collect();
    match change {
        Change::Method(method, call) => without(&lines, method, *call),
        Change::Text(pairs) => pairs.iter().try_fold(lines.join("\n"), |text, (old, new)| {
            (text.matches(old).count() == 1).then(|| text.replace(old, new))
        }),
    }
}

/// Returns the lines with `call` as the body of `method`, or without the method.
fn without(lines: &[&str], method: &str, call: Option<&str>) -> Option<String> {
    let is_method = |line: &&str| line.strip_prefix("    ").is_some_and(|rest| rest.starts_with(method));
    let at = lines.iter().position(is_method)?;
    let end = at + lines[at..].iter().position(|line| *line == "    }")?;
    let documented = lines[..at].iter().rposition(|line| !line.starts_with("    ///"))? + 1;
    let (kept, rest) = (&lines[..documented], &lines[end + 1..]);
    Some(match call {
        Some(call) => [kept, &[lines[at], call, "    }"], rest].concat().join("\n"),
        None => [kept, rest].concat().join("\n"),
    })
}
