//! The position from each launcher's variables, their precedence, and contradictions.

use super::*;

fn with(flags: Flags<'_>, set: &str) -> Result<Option<ProcessPosition>> {
    let pairs: Vec<(&str, &str)> = set.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
    find(flags, &|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string()))
}

fn place(set: &str) -> (usize, usize, usize, &'static str) {
    let found = with(Flags::default(), set).unwrap().unwrap();
    (found.rank, found.world_size, found.local_world_size.unwrap_or(1), found.launcher)
}

fn refused(set: &str) -> String {
    let failure = with(Flags::default(), set).unwrap_err();
    assert_eq!(failure.code(), 2);
    assert!(failure.to_string().lines().count() <= 3, "{failure}");
    failure.to_string()
}

const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=1";
const SLURM: &str = "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_NODEID=1 SLURM_LOCALID=1 SLURM_STEP_ID=0 \
                     SLURM_STEP_TASKS_PER_NODE=4(x2)";

#[test]
fn each_launcher_is_understood() {
    let torch = "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2";
    assert_eq!(place(torch), (2, 4, 2, "torchrun"));
    assert_eq!(place("RANK=2 WORLD_SIZE=4"), (2, 4, 1, "torchrun"));
    assert_eq!(place(OPEN_MPI), (1, 4, 2, "mpirun"));
    assert_eq!(place("PMI_RANK=3 PMI_SIZE=4"), (3, 4, 1, "mpiexec"));
    assert_eq!(place(SLURM), (5, 8, 4, "Slurm"));
    assert_eq!(place(&format!("{SLURM} PMIX_RANK=5")), (5, 8, 4, "Slurm"));
    let local = |set: &str| {
        let found = with(Flags::default(), set).unwrap().unwrap();
        (found.local_rank, found.under_mpi)
    };
    assert_eq!([torch, SLURM].map(local), [(Some(0), false), (Some(1), false)]);
    assert_eq!([OPEN_MPI, "PMI_RANK=3 PMI_SIZE=4"].map(local), [(Some(1), true), (None, true)]);
}

/// The number of processes that `srun` starts counts, on machines that differ, whatever the job
/// asked for.
#[test]
fn slurms_steps_count_and_not_its_jobs() {
    let step = |node: usize, tasks: &str| {
        let set = format!(
            "SLURM_PROCID=2 SLURM_NTASKS=7 SLURM_NODEID={node} SLURM_LOCALID=0 SLURM_STEP_ID=1 \
             SLURM_STEP_TASKS_PER_NODE={tasks} SLURM_NTASKS_PER_NODE=9"
        );
        with(Flags::default(), &set).map(|found| found.unwrap().local_world_size)
    };
    assert_eq!([0, 1, 2, 3].map(|node| step(node, "2(x2),1,2").unwrap()), [2, 2, 1, 2].map(Some));
    assert_eq!(step(0, "7"), Ok(Some(7)));
    for list in ["", "two", "2(x", "2(2)", "2(x2),"] {
        let message = step(2, list).unwrap_err().to_string();
        assert!(message.contains("SLURM_STEP_TASKS_PER_NODE") && message.contains("2(x3),1"), "{message}");
    }
}

#[test]
fn slurm_adds_what_pmi_does_not_say() {
    let set = format!("PMI_RANK=5 PMI_SIZE=8 {SLURM} SLURM_CPUS_PER_TASK=3");
    let found = with(Flags::default(), &set).unwrap().unwrap();
    assert_eq!((found.launcher, found.under_mpi), ("Slurm", true));
    assert_eq!((found.local_rank, found.local_world_size, found.cores), (Some(1), Some(4), Some(3)));
    let fewer = format!("RANK=2 WORLD_SIZE=16 {SLURM} SLURM_CPUS_PER_TASK=3");
    let found = with(Flags::default(), &fewer).unwrap().unwrap();
    assert_eq!((found.local_rank, found.local_world_size, found.cores), (None, None, None));
}

