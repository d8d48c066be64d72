//! Runs the scripts that start jobs unchanged ([`tests::script`]). Slurm's `scontrol` and `srun`,
//! and `torchrun`, are stand-ins. `tests/mpi.rs` uses a real `mpirun`.

use prediction::Stage;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;
use tests::job::{free_port, free_ports, is_free};
use tests::script::succeeded;
use tests::{fixture, train};
use trainer::Report;

/// Returns the flags of one step of 2 ranks.
fn flags() -> String {
    format!("--model {} --batch-size 1 --seq-len 8 --steps 1 --threads 1 --device cpu", fixture("odd.json"))
}

/// Acts like Slurm: two tasks of one step, whose exit code is that of its first failing task.
const SRUN: &str = "shift\n\
    export SLURM_NTASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=0 SLURM_STEP_ID=0\n\
    SLURM_PROCID=1 SLURM_LOCALID=1 \"$@\" & other=$!\n\
    SLURM_PROCID=0 SLURM_LOCALID=0 \"$@\"; code=$?\n\
    wait $other || code=$?\n\
    exit $code";

fn launch(folder: &Path, script: &str, words: &str, set: &[(&str, String)]) -> Output {
    let played = [("scontrol", "echo 127.0.0.1"), ("srun", SRUN), ("torchrun", TORCHRUN)];
    tests::script::launch(env!("CARGO_BIN_EXE_stage"), folder, script, words, set, &played)
}

/// Acts like torchrun: an agent that listens at the port, and two workers. The job's exit code is
/// that of the first failing worker.
const TORCHRUN: &str = "[ \"$1 $2 $3 $4\" = '--standalone --nproc-per-node 2 --no-python' ] || exit 2\n\
    shift 4\n\
    export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 TORCHELASTIC_USE_AGENT_STORE=True\n\
    RANK=1 LOCAL_RANK=1 \"$@\" & other=$!\n\
    RANK=0 LOCAL_RANK=0 \"$@\"; code=$?\n\
    wait $other || code=$?\n\
    exit $code";

/// Checks that the report in `file` agrees with a run of two threads.
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
    // The script derives the port from the job's number.
    let free = |job: &u32| is_free((20_000 + job) as u16);
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

/// The agent keeps its port. The workers, which have only the variables, meet at another one.
#[test]
fn workers_of_torchrun_learn_what_threads_do() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_ports(2);
    let _agent = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let port = [("MASTER_PORT", port.to_string())];
    let report = folder.path().join("report.json");
    let words = format!("2 zero3 {} --report {}", flags(), report.display());
    succeeded(&launch(folder.path(), "torchrun", &words, &port));
    is_threads(&report);
    let failing = format!("2 zero3 {} --inject panic@rank1,step0,forward", flags());
    let output = launch(folder.path(), "torchrun", &failing, &port);
    assert_eq!(output.status.code(), Some(1), "a failing worker is the script's failure");
}
