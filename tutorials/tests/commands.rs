//! `compare`, `fit` and `explain` as a newcomer types them.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

use clap::Parser;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SMALL: &str = "--gpus 2 --steps 3 --batch-size 1 --seq-len 16 --threads 1 --device cpu";

fn tutorials(folder: &Path, flags: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_tutorials");
    Command::new(program).args(flags.split_whitespace()).current_dir(folder).output().unwrap()
}

/// Returns the output of a command that must succeed.
fn succeeds(folder: &Path, flags: &str) -> String {
    let output = tutorials(folder, flags);
    assert!(output.status.success(), "{flags}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refuses(folder: &Path, flags: &str, code: i32, words: &[&str]) {
    let output = tutorials(folder, flags);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{flags}\n{error}");
    assert!(error.contains("error: ") && !error.contains("panicked"), "{flags}\n{error}");
    words.iter().for_each(|word| assert!(error.contains(word), "{flags}: {word:?} is missing\n{error}"));
}

/// Returns the cells of the first row called `name`, without the name.
fn cells<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix(name)).unwrap_or_default();
    row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn compare_prints_and_writes_everything_and_explain_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let text = succeeds(folder.path(), &format!("compare {SMALL} --buckets 1 --link 100us,1GB/s"));
    assert_eq!(cells(&text, "as predicted, to the byte"), ["yes"; 4]);
    assert_eq!(cells(&text, "losses and weights"), ["reference", "same bits", "same bits", "same bits"]);
    assert_eq!(cells(&text, "tokens/s by ranks"), ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"]);
    assert!(text.contains("simulated link") && text.contains("step by bucket"), "{text}");
    assert!(
        text.contains("tiny on 2 ranks, ") && text.contains("3 steps of 1 micro-batch of 1 × 16 tokens"),
        "{text}"
    );
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 100 || line.contains("Use ") || line.contains("written"))
    );
    let out = folder.path().join("comparison");
    let document = std::fs::read_to_string(out.join("comparison.md")).unwrap();
    for package in ["zero0-ddp", "zero1", "zero2", "zero3"] {
        let picture = format!("memory-{package}.svg");
        assert!(document.contains(&picture), "{document}");
        let svg = std::fs::read_to_string(out.join(picture)).unwrap();
        assert!(
            svg.starts_with("<svg") && svg.contains("activations") && svg.len() < 100_000,
            "{}",
            svg.len()
        );
        let explained = succeeds(folder.path(), &format!("explain comparison/{package}.json"));
        assert!(
            explained.contains("computes forward and backward for") && explained.contains("SIMULATED link"),
            "{explained}"
        );
    }
    assert!(document.contains("## Recommendation\n\nUse "), "{document}");
}

#[test]
fn fit_finds_by_running_what_was_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let fit = "fit --gpus 2 --seq-len 16 --threads 1 --device-memory 13MB --stages zero2,zero3";
    let text = succeeds(folder.path(), fit);
    for stage in ["ZeRO-2", "ZeRO-3"] {
        let cells = cells(&text, stage);
        assert_eq!((cells[0], cells[3]), (cells[1], "equal"), "{text}");
        assert!(cells[0].parse::<usize>().unwrap() > 1, "{text}");
    }
    let predicted = succeeds(folder.path(), "fit --device-memory 80GB --predict-only --stages zero3");
    assert!(cells(&predicted, "ZeRO-3")[0].len() > 4, "{predicted}");
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    refuses(here, "fit", 2, &["--device-memory"]);
    refuses(here, "fit --device-memory 80GB", 2, &["--predict-only"]);
    refuses(here, "compare --stages zero4", 2, &["zero4", "zero0-ddp"]);
    refuses(here, "compare --record x", 2, &["--record", "single run"]);
    refuses(here, "compare --buckets 0", 2, &["--buckets"]);
    refuses(here, "compare --gpus 0", 2, &["'0' for '--gpus", "from 1 to 1024"]);
    refuses(here, "compare --stages zero1,zero1", 2, &["ZeRO-1", "twice"]);
    refuses(here, "check --solution", 2, &["<NAME>"]);
    refuses(here, "check --hints 3", 2, &["<NAME|--watch>"]);
    refuses(here, "lab --what slow --rank 1", 2, &["<LAB>"]);
    refuses(here, "book 99", 2, &["chapter 99", "0 to 17"]);
    std::fs::write(here.join("file"), "").unwrap();
    refuses(here, "compare --out file/folder", 1, &["--out", "file/folder"]);
    refuses(here, &format!("compare {SMALL} --device-memory 1MB"), 1, &["No stage fits"]);
    refuses(here, "explain nothing.json", 2, &["nothing.json"]);
    std::fs::write(here.join("other.json"), "{}").unwrap();
    refuses(here, "explain other.json", 2, &["other.json", "--report"]);
    assert!(!here.join("comparison").join("comparison.md").exists());
}

#[test]
fn documents_tell_to_type_what_the_program_takes() {
    for command in tests::documents::commands_of("tutorials") {
        let words = ["tutorials".to_string()].into_iter().chain(command.arguments.clone());
        let parsed = tutorials::cli::Cli::try_parse_from(words);
        assert!(
            parsed.is_ok(),
            "{}: {}\n{}",
            command.place,
            command.arguments.join(" "),
            parsed.unwrap_err()
        );
    }
}

/// As with `tutorials predict 1 | head -1`.
#[test]
fn a_reader_that_leaves_ends_no_lesson_by_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    for lesson in ["predict 1", "quiz 1"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tutorials"));
        command.args(lesson.split(' ')).env("XDG_STATE_HOME", folder.path()).env_remove("TUTORIALS_PROGRESS");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{lesson}: {output:?}");
    }
}
