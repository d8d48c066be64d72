//! The variables in which each launcher gives a process its place.

use super::{ProcessPosition, Variables, contradiction};
use crate::error::{Failure, Result};

/// The variables of one launcher: rank, size, local rank, local size. The last two may be missing.
pub(super) struct Family {
    pub(super) launcher: &'static str,
    pub(super) names: [&'static str; 4],
    /// The variable that numbers the machines; `None` unless the local size is a list over all
    /// machines.
    machine: Option<&'static str>,
    /// The variable that says how many cores each process was given.
    cores: Option<&'static str>,
    mpi: bool,
    /// The family counts only if this variable is set too.
    only_with: Option<&'static str>,
}

/// A launcher that sets none of the other variables.
const PLAIN: Family =
    Family { launcher: "", names: [""; 4], machine: None, cores: None, mpi: false, only_with: None };

/// From strongest to weakest.
pub(super) const FAMILIES: [Family; 4] = [
    Family { launcher: "torchrun", names: ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"], ..PLAIN },
    Family {
        launcher: "mpirun",
        names: [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ],
        mpi: true,
        ..PLAIN
    },
    Family {
        launcher: "mpiexec",
        names: ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
        mpi: true,
        ..PLAIN
    },
    Family {
        launcher: "Slurm",
        // Not `SLURM_NTASKS_PER_NODE`: it is the number that the job asked for, and `srun` may
        // start fewer processes.
        names: ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"],
        machine: Some("SLURM_NODEID"),
        cores: Some("SLURM_CPUS_PER_TASK"),
        only_with: Some("SLURM_STEP_ID"),
        ..PLAIN
    },
];

/// Reads one launcher's variables; `None` if they are not set.
pub(super) fn read(family: &Family, variables: Variables<'_>) -> Result<Option<ProcessPosition>> {
    if family.only_with.is_some_and(|name| variables(name).is_none()) {
        return Ok(None);
    }
    let number = |name| number(family, variables, name);
    let [rank_name, size_name, local_rank_name, local_size_name] = family.names;
    let (rank, world_size) = match (number(rank_name)?, number(size_name)?) {
        (Some(rank), Some(size)) => (rank, size),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(partial(family, rank_name, size_name)),
        (None, Some(_)) => return Err(partial(family, size_name, rank_name)),
    };
    if rank >= world_size {
        return Err(contradiction(
            &format!("{rank_name}={rank} and {size_name}={world_size}"),
            "ranks count from 0",
        ));
    }
    let local_rank = number(local_rank_name)?;
    let local_size = local_size(family, variables)?;
    if let Some(local) = local_size.filter(|&local| local > world_size || local == 0) {
        let what = format!("{local_size_name}={local} and {size_name}={world_size}");
        return Err(contradiction(&what, "a machine has at least one and at most all of the processes"));
    }
    if let (Some(local), Some(size)) = (local_rank, local_size)
        && local >= size
    {
        let what = format!("{local_rank_name}={local} and {local_size_name}={size}");
        return Err(contradiction(&what, "ranks count from 0"));
    }
    Ok(Some(ProcessPosition {
        launcher: family.launcher,
        rank,
        world_size,
        local_rank,
        local_world_size: local_size,
        cores: family.cores.map(number).transpose()?.flatten().filter(|&cores| cores > 0),
        under_mpi: family.mpi,
        ..ProcessPosition::default()
    }))
}

fn number(family: &Family, variables: Variables<'_>, name: &str) -> Result<Option<usize>> {
    let Some(text) = variables(name) else { return Ok(None) };
    let no_number = |_| {
        let launcher = family.launcher;
        Failure::usage(format!(
            "{name}={text:?} is not a number. {launcher} sets it; start through {launcher}, or unset it."
        ))
    };
    text.trim().parse().map(Some).map_err(no_number)
}

/// Reads the number of processes on this machine, which some launchers list for all machines.
fn local_size(family: &Family, variables: Variables<'_>) -> Result<Option<usize>> {
    let [.., name] = family.names;
    let (Some(machine_name), Some(sizes)) = (family.machine, variables(name)) else {
        return number(family, variables, name);
    };
    let Some(machine) = number(family, variables, machine_name)? else {
        return Err(partial(family, name, machine_name));
    };
    entry(&sizes, machine).map(Some).ok_or_else(|| {
        let what = format!("{name}={sizes:?} and {machine_name}={machine}");
        contradiction(&what, "the first lists the processes of each machine, such as 2(x3),1")
    })
}

/// Returns the `index`-th number of a list in which `2(x3)` stands for `2,2,2`.
fn entry(list: &str, mut index: usize) -> Option<usize> {
    for run in list.trim().split(',') {
        let (number, times) = match run.strip_suffix(')') {
            Some(run) => run.split_once("(x")?,
            None => (run, "1"),
        };
        let (number, times) = (number.parse().ok()?, times.parse().ok()?);
        if index < times {
            return Some(number);
        }
        index -= times;
    }
    None
}

fn partial(family: &Family, there: &str, missing: &str) -> Failure {
    let [rank, size, ..] = family.names;
    Failure::usage(format!(
        "{there} is set but {missing} is not: {} sets both\n\
         Start through a launcher, set both, or `unset {rank} {size}` to train in one process.",
        family.launcher
    ))
}
