//! The scripts that start jobs, run as they stand: of their surroundings only what is not here is played, `cargo` (the programs
//! are built) and Slurm's `scontrol` and `srun`.

use planner::Stage;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use tests::job::free_port;
use tests::{fixture, train};
use trainer::Report;

/// One step of 2 ranks.
fn flags() -> String {
    format!("--model {} --batch-size 1 --seq-len 8 --steps 1 --threads 1 --device cpu", fixture("odd.json"))
}

/// As Slurm does: two tasks of one step, whose first failure is the step's.
const SRUN: &str = "shift\n\
    export SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=2 SLURM_STEP_ID=0\n\
    SLURM_PROCID=1 SLURM_LOCALID=1 \"$@\" & other=$!\n\
    SLURM_PROCID=0 SLURM_LOCALID=0 \"$@\"; code=$?\n\
    wait $other || code=$?\n\
    exit $code";

/// Runs a script of `scripts/launch` from `folder`, with the variables `set`.
fn launch(folder: &Path, script: &str, words: &str, set: &[(&str, String)]) -> Output {
    let programs = folder.join("programs");
    std::fs::create_dir_all(folder.join("target/release")).unwrap();
    std::fs::create_dir_all(&programs).unwrap();
    let stage = format!("exec {} zero3 \"$@\"", env!("CARGO_BIN_EXE_stage"));
    for (file, body) in [
        (folder.join("target/release/zero3"), stage.as_str()),
        (programs.join("cargo"), "exit 0"),
        (programs.join("scontrol"), "echo 127.0.0.1"),
        (programs.join("srun"), SRUN),
    ] {
        std::fs::write(&file, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let script = format!("{}/../scripts/launch/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(script);
    command.args(words.split_whitespace()).current_dir(folder).env("PATH", path);
    command
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .envs(set.iter().map(|(name, value)| (name, value)));
    command.output().unwrap()
}

fn succeeded(output: &Output) {
    let text = |bytes| String::from_utf8_lossy(bytes);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// The report in `file` is of what two threads learn.
fn is_threads(file: &Path) {
    let threads = train(Stage::Zero3, &format!("--gpus 2 {}", flags())).unwrap();
    assert_eq!(Report::read(file).unwrap().weights_blake3, threads.weights_blake3);
}

#[test]
fn processes_of_this_machine_learn_what_threads_do() {
    let folder = tempfile::tempdir().unwrap();
    let port = [("MASTER_PORT", free_port().to_string())];
    let report = folder.path().join("report.json");
    let words = format!("2 zero3 {} --report {}", flags(), report.display());
    succeeded(&launch(folder.path(), "processes", &words, &port));
    is_threads(&report);
    let failing = format!("2 zero3 {} --inject panic@rank1,step0,forward", flags());
    let output = launch(folder.path(), "processes", &failing, &port);
    assert_eq!(output.status.code(), Some(1), "a failing rank is the script's failure");
}

#[test]
fn tasks_of_a_slurm_job_learn_what_threads_do() {
    let folder = tempfile::tempdir().unwrap();
    // The script makes the port from the job's number.
    let free = |job: &u32| TcpListener::bind(("127.0.0.1", (20_000 + job) as u16)).is_ok();
    let job = (std::process::id() % 10_000..20_000).find(free).unwrap();
    let set = [("SLURM_JOB_ID", job.to_string()), ("SLURM_JOB_NODELIST", "node".into())];
    let words = format!("zero3 {} --report report.json", flags());
    succeeded(&launch(folder.path(), "slurm.sbatch", &words, &set));
    is_threads(&folder.path().join("report.json"));
    for rank in 0..2 {
        let log = folder.path().join(format!("zero-{job}/rank-{rank}.log"));
        assert!(std::fs::read_to_string(log).unwrap().contains("finished"), "rank {rank}");
    }
}
