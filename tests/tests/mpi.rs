//! Ranks that are processes of an MPI job. Built only with `--features mpi`, because it needs an
//! MPI: `scripts/test-mpi`.

#![cfg(feature = "mpi")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::job::{Ended, OPEN_MPI, desync, start};
use tests::{STAGES, fixture, script, train};
use trainer::Report;

const STAGE: &str = env!("CARGO_BIN_EXE_stage");
const PATIENCE: Duration = Duration::from_secs(90);

/// Has Open MPI keep its files in `dir`: two jobs that create its usual directory at the same time
/// fail.
fn files_in(dir: &Path) -> String {
    format!("--mca orte_tmpdir_base {}", dir.display())
}

fn mpirun(dir: &Path, size: usize, flags: &str) -> tests::job::Member {
    start("mpirun", &format!("{} -n {size} {STAGE} {flags}", files_in(dir)), OPEN_MPI)
}

fn endless(more: &str) -> String {
    format!("zero3 --headless --batch-size 1 --seq-len 16 --threads 1 --steps 1000000 {more}")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn four_mpi_processes_learn_the_bits_of_four_threads_in_every_stage() {
    let dir = tempfile::tempdir().unwrap();
    let flags = format!("--model {} --batch-size 2 --seq-len 16 --steps 4 --threads 1", fixture("odd.json"));
    for stage in STAGES {
        let threads = train(stage, &format!("{flags} --gpus 4")).unwrap();
        let [report, record] =
            ["json", "zero"].map(|end| dir.path().join(format!("{}.{end}", stage.package())));
        let files = format!("--report {} --record {}", report.display(), record.display());
        let ended =
            mpirun(dir.path(), 4, &format!("{} --headless {flags} {files}", stage.package())).end(PATIENCE);
        assert_eq!(ended.code, Some(0), "{stage}: {}", ended.error);
        assert!(ended.out.contains("connected by MPI"), "{}", ended.out);
        let (processes, threads) = (json(&report), serde_json::to_value(&threads).unwrap());
        for key in ["weights_blake3", "memory", "total_peak_bytes", "traffic"] {
            assert_eq!(processes[key], threads[key], "{stage}: {key}");
        }
        let events = tests::recorded(&record).into_iter();
        let finished = events.filter(|event| matches!(event.what, events::What::Finished { .. }));
        let mut ranks: Vec<u32> = finished.map(|event| event.rank).collect();
        ranks.sort();
        assert_eq!(ranks, [0, 1, 2, 3], "{stage}: all ranks' events are recorded");
    }
}

/// Runs the script unchanged under a real mpirun. Only its build is skipped.
#[test]
fn the_script_starts_processes_that_learn_what_threads_do() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let flags = format!("--model {} --batch-size 1 --seq-len 8 --steps 1 --threads 1", fixture("odd.json"));
    let words = format!("2 zero3 {flags} --report {}", report.display());
    let set = [("MPIRUN_FLAGS", format!("--oversubscribe --allow-run-as-root {}", files_in(folder.path())))];
    let output = script::launch(STAGE, folder.path(), "mpirun", &words, &set, &[]);
    script::succeeded(&output);
    assert!(String::from_utf8_lossy(&output.stdout).contains("connected by MPI"));
    let threads = train(prediction::Stage::Zero3, &format!("--gpus 2 {flags}")).unwrap();
    assert_eq!(Report::read(&report).unwrap().weights_blake3, threads.weights_blake3);
}

/// Returns the process ids of a job's ranks, which are found by a word that only their command
/// lines contain.
fn ranks(word: &str) -> Vec<(u32, String)> {
    let found = Command::new("pgrep").args(["-f", &format!("^{STAGE}.*{word}")]).output().unwrap();
    let numbers = String::from_utf8(found.stdout).unwrap();
    let rank = |pid: u32| {
        let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&variables).into_owned();
        let set = text.split('\0').find_map(|pair| pair.strip_prefix("OMPI_COMM_WORLD_RANK="));
        set.unwrap_or_default().to_string()
    };
    numbers.lines().map(|line| line.parse().unwrap()).map(|pid| (pid, rank(pid))).collect()
}

#[test]
fn a_killed_mpi_process_ends_the_job_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let word = dir.path().display().to_string();
    let job = mpirun(dir.path(), 4, &endless(&format!("--log-dir {word}")));
    let log = || std::fs::read_to_string(dir.path().join("rank-0.log")).unwrap_or_default();
    let begin = Instant::now();
    while !log().contains("step 0") {
        assert!(begin.elapsed() < PATIENCE, "{}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (victim, _) = ranks(&word).into_iter().find(|(_, rank)| rank == "2").expect("rank 2 is there");
    assert!(Command::new("kill").args(["-KILL", &victim.to_string()]).status().unwrap().success());
    let Ended { code, error, out, after } = job.end(PATIENCE);
    assert_ne!(code, Some(0));
    assert!(format!("{error}{out}").contains("rank 2"), "{error}{out}");
    assert!(after < Duration::from_secs(60), "{after:?}");
    assert!(ranks(&word).is_empty(), "no process is left behind");
}

#[test]
fn an_error_of_one_mpi_rank_ends_all() {
    let dir = tempfile::tempdir().unwrap();
    let ended = mpirun(dir.path(), 3, &endless("--inject error@rank1,step2,backward")).end(PATIENCE);
    assert_ne!(ended.code, Some(0));
    assert!(ended.error.contains("error: rank 1: injected error in backward of step 2"), "{}", ended.error);
    assert!(ended.error.contains("rank 1 failed during step 2: injected error"), "{}", ended.error);
}

#[test]
fn an_mpi_rank_that_leaves_out_a_collective_is_named_by_all() {
    let dir = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let ended = mpirun(dir.path(), 3, &endless("--timeout 60 --inject skip@rank2,step1")).end(PATIENCE);
    assert_ne!(ended.code, Some(0));
    let errors: Vec<&str> =
        ended.error.split("error: ").filter(|text| text.contains("collective #")).collect();
    let numbers: BTreeSet<u64> = errors.iter().map(|error| desync(error, 2, "all-gather")).collect();
    // mpirun ends the job with the first failing rank, possibly before others report the error too.
    assert_eq!(numbers.len(), 1, "all name the same collective: {}", ended.error);
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[test]
fn a_silent_mpi_rank_is_named_once_patience_ends() {
    let dir = tempfile::tempdir().unwrap();
    let ended =
        mpirun(dir.path(), 3, &endless("--timeout 1 --inject stall@rank2,step1,forward")).end(PATIENCE);
    assert_ne!(ended.code, Some(0));
    assert!(ended.error.contains("waited 1s"), "{}", ended.error);
    assert!(ended.error.contains("for rank 2"), "{}", ended.error);
}
