//! The launcher that started this process: the variables of torchrun, Open MPI, PMIx, PMI and
//! Slurm.
//!
//! From strongest to weakest: flags, torchrun, MPI, Slurm; without any of them the process is alone
//! and its ranks are threads. A launcher's variables are used together. A missing variable, or
//! values that contradict each other, are errors that name the variables: after a wrong guess,
//! ranks would wait for peers that do not exist.

use crate::error::{Failure, Result};
use family::{FAMILIES, read};

mod family;

/// Reads one variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A process's place among the processes that were started together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessPosition {
    /// The launcher's name.
    pub launcher: &'static str,
    /// Its rank.
    pub rank: usize,
    /// Number of processes, one rank each.
    pub world_size: usize,
    /// Its number among the processes on this machine; `None` if unknown.
    pub local_rank: Option<usize>,
    /// Number of processes on this machine; `None` if unknown.
    pub local_world_size: Option<usize>,
    /// Number of cores that each process was given; `None` if unknown.
    pub cores: Option<usize>,
    /// Address and port at which rank 0 listens; `None` if unknown.
    pub master: Option<(String, u16)>,
    /// True if MPI's own launcher started it.
    pub under_mpi: bool,
}

/// Flags about a process's place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags<'a> {
    /// `--rank`.
    pub rank: Option<usize>,
    /// `--gpus`; `None` if it was not typed.
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
pub fn find(flags: Flags<'_>, variables: Variables<'_>) -> Result<Option<ProcessPosition>> {
    let mut found = Vec::new();
    for family in &FAMILIES {
        found.extend(read(family, variables)?);
    }
    agree(&found)?;
    check_pmix(&found, variables)?;
    let by_variables = found.into_iter().reduce(ProcessPosition::completed_by);
    let mut position = match (flags.rank, by_variables) {
        (Some(rank), _) => by_flags(rank, flags)?,
        (None, Some(position)) => position,
        (None, None) if flags.master.is_some() => {
            return Err(Failure::usage("--master belongs to several processes: give each its --rank too"));
        }
        (None, None) => return Ok(None),
    };
    if let Some(gpus) = flags.gpus.filter(|&gpus| gpus != position.world_size && position.world_size > 1) {
        return Err(Failure::usage(format!(
            "--gpus {gpus}, but {} started {} processes, one rank each\nLeave --gpus out, or start {gpus} processes.",
            position.launcher, position.world_size
        )));
    }
    position.master = master(flags.master, variables)?;
    Ok((position.world_size > 1).then_some(position))
}

fn by_flags(rank: usize, flags: Flags<'_>) -> Result<ProcessPosition> {
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
    Ok(ProcessPosition { launcher: "you", rank, world_size, ..ProcessPosition::default() })
}

impl ProcessPosition {
    /// Completes the position with a weaker launcher's variables, if they number the same
    /// processes: `srun --mpi=pmi2` sets Slurm's variables and PMI's, and the latter say nothing
    /// about the machine.
    fn completed_by(self, weaker: ProcessPosition) -> ProcessPosition {
        if weaker.world_size != self.world_size {
            return self;
        }
        ProcessPosition {
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

/// Checks that launchers of the same number of processes agree about the rank. A launcher of fewer
/// processes has started the other launcher.
fn agree(found: &[ProcessPosition]) -> Result<()> {
    let Some((first, others)) = found.split_first() else { return Ok(()) };
    let differs = |other: &&ProcessPosition| other.world_size == first.world_size && other.rank != first.rank;
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
fn check_pmix(found: &[ProcessPosition], variables: Variables<'_>) -> Result<()> {
    let Some(rank) = variables("PMIX_RANK") else { return Ok(()) };
    match found.iter().find(|position| position.launcher != "torchrun") {
        None if found.is_empty() => Err(Failure::usage(format!(
            "PMIX_RANK={rank} is set, but nothing says how many processes there are\n\
             Start through mpirun or srun, which also set OMPI_COMM_WORLD_SIZE or SLURM_NTASKS; or use --rank."
        ))),
        Some(position) if rank.trim() != position.rank.to_string() => Err(contradiction(
            &format!("PMIX_RANK={rank} and {}'s rank {}", position.launcher, position.rank),
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
            Some((host, port)) if !host.is_empty() && port > 0 => {
                Ok(Some((host.trim_matches(['[', ']']).into(), port)))
            }
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
mod tests;
