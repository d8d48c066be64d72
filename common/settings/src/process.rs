//! Ranks that are processes: a process's place in a job.

use crate::cli::{CollectivesChoice, DeviceChoice, TrainArgs};
use crate::error::{Failure, Result};
use crate::hardware::{gpus_for, one_each};
use crate::launcher::{self, ProcessPosition, Variables};
use crate::machine::{THREADS, cores};
use crate::precision::precision;
use crate::secret;
#[cfg(feature = "mpi")]
use collectives::mpi;
use collectives::nccl;
use collectives::tcp::{self, Joined, Secret};
use events::say::counted;
use prediction::Algorithm;
use sharding::Precision;
use std::path::Path;
use std::time::Duration;

/// This process's part in a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its place.
    pub position: ProcessPosition,
    /// The transport of collectives.
    pub engine: Engine,
    /// A warning if the run will be slow; else `None`.
    pub warning: Option<String>,
}

/// The transport of collectives between processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// TCP connections between all processes, set up through rank 0 at this host and port, with the
    /// job's secret if it has one.
    Tcp(String, u16, Option<Secret>),
    /// MPI.
    Mpi,
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Engine::Tcp(..) => "TCP",
            Engine::Mpi => "MPI",
        })
    }
}

impl Engine {
    /// Joins the other processes, at `position`. `settings` must be the same in all of
    /// them.
    ///
    /// # Errors
    /// If they do not connect before the timeout or have different settings, or this build has no
    /// MPI.
    pub fn join(&self, position: &ProcessPosition, timeout: Duration, settings: String) -> Result<Joined> {
        let (rank, world_size) = (position.rank as u32, position.world_size as u32);
        match self {
            Engine::Tcp(address, port, secret) => tcp::join(&tcp::JoinOptions {
                rank,
                world_size,
                address: address.clone(),
                port: *port,
                timeout,
                settings,
                secret: *secret,
            })
            .map_err(Failure::run),
            #[cfg(feature = "mpi")]
            Engine::Mpi => {
                mpi::join(&mpi::JoinOptions { rank, world_size, timeout, settings }).map_err(Failure::run)
            }
            #[cfg(not(feature = "mpi"))]
            Engine::Mpi => Err(Failure::usage("this build has no MPI: build with --features mpi")),
        }
    }
}

/// Finds this process's place and completes `args` accordingly; `None` if it is the only process.
///
/// # Errors
/// A usage failure that names the flags or variables.
pub fn detect(args: &mut TrainArgs, variables: Variables<'_>) -> Result<Option<Process>> {
    let gpus = args.given.typed("gpus").map(|_| args.gpus);
    let flags = launcher::Flags { rank: args.rank, gpus, master: args.master.as_deref() };
    let Some(position) = launcher::find(flags, variables)? else {
        return match args.collectives {
            CollectivesChoice::Auto | CollectivesChoice::Local | CollectivesChoice::Nccl => Ok(None),
            CollectivesChoice::Tcp | CollectivesChoice::Mpi => Err(Failure::usage(
                "--collectives tcp and mpi connect processes, and this one is alone\n\
                 Start it with torchrun, mpirun or srun, or give each process --rank, --gpus and --master.",
            )),
        };
    };
    if args.algorithm == Algorithm::Ring {
        return Err(Failure::usage(
            "--algorithm ring is for ranks that are threads: processes send directly",
        ));
    }
    if args.link.is_some() {
        return Err(Failure::usage(
            "--link simulates a link between ranks that are threads: processes have a real one",
        ));
    }
    choose_device(args, &position)?;
    args.gpus = position.world_size;
    let local_world_size = position.local_world_size.unwrap_or(1);
    args.on_this_machine = Some(local_world_size);
    let share = (cores() / local_world_size).max(1);
    let threads = position.cores.map_or(share, |given| given.min(cores()));
    args.threads = args.threads.or(Some(threads.min(THREADS)));
    let engine = engine(args.collectives, &position, variables)?;
    let warning = sharing_warning(args.collectives, local_world_size, precision(&args.types));
    Ok(Some(Process { position, engine, warning }))
}