#[test]
fn a_process_without_a_launcher_or_without_company_is_alone() {
    for set in ["", "SLURM_PROCID=0 SLURM_NTASKS=4", "RANK=0 WORLD_SIZE=1", "MASTER_ADDR=a MASTER_PORT=1"] {
        assert_eq!(with(Flags::default(), set), Ok(None), "{set}");
    }
    let flags = Flags { gpus: Some(4), ..Flags::default() };
    assert_eq!(with(flags, "RANK=0 WORLD_SIZE=1"), Ok(None), "one process may have ranks of its own");
}

#[test]
fn flags_come_before_torchrun_before_mpi_before_slurm() {
    assert_eq!(place(&format!("RANK=7 WORLD_SIZE=16 {OPEN_MPI} {SLURM}")).3, "torchrun");
    assert_eq!(place(&format!("RANK=7 WORLD_SIZE=16 {SLURM}")), (7, 16, 1, "torchrun"));
    assert_eq!(place(&format!("{OPEN_MPI} {SLURM}")).3, "mpirun");
    let flags = Flags { rank: Some(1), gpus: Some(2), master: Some("[::1]:80") };
    let found =
        with(flags, &format!("RANK=7 WORLD_SIZE=16 {SLURM} MASTER_ADDR=a MASTER_PORT=1")).unwrap().unwrap();
    assert_eq!((found.rank, found.world_size, found.master), (1, 2, Some(("::1".into(), 80))));
}

#[test]
fn partial_and_contradictory_sets_name_their_variables() {
    for (set, words) in [
        ("RANK=1", ["RANK", "WORLD_SIZE"]),
        ("WORLD_SIZE=4", ["WORLD_SIZE", "RANK is not"]),
        ("RANK=4 WORLD_SIZE=4", ["RANK=4", "WORLD_SIZE=4"]),
        ("RANK=one WORLD_SIZE=4", ["RANK", "not a number"]),
        ("RANK=-1 WORLD_SIZE=4", ["RANK", "not a number"]),
        ("RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", ["LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"]),
        ("RANK=1 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=8", ["LOCAL_WORLD_SIZE=8", "WORLD_SIZE=4"]),
        ("OMPI_COMM_WORLD_RANK=1", ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"]),
        ("PMIX_RANK=1", ["PMIX_RANK", "how many"]),
        ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0", ["PMIX_RANK=0", "rank 1"]),
        (
            "RANK=0 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4",
            ["RANK=0", "OMPI_COMM_WORLD_RANK=1"],
        ),
        ("SLURM_PROCID=1 SLURM_STEP_ID=0", ["SLURM_PROCID", "SLURM_NTASKS"]),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", ["MASTER_ADDR", "MASTER_PORT"]),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000", ["MASTER_PORT", "65535"]),
    ] {
        let message = refused(set);
        assert!(words.iter().all(|word| message.contains(word)), "{set}: {message}");
    }
}

#[test]
fn flags_must_agree_with_each_other_and_the_launcher() {
    let refused = |flags, set: &str| with(flags, set).unwrap_err().to_string();
    let gpus = Flags { gpus: Some(8), ..Flags::default() };
    assert!(refused(gpus, "RANK=0 WORLD_SIZE=4").contains("--gpus 8, but torchrun started 4"));
    let rank = Flags { rank: Some(1), ..Flags::default() };
    assert!(refused(rank, "").contains("--gpus N"));
    let rank = Flags { rank: Some(1), gpus: Some(2), ..Flags::default() };
    assert!(refused(rank, "").contains("--master HOST:PORT"));
    let rank = Flags { rank: Some(2), gpus: Some(2), master: Some("a:1") };
    assert!(refused(rank, "").contains("ranks 0 to 1"));
    for master in ["a", "a:0", ":1", "a:65536"] {
        let rank = Flags { rank: Some(1), gpus: Some(2), master: Some(master) };
        assert!(refused(rank, "").contains("HOST:PORT"), "{master}");
    }
    assert!(refused(Flags { master: Some("a:1"), ..Flags::default() }, "").contains("--rank"));
}

#[test]
fn torchruns_own_port_is_left_to_it() {
    let master = |set: &str| with(Flags::default(), set).unwrap().unwrap().master;
    let set = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=node MASTER_PORT=29500";
    assert_eq!(master(set), Some(("node".into(), 29_500)));
    let agent = format!("{set} TORCHELASTIC_USE_AGENT_STORE=True");
    assert_eq!(master(&agent), Some(("node".into(), 29_501)));
}
