//! The build script of exercises that are a part of a stage: the stage's source without the method to write.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// Exercise, stage, the method to leave out, and what stands for it where a trait demands it.
const STAGES: [(&str, &str, &str, Option<&str>); 3] = [
    ("zero1-step", "zero1", "fn step(", Some("self.written_step(update)")),
    ("zero2-reduced", "zero2", "fn reduced(", None),
    ("zero3-gather", "zero3", "fn gather(", None),
];

fn main() -> Result<(), Box<dyn Error>> {
    let name = env::var("CARGO_PKG_NAME")?;
    let known = STAGES.into_iter().find(|(exercise, ..)| *exercise == name);
    let (_, stage, method, call) = known.ok_or(format!("{name} is no exercise of a stage"))?;
    let source = format!("../../../{stage}/src/lib.rs");
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-changed=../checks/stage.rs");
    let text = without(&fs::read_to_string(&source)?, method, call)
        .ok_or(format!("{source} has no method {method} to leave out"))?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("stage.rs"), text)?;
    Ok(())
}

/// `source` with `call` in the place of what `method` does, or without the method; and without the module's documentation,
/// which `include!` cannot have.
fn without(source: &str, method: &str, call: Option<&str>) -> Option<String> {
    let lines: Vec<&str> = source.lines().filter(|line| !line.starts_with("//!")).collect();
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
