//! How the ranks are started: as threads, or as processes of a job.

use crate::engine::Engine;
use crate::row::Row;
use crate::{Flags, MOST_RANKS, Result};
use collectives::local::{Options, groups};
use collectives::tcp;
use collectives::{Group, nccl};
use device::cuda::{self, Gpu};
use device::{Device, DeviceError, Ledger};
use events::{Emitter, Operation};
use settings::hardware::one_each;
use settings::launcher::{self, ProcessPosition};
use settings::{Failure, process, secret};
use std::net::TcpListener;
use std::sync::Arc;

/// One rank that is measured: its end of the group, and the device of its buffers.
pub(crate) struct MeasuredRank {
    pub(crate) group: Group,
    pub(crate) engine: Engine,
    pub(crate) device: Device,
}

/// The function that each rank runs.
pub(crate) type Body<'a> = &'a (dyn Fn(&MeasuredRank) -> Result<Vec<Row>> + Sync);

/// Runs `body` on one rank: on the CPU; or on the GPU that `find_gpu` returns, with NCCL under its
/// group. Its peers learn why it fails.
fn measure_on(
    group: Group,
    engine: Engine,
    find_gpu: impl FnOnce() -> Result<Option<Arc<Gpu>>>,
    flags: &Flags,
    body: Body<'_>,
) -> Result<Vec<Row>> {
    let open = || -> Result<Device> {
        let ledger = Ledger::new(Emitter::silent(group.rank()), None);
        Ok(match find_gpu()? {
            Some(gpu) => Device::cuda(ledger, gpu, cuda::Options::default())?,
            None => Device::cpu(ledger, 1),
        })
    };
    let device = open().inspect_err(|error| group.poison("its setup".into(), error.to_string()))?;
    let group = match device.gpu() {
        Some(runtime) => nccl::join(group, runtime, flags.timeout)?,
        None => group,
    };
    let rank = MeasuredRank { group, engine, device };
    body(&rank).inspect_err(|error| rank.group.poison("its measurement".into(), error.to_string()))
}

/// Opens the GPUs of this process's `ranks` ranks, beginning with the machine's GPU number `first`;
/// opens none unless the engine is NCCL. `processes` is the number of processes that this machine
/// has in the job; `None` outside a job.
fn gpus(
    engine: Engine,
    (first, ranks): (usize, usize),
    processes: Option<usize>,
) -> Result<Vec<Option<Arc<Gpu>>>> {
    if engine != Engine::Nccl {
        return Ok(vec![None; ranks]);
    }
    let missing = |error: DeviceError| {
        format!("--engine nccl: {error}\nThe subcommand doctor of every stage lists what is here.")
    };
    match processes {
        None => nccl::allow_sharing(),
        Some(_) => nccl::allow_sharing_among_processes(),
    }
    nccl::version().map_err(missing)?;
    let here = cuda::list().map_err(missing)?.len();
    if here == 0 {
        return Err("--engine nccl: the driver reports no GPU".into());
    }
    if !processes.map_or(ranks <= here, |processes| one_each(here, processes)) {
        nccl::prepare_shared_gpus();
    }
    let used = here.min(ranks);
    let opened: Vec<_> =
        (0..used).map(|gpu| Gpu::open((first + gpu) % here)).collect::<Result<_, _>>().map_err(missing)?;
    Ok((0..ranks).map(|rank| Some(opened[rank % used].clone())).collect())
}

/// Runs `body` on every rank of every engine. Returns rank 0's rows; none if rank 0 is in another
/// process.
pub(crate) fn run(flags: &Flags, body: Body<'_>) -> Result<Vec<Row>> {
    let given = launcher::Flags { rank: flags.rank, gpus: flags.gpus, master: flags.master.as_deref() };
    match launcher::find(given, &|name| std::env::var(name).ok())? {
        Some(position) => in_job(flags, &position, body),
        None => alone(flags, body),
    }
}

/// Runs as one process of a job.
fn in_job(flags: &Flags, position: &ProcessPosition, body: Body<'_>) -> Result<Vec<Row>> {
    if !(1..=MOST_RANKS).contains(&position.world_size) {
        return Err(Failure::usage(format!("WORLD_SIZE: choose 1 to {MOST_RANKS}")).into());
    }
    let by_default = if cfg!(feature = "mpi") && position.under_mpi { Engine::Mpi } else { Engine::Tcp };
    let engine = match flags.engine[..] {
        [] => by_default,
        [Engine::Mpi] if !cfg!(feature = "mpi") => {
            return Err(
                Failure::usage("--engine mpi: this build has no MPI; build with --features mpi").into()
            );
        }
        [engine @ (Engine::Tcp | Engine::Mpi | Engine::Nccl)] => engine,
        _ => return Err(Failure::usage("--engine: between processes choose one, tcp, mpi or nccl").into()),
    };
    let transport = match engine {
        Engine::Mpi => process::Engine::Mpi,
        _ => over_tcp(position)?,
    };
    let joined = transport.join(position, flags.timeout, settings(engine, flags))?;
    if position.rank == 0 && !flags.json {
        heading(position.world_size, "processes");
    }
    // Once all have met: a rank without a GPU or NCCL then tells the others what it lacks.
    let find_gpu = || {
        let together = position.local_world_size.unwrap_or(position.world_size);
        let number = position.local_rank.unwrap_or(position.rank);
        Ok(gpus(engine, (number, 1), Some(together))?.pop().flatten())
    };
    let rows = measure_on(joined.group, engine, find_gpu, flags, body)?;
    Ok(if position.rank == 0 { rows } else { Vec::new() })
}

