//! Runs that the system gives too few threads: each is an ordinary error, with a remedy.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

/// A user that runs nothing else. The limit does not hold for root.
const USER: u32 = 65_531;

/// Returns the command that runs `words` as a user with at most `processes` threads; `None` if this
/// user is not root, and its other processes would count.
fn within(processes: usize, words: &str) -> Option<Command> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let user = format!("setpriv --reuid={USER} --regid={USER} --clear-groups");
    let script = format!("ulimit -u {processes}; exec {user} {} {words}", env!("CARGO_BIN_EXE_stage"));
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir("/");
    Some(command)
}

/// True if that user can run this program.
fn may_run() -> bool {
    let ran = within(1, "").map(|mut command| command.output().unwrap());
    ran.is_some_and(|output| String::from_utf8_lossy(&output.stderr).contains("a stage's package"))
}

/// Runs two ranks of two threads that write `to`, within ever more threads, until they are enough.
#[test]
fn a_limit_of_threads_is_an_error_with_a_remedy() {
    if !may_run() {
        events::complain!(
            "skipped: a limit of threads is tested as root, with setpriv, where others may run the program"
        );
        return;
    }
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    rustix::fs::chmod(dir.path(), rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    for processes in 1..64 {
        let output = run_within(processes, dir.path());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let case = format!("{processes} threads, {}: {error}", output.status);
        if output.status.success() {
            assert!(processes > 3, "{processes} threads are enough");
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{case}");
        assert!(error.contains("error: ") && error.contains("`ulimit -u`"), "{case}");
        assert!(!error.contains("panicked") && error.lines().count() <= 24, "{case}");
    }
    panic!("64 threads are not enough");
}

/// Runs the ranks, which save to a directory of their own in `dir`.
fn run_within(processes: usize, dir: &Path) -> Output {
    let flags =
        "--gpus 2 --batch-size 1 --seq-len 8 --steps 1 --threads 2 --device cpu --timeout 60 --headless";
    let words = format!("zero3 {flags} --save {}", dir.join(processes.to_string()).display());
    within(processes, &words).unwrap().output().unwrap()
}
