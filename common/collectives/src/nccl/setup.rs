//! How ranks come to have communicators, and what stands in the way.

use super::communicator::Communicator;
use super::member::NcclMember;
use super::memory_probe::{MemoryProbe, Uuid};
use super::raw::{Functions, OLDEST, UniqueId};
use super::watchdog::Watchdog;
use crate::CollectiveError;
use crate::backend::{Backend, Call};
use crate::group::{ControlChannel, Group, Topic};
use device::DeviceError;
use device::cuda::Runtime;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first version that lets ranks share a GPU: 2.30, as NCCL writes it.
const SHARING: u32 = 23_000;
/// A variable of the environment, and the value that it is given where it has none.
type Variable = (&'static str, &'static str);
/// What lets ranks share a GPU: NCCL's permission; and enough hardware queues that a rank's kernels, which wait for other ranks',
/// cannot stand before them in one.
const SHARED: [Variable; 2] = [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("CUDA_DEVICE_MAX_CONNECTIONS", "32")];
/// What ranks take that are threads: machine code that is loaded at once. Loading a kernel when it is first launched may wait for all
/// that runs in its context, and hold up launches in the others of its process: waiting kernels would wait for it in turn.
const AT_ONCE: Variable = ("CUDA_MODULE_LOADING", "EAGER");
/// What keeps NCCL from sums in the switch between GPUs, which take a GPU per rank: it finds out whether ranks share one by its last two
/// ranks alone.
const NO_SWITCH: Variable = ("NCCL_NVLS_ENABLE", "0");

/// Blocks that the kernels of ranks on one GPU have, all together: each waits for the others', so that they have to run side by
/// side, and beside kernels that compute. `NCCL_MAX_CTAS`, where it is set, counts instead.
const BLOCKS: i32 = 32;

/// A version of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    /// Whether ranks may share a GPU.
    pub fn shares_gpus(self) -> bool {
        self.0 >= SHARING
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100)
    }
}

/// NCCL cannot connect ranks that share a GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{who} a GPU, which NCCL {version} does not let them: 2.30 or newer does (pip install -U nvidia-nccl-cu13)\n\
     Or give every rank a GPU of its own; or leave --collectives out and start one process: its ranks may share GPUs."
)]
pub struct SharedGpu {
    /// `ranks 0 and 1 share`.
    pub who: String,
    /// The version that is here.
    pub version: Version,
}

/// The version of NCCL that is here.
///
/// # Errors
/// [`DeviceError::Missing`] if there is none; [`DeviceError::Cuda`] if it is too old.
pub fn version() -> Result<Version, DeviceError> {
    let functions = Functions::get()?;
    let version = Version(functions.version());
    if version < Version(OLDEST) {
        let reason = format!(
            "NCCL {version} is too old: it takes {} (pip install -U nvidia-nccl-cu13)",
            Version(OLDEST)
        );
        return Err(DeviceError::Cuda { call: "NCCL", reason });
    }
    Ok(version)
}

fn set(variables: impl IntoIterator<Item = Variable>) {
    for (name, value) in variables.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
        // SAFETY: the variables are read by NVIDIA's libraries alone, which start no thread before a GPU is opened. Rust's own
        // readers are locked out meanwhile; nobody else reads the environment while a program reads its flags.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Sets the variables that let ranks of this process, its threads, share GPUs, where they are not set already. Call it before
/// anything of NVIDIA's is loaded.
pub fn allow_sharing() {
    set(SHARED.into_iter().chain([AT_ONCE]));
}

/// What may make threads wait for each other forever: loading machine code late, if the environment insists on it.
pub fn caution() -> Option<String> {
    let (name, value) = AT_ONCE;
    let set = std::env::var(name).ok().filter(|set| set != value)?;
    Some(format!(
        "{name}={set}: loading a kernel late may wait forever for another rank's under NCCL; leave it out, or say {value}"
    ))
}

/// As [`allow_sharing`], of ranks that are processes: each has contexts of its own, and loads machine code when it needs it.
pub fn allow_sharing_among_processes() {
    set(SHARED);
}

/// Sets what NCCL takes beside that where ranks do share GPUs. Call it before a GPU is opened.
pub fn share() {
    set([NO_SWITCH]);
}

/// Puts NCCL under `group`: buffers on the GPU of `runtime`, this rank's, then travel through it. Every rank of the group
/// calls it.
///
/// # Errors
/// [`CollectiveError::Setup`] if NCCL is missing, too old, or refuses; the group's failure if another rank could not.
pub fn join(group: Group, runtime: &Arc<Runtime>, timeout: Duration) -> Result<Group, CollectiveError> {
    group.over(|control| {
        let setup = Setup::new(&control, runtime, timeout);
        let ready = setup.run().inspect_err(|error| {
            if let CollectiveError::Setup { reason, .. } = error {
                control.poison("its NCCL setup".into(), reason.clone());
            }
        })?;
        let member = NcclMember::new(control.clone(), runtime.clone(), timeout, ready);
        Ok(Arc::new(member) as Arc<dyn Backend>)
    })
}

/// One rank on its way to a communicator.
pub(crate) struct Setup<'a> {
    control: &'a Arc<dyn Backend>,
    runtime: &'a Arc<Runtime>,
    timeout: Duration,
    rank: u32,
}

/// What ranks tell each other before: the GPU, the process, the version, and of the first rank the word by which they find each other.
struct Peer {
    gpu: Uuid,
    process: u32,
    version: Version,
    id: UniqueId,
}

impl Peer {
    const BYTES: usize = 16 + 4 + 4 + 128;

