//! Puts each stage starter in the place of the method it is about, in a copy of that stage's source.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// Starter, stage, and the method that the starter takes the place of.
const STAGES: [(&str, &str, &str); 3] = [
    ("zero1_step", "zero1", "fn step("),
    ("zero2_reduced", "zero2", "fn reduced("),
    ("zero3_gather", "zero3", "fn gather("),
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    for (starter, stage, method) in STAGES {
        let (source, own) = (format!("../../{stage}/src/lib.rs"), format!("starters/{starter}.rs"));
        println!("cargo::rerun-if-changed={source}");
        println!("cargo::rerun-if-changed={own}");
        let text = replaced(&fs::read_to_string(&source)?, method, &fs::read_to_string(&own)?)
            .ok_or(format!("{source} has no method {method} to replace"))?;
        fs::write(Path::new(&out).join(format!("{starter}.rs")), text)?;
    }
    Ok(())
}

/// `source` with `starter` in the place of `method`, without the module's documentation, which `include!` cannot have.
fn replaced(source: &str, method: &str, starter: &str) -> Option<String> {
    let lines: Vec<&str> = source.lines().filter(|line| !line.starts_with("//!")).collect();
    let at = lines
        .iter()
        .position(|line| line.strip_prefix("    ").is_some_and(|rest| rest.starts_with(method)))?;
    let end = at + lines[at..].iter().position(|line| *line == "    }")?;
    Some([&lines[..at], &[starter], &lines[end + 1..]].concat().join("\n"))
}
