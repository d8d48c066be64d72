//! The launcher that started this process: the variables of torchrun, Open MPI, PMIx, PMI and
//! Slurm.
//!
//! From strongest to weakest: flags, torchrun, MPI, Slurm; without any of them the process is alone
//! and its ranks are threads. A launcher's variables count as a whole: a part of them, or values
//! that contradict each other, are errors that name the variables: with a wrong guess, ranks would
//! wait for peers that do not exist.

use crate::error::{Failure, Result};
use family::{FAMILIES, read};

mod family;

/// Reads one variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A process's place among those that were started together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The launcher's name.
    pub launcher: &'static str,
    /// Its rank.
    pub rank: usize,
    /// Number of processes, one rank each.
    pub world_size: usize,
    /// Its number among those on this machine, if known.
    pub local_rank: Option<usize>,
    /// Number of processes on this machine, if known.
    pub local_world_size: Option<usize>,
    /// Cores that each process was given, if known.
    pub cores: Option<usize>,
    /// Address and port at which rank 0 listens, if known.
    pub master: Option<(String, u16)>,
    /// True if MPI's own launcher started it.
    pub under_mpi: bool,
}

/// Flags about a process's place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags<'a> {
    /// `--rank`.
    pub rank: Option<usize>,
    /// `--gpus`, if it was typed.
    pub gpus: Option<usize>,
    /// `--master`.
    pub master: Option<&'a str>,
}

/// Lists the variables by which launchers tell a process its place.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.names).chain(["MASTER_ADDR", "MASTER_PORT", "PMIX_RANK"])
}

/// Finds this process's place; `None` if it is alone, or the only one that a launcher started.
///
/// # Errors
/// A usage failure that names the variables or flags.
pub fn find(flags: Flags<'_>, variables: Variables<'_>) -> Result<Option<Placement>> {
    let mut found = Vec::new();
    for family in &FAMILIES {
        found.extend(read(family, variables)?);
    }
    agree(&found)?;
    check_pmix(&found, variables)?;
    let by_variables = found.into_iter().reduce(Placement::completed_by);
    let mut placement = match (flags.rank, by_variables) {
        (Some(rank), _) => by_flags(rank, flags)?,
        (None, Some(placement)) => placement,
        (None, None) if flags.master.is_some() => {
            return Err(Failure::usage("--master belongs to several processes: give each its --rank too"));
        }
        (None, None) => return Ok(None),
    };
    if let Some(gpus) = flags.gpus.filter(|&gpus| gpus != placement.world_size && placement.world_size > 1) {
        return Err(Failure::usage(format!(
            "--gpus {gpus}, but {} started {} processes, one rank each\nLeave --gpus out, or start {gpus} processes.",
            placement.launcher, placement.world_size
        )));
    }
    placement.master = master(flags.master, variables)?;
    Ok((placement.world_size > 1).then_some(placement))
}

fn by_flags(rank: usize, flags: Flags<'_>) -> Result<Placement> {
    let Some(world_size) = flags.gpus else {
        return Err(Failure::usage("--rank needs the number of processes, one rank each: add --gpus N"));
    };
    if flags.master.is_none() {
        return Err(Failure::usage(
            "--rank needs to know where rank 0 listens: add --master HOST:PORT, the same on every rank",
        ));
    }
    if rank >= world_size {
        return Err(Failure::usage(format!(
            "--rank {rank}, but --gpus {world_size} has ranks 0 to {}",
            world_size - 1
        )));
    }
    Ok(Placement {
        launcher: "you",
        rank,
        world_size,
        local_rank: None,
        local_world_size: None,
        cores: None,
        master: None,
        under_mpi: false,
    })
}

impl Placement {
    /// Adds what a weaker launcher's variables say, if they number the same processes: `srun
    /// --mpi=pmi2` sets Slurm's variables and PMI's, and the latter say nothing about the machine.
    fn completed_by(self, weaker: Placement) -> Placement {
        if weaker.world_size != self.world_size {
            return self;
        }
        Placement {
            launcher: if self.launcher == "mpiexec" { weaker.launcher } else { self.launcher },
            local_rank: self.local_rank.or(weaker.local_rank),
            local_world_size: self.local_world_size.or(weaker.local_world_size),
            cores: self.cores.or(weaker.cores),
            ..self
        }
    }
}

