//! Ranks that are processes: how one finds its place, joins the others, and works as one rank of the job.
//!
//! Rank 0 leads: it alone prints, records and writes the report; the others send it their events while they run and
//! their measurements at the end. Every rank prints its own error, and keeps a log if asked to.

use crate::cli::{CollectivesChoice, DeviceChoice, TrainArgs};
use crate::config::{Config, cores};
use crate::deepspeed::Findings;
use crate::error::{Failure, Result};
use crate::hardware::{gpus, gpus_in_words};
use crate::launcher::{self, Placement, Variables};
use crate::report::StepRow;
use crate::run::{News, Plan};
use crate::watch::RING;
use crate::{launch, progress};
use collectives::nccl;
use collectives::tcp::{self, JoinOptions, Joined};
use events::{Outlet, Pace, channel, relay};
use planner::Algorithm;
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// How this process takes part in a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its place.
    pub placement: Placement,
    /// What carries collectives.
    pub engine: Engine,
    /// What is slow about it, if anything.
    pub caution: Option<String>,
}

/// What carries collectives between processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Connections between all, after a meeting at this host and port.
    Tcp(String, u16),
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

/// Finds this process's place and makes `args` agree with it; `None` if it is alone.
///
/// # Errors
/// A usage failure that names the flags or variables.
pub fn place(args: &mut TrainArgs, variables: Variables<'_>) -> Result<Option<Job>> {
    let gpus = args.given.typed("gpus").map(|_| args.gpus);
    let flags = launcher::Flags { rank: args.rank, gpus, master: args.master.as_deref() };
    let Some(placement) = launcher::find(flags, variables)? else {
        return match args.collectives {
            CollectivesChoice::Auto | CollectivesChoice::Local => Ok(None),
            CollectivesChoice::Nccl => Ok(None),
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
    choose_device(args, &placement)?;
    args.gpus = placement.world_size;
    let beside_each_other = placement.local_world_size.unwrap_or(1);
    args.on_this_machine = Some(beside_each_other);
    let given = placement.cores.map(|given| given.min(cores()));
    args.threads = args.threads.or(given).or(Some((cores() / beside_each_other).max(1)));
    let engine = engine(args.collectives, &placement)?;
    let caution = caution(args.collectives, placement.local_world_size.unwrap_or(1));
    Ok(Some(Job { placement, engine, caution }))
}

/// Makes `args` say whether the processes compute on GPUs, connected by NCCL, or on the CPU.
fn choose_device(args: &mut TrainArgs, placement: &Placement) -> Result<()> {
    let by_nccl = match (args.collectives, args.device) {
        (CollectivesChoice::Nccl, DeviceChoice::Cpu) | (CollectivesChoice::Auto, DeviceChoice::Cpu) => false,
        (CollectivesChoice::Nccl, _) | (CollectivesChoice::Auto, DeviceChoice::Cuda) => true,
        (CollectivesChoice::Auto, DeviceChoice::Auto) => {
            placement.master.is_some() && nccl_would_do(placement.local_world_size.unwrap_or(1))
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
        let together = placement.local_world_size.unwrap_or(placement.world_size);
        if gpus().is_ok_and(|gpus| gpus.len() < together) {
            nccl::share();
        }
        (args.device, args.collectives) = (DeviceChoice::Cuda, CollectivesChoice::Nccl);
    } else {
        args.device = DeviceChoice::Cpu;
    }
    Ok(())
}

/// What is slow about so many processes of this machine, if they share GPUs over NCCL: its kernels wait for each other, and those of
/// different processes take turns on a GPU unless MPS runs them side by side.
fn caution(choice: CollectivesChoice, processes: usize) -> Option<String> {
    let gpus = gpus().ok().filter(|_| choice == CollectivesChoice::Nccl)?.len();
    let pipes = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").unwrap_or("/tmp/nvidia-mps".into());
    let side_by_side = processes <= gpus || Path::new(&pipes).join("control").exists();
    (!side_by_side).then(|| {
        format!(
            "{processes} processes share {}, where NCCL's kernels take turns waiting for each other: that is slow\n\
             Start one process, whose ranks share GPUs as threads; or NVIDIA's MPS (nvidia-cuda-mps-control -d) before.",
            gpus_in_words(gpus)
        )
    })
}

/// Whether this machine has GPUs and an NCCL for so many processes on it.
fn nccl_would_do(processes: usize) -> bool {
    nccl::allow_sharing_among_processes();
    let (Ok(gpus), Ok(version)) = (gpus(), nccl::version()) else { return false };
    processes <= gpus.len() || version.shares_gpus()
}

fn engine(choice: CollectivesChoice, placement: &Placement) -> Result<Engine> {
    let Placement { launcher, world_size, .. } = placement;
    let mpi = cfg!(feature = "mpi");
    match (choice, &placement.master) {
        (CollectivesChoice::Local, _) => Err(Failure::usage(format!(
            "--collectives local is for threads of one process, but {launcher} started {world_size} processes\n\
             Leave it out, or start one process with --gpus {world_size}."
        ))),
        (CollectivesChoice::Mpi, _) if !mpi => Err(Failure::usage(
            "--collectives mpi: this build has no MPI\nBuild with --features mpi, or use --collectives tcp.",
        )),
        (CollectivesChoice::Mpi, _) => Ok(Engine::Mpi),
        (CollectivesChoice::Auto, _) if mpi && placement.under_mpi => Ok(Engine::Mpi),
        (_, Some((host, port))) => Ok(Engine::Tcp(host.clone(), *port)),
        (_, None) => Err(Failure::usage(format!(
            "{launcher} started {world_size} processes, but nothing says where they meet\n\
             Set MASTER_ADDR to the machine of rank 0 and MASTER_PORT to a free port there, the same on every rank \
             (or --master HOST:PORT){}",
            if placement.under_mpi { ";\nor build with --features mpi, and MPI connects them." } else { "." }
        ))),
    }
}

impl Config {
    /// This process's part in a job: what only rank 0 does is left to it.
    ///
    /// # Errors
    /// A usage failure if a file asks for another number of ranks than there are processes.
    pub fn in_job(mut self, job: Option<Job>) -> Result<Self> {
        let Some(Job { placement, .. }) = &job else { return Ok(self) };
        self.hardware = self.hardware.of_process(placement.local_rank.unwrap_or(placement.rank));
        if self.world_size != placement.world_size {
            return Err(Failure::usage(format!(
                "{}: num_processes {}, but {} started {} processes, one rank each",
                self.findings.file, self.world_size, placement.launcher, placement.world_size
            )));
        }
        if placement.rank > 0 {
            (self.screen, self.record, self.report, self.save) = (None, None, None, None);
        }
        self.job = job;
        Ok(self)
    }

    /// Whether this process prints and writes for all.
    pub(crate) fn leads(&self) -> bool {
        self.job.as_ref().is_none_or(|job| job.placement.rank == 0)
    }
}

/// What must be the same in all processes: everything but files and what concerns one machine.
fn settings(plan: &Plan) -> String {
    let mut shared = plan.config.clone();
    (shared.screen, shared.record, shared.report, shared.save) = (None, None, None, None);
    (shared.job, shared.log_dir, shared.init_from, shared.data.path) = (None, None, None, None);
    (shared.threads, shared.findings) = (0, Findings::default());
    shared.checkpoint.iter_mut().for_each(|checkpoint| checkpoint.directory = "".into());
    shared.hardware = shared.hardware.kind();
    format!("{} {}\n{shared:#?}", plan.stage.name, env!("CARGO_PKG_VERSION"))
}

/// Joins the other processes.
///
/// # Errors
/// If they do not find each other before the deadline, or do not belong together.
pub(crate) fn join(plan: &Plan, job: &Job) -> Result<Joined> {
    let (config, settings) = (&plan.config, settings(plan));
    match &job.engine {
        Engine::Tcp(address, port) => tcp::join(&JoinOptions {
            rank: job.placement.rank as u32,
            world_size: job.placement.world_size as u32,
            address: address.clone(),
            port: *port,
            timeout: config.timeout,
            settings,
        })
        .map_err(|error| Failure::run(error.to_string())),
        Engine::Mpi => join_mpi(config, job, settings),
    }
}

#[cfg(feature = "mpi")]
fn join_mpi(config: &Config, job: &Job, settings: String) -> Result<Joined> {
    collectives::mpi::join(&collectives::mpi::JoinOptions {
        rank: job.placement.rank as u32,
        world_size: job.placement.world_size as u32,
        timeout: config.timeout,
        settings,
    })
    .map_err(|error| Failure::run(error.to_string()))
}

#[cfg(not(feature = "mpi"))]
fn join_mpi(_: &Config, _: &Job, _: String) -> Result<Joined> {
    Err(Failure::usage("this build has no MPI: build with --features mpi"))
}

/// Works as a rank other than 0.
///
/// # Errors
/// This rank's failure, or the group's.
pub(crate) fn follow(plan: &Plan, joined: Joined, logs: &Logs) -> Result<()> {
    let Joined { mut group, mut links } = joined;
    let outlet = match links.pop() {
        Some((_, link)) => {
            let (emitter, outlet) = speak(group.rank(), link)
                .map_err(|error| Failure::run(format!("cannot send events to rank 0: {error}")))?;
            group.attach(emitter);
            Some(outlet)
        }
        None => None,
    };
    crate::stop_on_signal(plan)?;
    let outcome = launch::one(plan, group, &|rank, news| logs.tell(rank, news));
    drop(outlet);
    outcome.map(drop)
}

/// An emitter whose events go to rank 0.
fn speak(rank: u32, link: TcpStream) -> std::io::Result<(events::Emitter, Outlet)> {
    let start = relay::clock(&link)?;
    let pace = Arc::new(Pace::new());
    let (emitter, receiver) = channel(rank, RING, start, Some(pace.clone()));
    Ok((emitter, Outlet::start(link, receiver, pace)?))
}

/// A log file per rank of this process.
pub(crate) struct Logs(Vec<(usize, Mutex<File>)>);

impl Logs {
    /// Creates the files in `config.log_dir`, if there is one.
    ///
    /// # Errors
    /// If a file cannot be created.
    pub(crate) fn open(plan: &Plan) -> Result<Self> {
        let Some(dir) = &plan.config.log_dir else { return Ok(Logs(Vec::new())) };
        let failed = |error: std::io::Error| {
            Failure::run(format!("cannot write logs to --log-dir {}: {error}", dir.display()))
        };
        std::fs::create_dir_all(dir).map_err(failed)?;
        let ranks = match &plan.config.job {
            Some(job) => job.placement.rank..job.placement.rank + 1,
            None => 0..plan.config.world_size,
        };
        let open = |rank: usize| Ok((rank, Mutex::new(create(dir, rank)?)));
        let logs = Logs(ranks.map(open).collect::<std::io::Result<_>>().map_err(failed)?);
        logs.say(progress::opening(plan).trim_end());
        Ok(logs)
    }

    /// Notes what `rank` tells.
    pub(crate) fn tell(&self, rank: usize, news: News<'_>) {
        let Some((_, file)) = self.0.iter().find(|(number, _)| *number == rank) else { return };
        match news {
            News::Step(StepRow { step, loss, grad_norm, seconds, .. }, _) => {
                line(file, &format!("step {step}  loss {loss:.6}  grad norm {grad_norm:.6}  {seconds:.3} s"));
            }
            News::Validation(steps, loss) => {
                line(file, &format!("validation loss {loss:.6} after {steps} steps"))
            }
            News::Kept(steps) => line(file, &format!("checkpoint after {steps} steps")),
        }
    }

    /// Notes something about all ranks of this process.
    pub(crate) fn say(&self, text: &str) {
        self.0.iter().for_each(|(_, file)| line(file, text));
    }

    /// Notes how it ended.
    pub(crate) fn end<T>(&self, outcome: &Result<T>) {
        match outcome {
            Ok(_) => self.say("finished"),
            Err(failure) => self.say(&format!("error: {failure}")),
        }
    }
}

fn create(dir: &Path, rank: usize) -> std::io::Result<File> {
    File::create(dir.join(format!("rank-{rank}.log")))
}

/// A log that cannot be written any more is no reason to end a run.
fn line(file: &Mutex<File>, text: &str) {
    let _ = writeln!(file.lock().unwrap_or_else(PoisonError::into_inner), "{text}");
}