/// Returns the settings that must be the same in all processes, one flag per line.
fn settings(engine: Engine, flags: &Flags) -> String {
    let Flags { operation, min, max, factor, .. } = flags;
    let operations: Vec<String> = operation.iter().map(Operation::to_string).collect();
    let (engine, operations) = (engine.label(), operations.join(","));
    format!("--engine {engine}\n--operation {operations}\n--min {min}\n--max {max}\n--factor {factor}")
}

fn over_tcp(position: &ProcessPosition) -> Result<process::Engine> {
    let Some((address, port)) = position.master.clone() else {
        return Err(Failure::usage(
            "nothing says where the processes meet: set MASTER_ADDR and MASTER_PORT, or --master HOST:PORT",
        )
        .into());
    };
    let secret = secret::find(&|name| std::env::var(name).ok())?;
    Ok(process::Engine::Tcp(address, port, secret))
}

/// Runs with threads as ranks, one engine after the other.
fn alone(flags: &Flags, body: Body<'_>) -> Result<Vec<Row>> {
    let ranks = flags.gpus.unwrap_or(4);
    let engines = if flags.engine.is_empty() { &[Engine::Local, Engine::Ring][..] } else { &flags.engine };
    if engines.contains(&Engine::Mpi) {
        return Err(Failure::usage("--engine mpi needs mpirun: ranks are processes there").into());
    }
    if !flags.json {
        heading(ranks, "threads");
    }
    let mut rows = Vec::new();
    for &engine in engines {
        let entries = match engine {
            Engine::Tcp => {
                let meeting = free_address(ranks, flags)?;
                let place = |rank| tcp::JoinOptions { rank, ..meeting.clone() };
                (0..ranks as u32).map(|rank| Entry::Meeting(place(rank))).collect()
            }
            _ => {
                let (algorithm, timeout) = (engine.algorithm(), flags.timeout);
                let options = Options { algorithm, timeout, ..Options::default() };
                groups(ranks as u32, options).into_iter().map(Entry::Group).collect()
            }
        };
        rows.extend(threads(entries, engine, flags, body)?);
    }
    Ok(rows)
}

fn heading(ranks: usize, what: &str) {
    events::say!("{ranks} ranks ({what}), f32; bandwidths in GB/s, 1e9 bytes per second");
    events::say!(
        "{:<15}{:<7}{:>12}{:>13}{:>10}{:>10}{:>12}",
        "operation",
        "engine",
        "size",
        "time",
        "algbw",
        "busbw",
        "best busbw"
    );
}

/// Returns the address at which threads that connect by TCP meet.
fn free_address(ranks: usize, flags: &Flags) -> Result<tcp::JoinOptions> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let (address, settings) = ("127.0.0.1".to_string(), String::new());
    let timeout = flags.timeout;
    Ok(tcp::JoinOptions { rank: 0, world_size: ranks as u32, address, port, timeout, settings, secret: None })
}

/// How a thread joins its group.
enum Entry {
    Group(Group),
    /// The thread meets the others by TCP.
    Meeting(tcp::JoinOptions),
}

/// Runs `body` on a thread per rank. Returns rank 0's rows.
fn threads(entries: Vec<Entry>, engine: Engine, flags: &Flags, body: Body<'_>) -> Result<Vec<Row>> {
    let gpus = gpus(engine, (0, entries.len()), None)?;
    std::thread::scope(|scope| {
        let start = |(entry, gpu): (Entry, Option<Arc<Gpu>>)| {
            std::thread::Builder::new().spawn_scoped(scope, move || {
                let group = match entry {
                    Entry::Group(group) => group,
                    Entry::Meeting(place) => tcp::join(&place)?.group,
                };
                measure_on(group, engine, || Ok(gpu), flags, body)
            })
        };
        let mut ranks = Vec::new();
        let mut unstarted = None;
        for (rank, entry) in entries.into_iter().zip(gpus).enumerate() {
            match start(entry) {
                Ok(thread) => ranks.push(thread),
                // Its entry is dropped: ranks that wait for it fail, or time out.
                Err(error) => unstarted = unstarted.or(Some((rank, error))),
            }
        }
        let results = ranks.into_iter().map(|rank| match rank.join() {
            Ok(result) => result,
            Err(_) => Err("a rank panicked".into()),
        });
        let results = results.collect::<Result<Vec<_>>>();
        match unstarted {
            Some((rank, error)) => Err(Failure::run(format!(
                "cannot start the thread of rank {rank}: {error}\n\
                 Use fewer ranks (--gpus), or raise the limit of processes (`ulimit -u`, the container's limit of pids)."
            ))
            .into()),
            None => Ok(results?.swap_remove(0)),
        }
    })
}

#[cfg(test)]
mod tests;
