//! Disks that fail, fill up or lose files under a run, and what is left behind.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const AWAY: &str = "--device cpu --headless --gpus 2 --seq-len 16 --batch-size 1 --threads 1 --timeout 20 \
                    --offload-optimizer disk --offload-parameters disk";

fn zero3(directory: &Path, more: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_zero3"));
    program.args(AWAY.split_whitespace()).args(more.split_whitespace());
    program.arg("--offload-dir").arg(directory);
    program
}

/// The error of a run that fails: one screen, which names the rank and the directory's flag.
fn error(output: &Output, directory: &Path) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().count() <= 24 && said.contains("rank ") && !said.contains("panic"), "{said}");
    assert!(said.contains("--offload-dir") && said.contains(&directory.display().to_string()), "{said}");
    said
}

fn files(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_disk_that_fails_in_the_middle_of_a_step_ends_all_ranks_with_one_error() {
    for (fault, words) in [
        // Which read or write of the update fails first is not known.
        ("disk-error@rank1,step1,step", ": other error"),
        ("disk-error@rank1,step1,forward", ": other error"),
        ("disk-error@rank0,step0,forward", "cannot read"),
        ("disk-full@rank1,step2,step", "the disk is full"),
        ("disk-full@rank0,setup", "the disk is full"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = zero3(folder.path(), &format!("--steps 4 --inject {fault}")).output().unwrap();
        let said = error(&output, folder.path());
        let culprit = if fault.contains("rank1") { "rank 1: " } else { "rank 0: " };
        assert!(said.contains(words) && said.contains(culprit), "{fault}: {said}");
        assert_eq!(files(folder.path()), 0);
    }
}

/// Ranks that are blocked by a disk are not blamed by their peers, whose timeout is the same.
#[test]
fn a_disk_that_answers_nothing_is_named_by_its_rank_after_the_timeout() {
    for fault in ["disk-hang@rank1,step1,step", "disk-hang@rank0,step1,forward"] {
        let folder = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let output =
            zero3(folder.path(), &format!("--steps 4 --timeout 1 --inject {fault}")).output().unwrap();
        let said = error(&output, folder.path());
        let culprit = if fault.contains("rank1") { "rank 1: cannot" } else { "rank 0: cannot" };
        assert!(said.contains(culprit) && said.contains("has not answered for 1 s"), "{fault}: {said}");
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        assert_eq!(files(folder.path()), 0);
    }
}

/// Rank 0 waits for copies that take ten seconds each.
#[test]
fn a_rank_that_waits_for_a_place_hears_at_once_that_another_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let flags = "--steps 4 --timeout 60 --host-link 10s,1GB/s --inject panic@rank1,step0,forward";
    let output = zero3(folder.path(), flags).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("rank 1: panic"), "{said}");
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

#[test]
fn two_runs_share_a_directory_and_learn_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let start = || zero3(folder.path(), "--steps 3").stdout(Stdio::piped()).spawn().unwrap();
    let weights = |run: Child| {
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find(|line| line.starts_with("weights")).unwrap().to_owned()
    };
    let (first, second) = (start(), start());
    assert_eq!(weights(first), weights(second));
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn a_directory_that_cannot_be_made_is_named_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let output = zero3(&file.join("swap"), "--steps 1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--offload-dir") && said.contains("cannot create"), "{said}");
}

/// What happens to swap files, which only Linux shows after they are unlinked.
#[cfg(target_os = "linux")]
mod swap_files {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::Read;
    use std::path::PathBuf;

    /// A run of many steps that ends when this is dropped.
    struct Run(Child);

    impl Drop for Run {
        fn drop(&mut self) {
            // It may have ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts a run; returns it once all swap files are written, with their paths as the system
    /// shows them: a buffered handle for each rank, and a direct one where the file system has
    /// direct I/O.
    fn running(directory: &Path, more: &str) -> (Run, Vec<PathBuf>) {
        let mut program = zero3(directory, &format!("--steps 100000 {more}"));
        let run = Run(program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let open = PathBuf::from(format!("/proc/{}/fd", run.0.id()));
        let deadline = Instant::now() + Duration::from_secs(30);
        let swap = |path: &PathBuf| {
            let target = fs::read_link(path).unwrap_or_default().display().to_string();
            target.contains(".offload-") && fs::metadata(path).is_ok_and(|file| file.len() > 7 << 20)
        };
        loop {
            let found: Vec<PathBuf> =
                fs::read_dir(&open).unwrap().map(|entry| entry.unwrap().path()).filter(swap).collect();
            let ranks: BTreeSet<PathBuf> = found.iter().filter_map(|path| fs::read_link(path).ok()).collect();
            if ranks.len() == 2 {
                return (run, found);
            }
            assert!(Instant::now() < deadline, "no swap file is open");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_swap_file_that_somebody_truncates_is_an_error_that_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let (mut run, swap) = running(folder.path(), "");
        for path in swap {
            // A direct handle may refuse; the other one does not.
            let _ = fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(4096));
        }
        let mut said = String::new();
        run.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(run.0.wait().unwrap().code(), Some(1), "{said}");
        assert!(said.contains("it was truncated to 4096 of") && said.lines().count() <= 24, "{said}");
        assert_eq!(files(folder.path()), 0);
    }

    #[test]
    fn nothing_is_left_of_a_run_that_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        drop(running(folder.path(), ""));
        assert_eq!(files(folder.path()), 0);
    }

    #[test]
    fn a_directory_that_vanishes_under_a_run_takes_nothing_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let [directory, metrics] = ["swap", "metrics.csv"].map(|name| folder.path().join(name));
        let (mut run, _) = running(&directory, &format!("--metrics {}", metrics.display()));
        fs::remove_dir(&directory).unwrap();
        let rows = || fs::read_to_string(&metrics).unwrap_or_default().lines().count();
        let (before, deadline) = (rows(), Instant::now() + Duration::from_secs(30));
        while rows() < before + 3 {
            assert!(Instant::now() < deadline, "the run goes on");
            assert!(run.0.try_wait().unwrap().is_none(), "the run goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
