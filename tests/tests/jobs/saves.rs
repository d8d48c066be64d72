//! Saves at the end of a run that the disk refuses, or takes slowly.

use crate::processes::explains;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::job::{Member, free_port, start};
use tests::{at_once, fixture};

const STAGE: &str = env!("CARGO_BIN_EXE_stage");

/// Longer than any process should take to end. A passing test does not wait this long.
const PATIENCE: Duration = Duration::from_secs(60);

const RANKS: usize = 2;

/// Returns the flags of all processes.
fn flags(more: &str) -> String {
    format!(
        "zero2 --headless --model {} --batch-size 1 --seq-len 16 --steps 4 --threads 1 --device cpu {more}",
        fixture("odd.json")
    )
}

/// Starts both ranks, as processes or as threads of one, through `wrapper` if given: a program that
/// runs its arguments.
fn launch(processes: bool, wrapper: Option<&Path>, flags: &str) -> Vec<Member> {
    let port = free_port();
    let start = |flags: &str, set: &str| match wrapper {
        Some(wrapper) => start(&wrapper.display().to_string(), &format!("{STAGE} {flags}"), set),
        None => start(STAGE, flags, set),
    };
    if !processes {
        return vec![start(&format!("{flags} --gpus {RANKS}"), "")];
    }
    let set = |rank| format!("RANK={rank} WORLD_SIZE={RANKS} MASTER_ADDR=127.0.0.1 MASTER_PORT={port}");
    (0..RANKS).map(|rank| start(flags, &set(rank))).collect()
}

/// Writes a program to `dir` that runs its arguments with a file size limit of 32 KiB.
fn with_small_files(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("with-small-files");
    fs::write(&path, "#!/bin/sh\nulimit -f 64\nexec \"$@\"\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_last_checkpoint_that_fails_ends_the_run_with_an_error_and_the_one_before_stays() {
    at_once([false, true], |processes| {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        let flags = flags(&format!("--checkpoint {}", kept.display()));
        let broken =
            format!("{flags} --checkpoint-every 2 --checkpoint-wait --inject panic@rank1,step3,backward");
        for member in launch(processes, None, &broken) {
            assert_eq!(member.end(PATIENCE).code, Some(1));
        }
        let members = launch(processes, Some(&with_small_files(dir.path())), &flags);
        let ended = members.into_iter().map(|member| member.end(PATIENCE)).next().unwrap();
        let (warning, error) = ended.error.split_once("error: ").unwrap();
        assert!(warning.starts_with("warning: no checkpoint after 4 steps: rank 0: "), "{warning}");
        assert!(error.starts_with("the last checkpoint was not saved: rank 0: "), "{error}");
        assert!(error.contains("step-00000004") && error.contains("File too large"), "{error}");
        assert!(ended.code == Some(1) && ended.error.lines().count() <= 24, "{ended:?}");
        let names = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["lock", "step-00000002"]);
        for (rank, member) in launch(processes, None, &flags).into_iter().enumerate() {
            let ended = member.end(PATIENCE);
            assert_eq!(ended.code, Some(0), "{}", ended.error);
            assert!(rank > 0 || ended.out.contains("Resuming after 2 steps"), "{}", ended.out);
        }
        assert!(kept.join("step-00000004").is_dir());
    });
}

/// A failed save of weights leaves the earlier one complete.
#[test]
fn a_last_save_of_weights_that_fails_ends_the_run_with_an_error_and_the_one_before_stays() {
    at_once([false, true], |processes| {
        let dir = tempfile::tempdir().unwrap();
        let saved = dir.path().join("saved");
        let flags = flags(&format!("--save {}", saved.display()));
        launch(processes, None, &flags).into_iter().for_each(|member| {
            assert_eq!(member.end(PATIENCE).code, Some(0));
        });
        let before = fs::read(saved.join("model.safetensors")).unwrap();
        let further = format!("{flags} --seed 7");
        let members = launch(processes, Some(&with_small_files(dir.path())), &further);
        for (rank, member) in members.into_iter().enumerate() {
            let words = if rank == 0 { "File too large" } else { "rank 0 failed" };
            explains(&member.end(PATIENCE), 1, &["rank 0", words, "model.safetensors"]);
        }
        assert!(fs::read(saved.join("model.safetensors")).unwrap() == before);
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["saved", "with-small-files"]);
    });
}
