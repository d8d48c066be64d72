//! Shared code names no stage: behaviour of a single stage belongs in that stage.

use super::imports::imports;
use super::{root, sources};
use std::fs;
use std::path::{Path, PathBuf};

/// Predictions are of every stage, the planner prints them, DeepSpeed's table says which stage
/// supports a key, published runs are of stages, and the grammar's sentences are about stages.
const SPEAKS_OF_STAGES: [&str; 5] = ["prediction", "planner", "deepspeed", "published.rs", "corpus.rs"];

#[test]
fn shared_code_names_no_stage() {
    let speaks = |path: &Path| {
        let names = [&SPEAKS_OF_STAGES[..], &["tests", "tests.rs"]].concat();
        path.iter().any(|part| names.iter().any(|name| part == *name))
    };
    let sources = sources(&root().join("common"));
    let in_tests: Vec<PathBuf> = sources.iter().flat_map(|path| test_modules(path)).collect();
    let is_test = |path: &Path| in_tests.iter().any(|test| path.with_extension("").starts_with(test));
    for path in sources.iter().filter(|path| !speaks(path) && !is_test(path)) {
        let text = fs::read_to_string(path).unwrap();
        for line in without_help(text.split("#[cfg(test)]").next().unwrap_or("")) {
            assert!(!names_a_stage(line), "{}: {line}", path.display());
        }
    }
}

/// Returns the modules of a source that exist only in tests, as paths without an ending.
fn test_modules(path: &Path) -> Vec<PathBuf> {
    let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|root| path.ends_with(root));
    let folder = if is_root { path.parent().unwrap().to_path_buf() } else { path.with_extension("") };
    let modules = imports(&fs::read_to_string(path).unwrap()).test_modules;
    modules.iter().map(|module| folder.join(module)).collect()
}

fn names_a_stage(line: &str) -> bool {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_');
    let stage = |word: &str| {
        let number = word.to_lowercase().replace('-', "");
        word == "DDP" || number == "zero0ddp" || ["zero1", "zero2", "zero3"].contains(&number.as_str())
    };
    words.into_iter().any(stage)
}

/// Returns the lines of a source without its flags' help, which is the comment above `#[arg]`.
fn without_help(text: &str) -> Vec<&str> {
    let mut kept: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("#[arg") {
            while kept.last().is_some_and(|line| line.trim_start().starts_with("///")) {
                kept.pop();
            }
        }
        kept.push(line);
    }
    kept
}

#[test]
fn stages_are_known_by_their_names_in_code_and_in_comments() {
    for line in ["/// For ZeRO-1.", "if name == \"zero3\" {", "// never in DDP", "Stage::Zero2 => 2,"] {
        assert!(names_a_stage(line), "{line}");
    }
    assert!(!names_a_stage("/// A zero of nonzero1 length, as FSDP's zeros"));
    let help = "struct A {\n    /// ZeRO-3: so many.\n    #[arg(long)]\n    a: u8,\n    /// b\n    b: u8,\n}";
    assert_eq!(without_help(help).iter().filter(|line| line.contains("///")).count(), 1);
}