fn contradiction(what: &str, why: &str) -> Failure {
    Failure::usage(format!(
        "{what} contradict each other: {why}\nA launcher sets them; unset those that it did not set."
    ))
}

/// Checks that launchers of equally many processes agree about the rank. One that started fewer has
/// started the other.
fn agree(found: &[Placement]) -> Result<()> {
    let Some((first, others)) = found.split_first() else { return Ok(()) };
    let differs = |other: &&Placement| other.world_size == first.world_size && other.rank != first.rank;
    let Some(other) = others.iter().find(differs) else { return Ok(()) };
    let names = |launcher| FAMILIES.iter().find(|f| f.launcher == launcher).map_or("", |f| f.names[0]);
    Err(contradiction(
        &format!("{}={} and {}={}", names(first.launcher), first.rank, names(other.launcher), other.rank),
        &format!(
            "{} and {} number {} processes differently",
            first.launcher, other.launcher, first.world_size
        ),
    ))
}

/// Checks PMIx's rank. PMIx does not say how many processes there are.
fn check_pmix(found: &[Placement], variables: Variables<'_>) -> Result<()> {
    let Some(rank) = variables("PMIX_RANK") else { return Ok(()) };
    match found.iter().find(|placement| placement.launcher != "torchrun") {
        None if found.is_empty() => Err(Failure::usage(format!(
            "PMIX_RANK={rank} is set, but nothing says how many processes there are\n\
             Start through mpirun or srun, which also set OMPI_COMM_WORLD_SIZE or SLURM_NTASKS; or use --rank."
        ))),
        Some(placement) if rank.trim() != placement.rank.to_string() => Err(contradiction(
            &format!("PMIX_RANK={rank} and {}'s rank {}", placement.launcher, placement.rank),
            "they number the same process",
        )),
        _ => Ok(()),
    }
}

/// Returns the address at which rank 0 listens: the flag, or MASTER_ADDR and MASTER_PORT.
fn master(flag: Option<&str>, variables: Variables<'_>) -> Result<Option<(String, u16)>> {
    if let Some(text) = flag {
        let split = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        return match split {
            Some((host, port)) if !host.is_empty() => Ok(Some((host.trim_matches(['[', ']']).into(), port))),
            _ => Err(Failure::usage(format!("--master {text}: write HOST:PORT, such as 10.0.0.1:29500"))),
        };
    }
    let (host, port) = match (variables("MASTER_ADDR"), variables("MASTER_PORT")) {
        (Some(host), Some(port)) => (host, port),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(half("MASTER_ADDR", "MASTER_PORT")),
        (None, Some(_)) => return Err(half("MASTER_PORT", "MASTER_ADDR")),
    };
    let number = port.trim().parse::<u16>().ok().filter(|&number| number > 0);
    let Some(number) = number else {
        return Err(Failure::usage(format!("MASTER_PORT={port:?}: choose a number from 1 to 65535")));
    };
    // torchrun itself listens at this port and expects its workers to use its store: take the next
    // port.
    let taken = variables("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
    Ok(Some((host, if taken { number.checked_add(1).unwrap_or(number - 1) } else { number })))
}

fn half(there: &str, missing: &str) -> Failure {
    Failure::usage(format!(
        "{there} is set but {missing} is not: set both, the same on every rank, or use --master"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(flags: Flags<'_>, set: &str) -> Result<Option<Placement>> {
        let pairs: Vec<(&str, &str)> =
            set.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
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

    /// What `srun` starts within a job, on machines that differ, whatever the job asked for.
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
            assert!(
                message.contains("SLURM_STEP_TASKS_PER_NODE") && message.contains("2(x3),1"),
                "{message}"
            );
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
        for set in ["", "SLURM_PROCID=0 SLURM_NTASKS=4", "RANK=0 WORLD_SIZE=1", "MASTER_ADDR=a MASTER_PORT=1"]
        {
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
        let found = with(flags, &format!("RANK=7 WORLD_SIZE=16 {SLURM} MASTER_ADDR=a MASTER_PORT=1"))
            .unwrap()
            .unwrap();
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
        let rank = Flags { rank: Some(1), gpus: Some(2), master: Some("a") };
        assert!(refused(rank, "").contains("HOST:PORT"));
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
}