    fn bytes(&self) -> Vec<u8> {
        [&self.gpu[..], &self.process.to_le_bytes(), &self.version.0.to_le_bytes(), &self.id.0].concat()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Peer::BYTES] = bytes.try_into().ok()?;
        let (gpu, rest) = bytes.split_first_chunk()?;
        let (process, rest) = rest.split_first_chunk()?;
        let (version, id) = rest.split_first_chunk()?;
        Some(Peer {
            gpu: *gpu,
            process: u32::from_le_bytes(*process),
            version: Version(u32::from_le_bytes(*version)),
            id: UniqueId(id.try_into().ok()?),
        })
    }
}

/// Blocks of a rank's kernel, at most, where ranks share a GPU; the same for all.
fn blocks(peers: &[Peer]) -> Option<i32> {
    let on = |gpu: &Uuid| peers.iter().filter(|peer| peer.gpu == *gpu).count() as i32;
    let sharing = peers.iter().map(|peer| on(&peer.gpu)).max().filter(|&ranks| ranks > 1)?;
    Some((BLOCKS / sharing).max(1))
}

/// Whether threads of a process share a GPU; the same for all.
fn threads_share(peers: &[Peer]) -> bool {
    let same = |a: &Peer, b: &Peer| (a.gpu, a.process) == (b.gpu, b.process);
    peers.iter().any(|peer| peers.iter().filter(|other| same(peer, other)).count() > 1)
}

/// What a rank has once it is connected.
pub(crate) struct Ready {
    pub(crate) watchdog: Arc<Watchdog>,
    /// None where it is alone.
    pub(crate) communicator: Option<Communicator>,
    pub(crate) memory_probe: MemoryProbe,
    /// No rank goes on before all have handed in: see [`hand_in`](super::handing::hand_in).
    pub(crate) together: bool,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(control: &'a Arc<dyn Backend>, runtime: &'a Arc<Runtime>, timeout: Duration) -> Self {
        Setup { control, runtime, timeout, rank: control.names()[control.member()] }
    }

    fn refused(&self, reason: impl ToString) -> CollectiveError {
        CollectiveError::Setup { rank: self.rank, reason: reason.to_string() }
    }

    pub(crate) fn run(&self) -> Result<Ready, CollectiveError> {
        let watchdog = Watchdog::start(self.rank).map_err(|error| self.refused(error))?;
        let channel = ControlChannel::beside(self.control, Topic::Setup);
        let peers = self.meet(&channel)?;
        self.check(&peers)?;
        let memory_probe =
            MemoryProbe::new(channel, self.runtime, peers.iter().map(|peer| peer.gpu).collect());
        let before = memory_probe.begin()?;
        let communicator = if peers.len() > 1 { Some(self.connect(&peers)?) } else { None };
        memory_probe.end(before)?;
        let together = threads_share(&peers);
        Ok(Ready { watchdog: Arc::new(watchdog), communicator, memory_probe, together })
    }

    /// Everybody's peers. What goes between the ranks here is no part of the run's traffic.
    fn meet(&self, channel: &ControlChannel) -> Result<Vec<Peer>, CollectiveError> {
        let version = version().map_err(|error| self.refused(error))?;
        let functions = Functions::get().map_err(|error| self.refused(error))?;
        let first = self.control.member() == 0;
        let id = if first { functions.new_id().map_err(|e| self.refused(e))? } else { UniqueId([0; 128]) };
        let (gpu, process) = (self.runtime.gpu().info().uuid, std::process::id());
        let peer = Peer { gpu, process, version, id };
        let peers = channel.exchange(&peer.bytes())?;
        let read =
            |bytes: &Vec<u8>| Peer::read(bytes).ok_or_else(|| self.refused("a rank sent what is no peer"));
        peers.iter().map(read).collect()
    }

    /// Whether NCCL can connect these ranks, as far as can be told before it tries.
    fn check(&self, peers: &[Peer]) -> Result<(), CollectiveError> {
        let oldest = peers.iter().map(|peer| peer.version).min().unwrap_or(Version(0));
        let shares = |a: &usize| (0..*a).find(|&b| peers[b].gpu == peers[*a].gpu).map(|b| (b, *a));
        match (0..peers.len()).find_map(|a| shares(&a)).filter(|_| !oldest.shares_gpus()) {
            Some((a, b)) => {
                let names = self.control.names();
                let who = format!("ranks {} and {} share", names[a], names[b]);
                Err(self.refused(SharedGpu { who, version: oldest }))
            }
            None => Ok(()),
        }
    }

    /// This rank's end of the communicator of all.
    fn connect(&self, peers: &[Peer]) -> Result<Communicator, CollectiveError> {
        let place = (self.control.member(), peers.len());
        // SAFETY: all ranks have exchanged peers, and come here with the first rank's word.
        let communicator = unsafe { Communicator::begin(self.runtime, peers[0].id, place, blocks(peers)) };
        let communicator = communicator.map_err(|reason| self.refused(reason))?;
        self.control.report(1);
        let since = Instant::now();
        let give_up = || {
            let failed = self.control.failure(&Call::none()).map(|error| error.to_string());
            failed.or_else(|| (since.elapsed() > self.timeout).then(|| self.late()))
        };
        communicator
            .settle(&give_up)
            .map_err(|reason| self.control.failure(&Call::none()).unwrap_or_else(|| self.refused(reason)))?;
        Ok(communicator)
    }

    /// Blames who has not come, if that can be told; in words.
    fn late(&self) -> String {
        let (rank, waited) = (self.rank, self.timeout);
        let missing = self.control.reports().iter().position(|&count| count == 0);
        match missing {
            Some(culprit) => {
                let reason = format!("rank {rank} waited {waited:?} for it, but it never began to connect");
                self.control.blame(Some(culprit), "its NCCL setup".into(), reason.clone());
                reason
            }
            None => format!("all ranks have begun to connect, but NCCL has not finished within {waited:?}"),
        }
    }
}