/// Decides in `args` whether the processes compute on GPUs, connected by NCCL, or on the CPU.
fn choose_device(args: &mut TrainArgs, position: &ProcessPosition) -> Result<()> {
    let by_nccl = match (args.collectives, args.device) {
        (CollectivesChoice::Nccl | CollectivesChoice::Auto, DeviceChoice::Cpu) => false,
        (CollectivesChoice::Nccl, _) | (CollectivesChoice::Auto, DeviceChoice::Cuda) => true,
        (CollectivesChoice::Auto, DeviceChoice::Auto) => {
            let processes = position.local_world_size.unwrap_or(1);
            position.master.is_some() && nccl_would_do(processes, precision(&args.types))
        }
        (_, DeviceChoice::Cuda) => {
            return Err(Failure::usage(
                "--device cuda in several processes needs NCCL between them: tcp and mpi move main memory only\n\
                 Leave --collectives out, or say --collectives nccl.",
            ));
        }
        _ => false,
    };
    if by_nccl {
        nccl::allow_sharing_among_processes();
        let together = position.local_world_size.unwrap_or(position.world_size);
        if gpus_for(precision(&args.types)).is_ok_and(|gpus| !one_each(gpus.len(), together)) {
            nccl::prepare_shared_gpus();
        }
        (args.device, args.collectives) = (DeviceChoice::Cuda, CollectivesChoice::Nccl);
    } else {
        args.device = DeviceChoice::Cpu;
    }
    Ok(())
}

/// Returns a warning if `processes` processes of this machine share GPUs over NCCL. NCCL's kernels
/// wait for each other, and without MPS only one process's kernels run on a GPU at a time.
fn sharing_warning(choice: CollectivesChoice, processes: usize, precision: Precision) -> Option<String> {
    let gpus = gpus_for(precision).ok().filter(|_| choice == CollectivesChoice::Nccl)?.len();
    let pipes = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").unwrap_or("/tmp/nvidia-mps".into());
    let side_by_side = one_each(gpus, processes) || Path::new(&pipes).join("control").exists();
    (!side_by_side).then(|| {
        format!(
            "{processes} processes share {}, where NCCL's kernels take turns waiting for each other: that is slow\n\
             Start one process, whose ranks share GPUs as threads; or first start NVIDIA's MPS (nvidia-cuda-mps-control -d).",
            counted(gpus, "GPU", "GPUs")
        )
    })
}

/// True if this machine has GPUs for `precision`, and an NCCL that supports `processes` processes
/// on it.
fn nccl_would_do(processes: usize, precision: Precision) -> bool {
    nccl::allow_sharing_among_processes();
    let (Ok(gpus), Ok(version)) = (gpus_for(precision), nccl::version()) else { return false };
    one_each(gpus.len(), processes) || version.shares_gpus()
}

fn engine(choice: CollectivesChoice, position: &ProcessPosition, variables: Variables<'_>) -> Result<Engine> {
    let ProcessPosition { launcher, world_size, .. } = position;
    let mpi = cfg!(feature = "mpi");
    match (choice, &position.master) {
        (CollectivesChoice::Local, _) => Err(Failure::usage(format!(
            "--collectives local is for threads of one process, but {launcher} started {world_size} processes\n\
             Leave it out, or start one process with --gpus {world_size}."
        ))),
        (CollectivesChoice::Mpi, _) if !mpi => Err(Failure::usage(
            "--collectives mpi: this build has no MPI\nBuild with --features mpi, or use --collectives tcp.",
        )),
        (CollectivesChoice::Mpi, _) => Ok(Engine::Mpi),
        (CollectivesChoice::Auto, _) if mpi && position.under_mpi => Ok(Engine::Mpi),
        (_, Some((host, port))) => Ok(Engine::Tcp(host.clone(), *port, secret::find(variables)?)),
        (_, None) => Err(Failure::usage(format!(
            "{launcher} started {world_size} processes, but nothing says where rank 0 listens\n\
             Set MASTER_ADDR to the machine of rank 0 and MASTER_PORT to a free port there, the same on every rank \
             (or --master HOST:PORT){}",
            if position.under_mpi { ";\nor build with --features mpi, and MPI connects them." } else { "." }
        ))),
    }
}
