//! How ranks get communicators, and what can prevent it.

use super::calls::{CommunicatorMember, NCCL, nccl_error};
use super::communicator::Communicator;
use super::memory_probe::{MemoryProbe, Uuid};
use super::raw::{Functions, OLDEST, UniqueId};
use super::watchdog::Watchdog;
use super::watched_communicator::{HostBarrier, stopwatch};
use crate::CollectiveError;
use crate::core::backend::{Backend, Topic};
use crate::group::ControlChannel;
use bytemuck::{Pod, Zeroable};
use device::DeviceError;
use device::cuda::{GpuInfo, Runtime};
use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The first version that lets ranks share a GPU: 2.30, as NCCL writes it.
const FIRST_WITH_SHARED_GPUS: u32 = 23_000;
/// A variable of the environment, and the value that it gets if it is not set.
type Variable = (&'static str, &'static str);
/// Variables that let ranks share a GPU: NCCL's permission, and enough hardware queues. In a shared
/// hardware queue a kernel that waits could block the kernel that it waits for.
const SHARED_GPU_VARIABLES: [Variable; 2] =
    [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("CUDA_DEVICE_MAX_CONNECTIONS", "32")];
/// The variable that ranks need if they are threads: it loads machine code at the start. Loading a
/// kernel at its first launch may wait for everything that runs in its context, and delays launches
/// in the other contexts of the process. Kernels that wait for those launches would never end.
const EAGER_LOADING: Variable = ("CUDA_MODULE_LOADING", "EAGER");
/// The variable that disables NVLink SHARP (NVLS), with which NCCL sums in the NVSwitch between
/// GPUs. It needs a GPU per rank. NCCL compares only its last two ranks to find out whether ranks
/// share a GPU.
const DISABLE_NVLS: Variable = ("NCCL_NVLS_ENABLE", "0");

/// Maximum number of blocks (CTAs) that the kernels of all ranks on one GPU have together. Each
/// kernel waits for the others, so all of them have to run at the same time, and together with
/// kernels that compute. One block of NCCL's occupies a multiprocessor. `NCCL_MAX_CTAS` overrides
/// this.
const MAX_CTAS: u32 = 32;

/// A version of NCCL.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
pub struct Version(u32);

impl Version {
    /// True if ranks may share a GPU.
    pub fn shares_gpus(self) -> bool {
        self.0 >= FIRST_WITH_SHARED_GPUS
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
    "{sharing}, which NCCL {version} does not allow; 2.30 or newer does (pip install -U nvidia-nccl-cu13)\n\
     Or give every rank a GPU of its own; or leave --collectives out and start one process: its ranks may share GPUs."
)]
pub struct SharedGpu {
    /// What NCCL would have to allow, as in `ranks 0 and 1 share a GPU`.
    pub sharing: String,
    /// The version on this machine.
    pub version: Version,
}

/// Returns the version of NCCL on this machine.
///
/// # Errors
/// [`DeviceError::Missing`] if there is no NCCL; [`DeviceError::Cuda`] if it is too old.
pub fn version() -> Result<Version, DeviceError> {
    let functions = Functions::get()?;
    let version = Version(functions.version());
    if version < Version(OLDEST) {
        return Err(nccl_error(format!(
            "version {version} is too old: {} or newer is needed (pip install -U nvidia-nccl-cu13)",
            Version(OLDEST)
        )));
    }
    Ok(version)
}

fn set(variables: impl IntoIterator<Item = Variable>) {
    for (name, value) in variables.into_iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
        // SAFETY: only NVIDIA's libraries read the variables, and they start no thread before a GPU
        // is opened. Rust's own readers are locked out, and no other code reads the environment
        // while a program reads its flags.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Sets the variables that let threads of this process share GPUs, unless they are set already.
/// Call it before any of NVIDIA's libraries is loaded.
pub fn allow_sharing() {
    set(SHARED_GPU_VARIABLES.into_iter().chain([EAGER_LOADING]));
}

/// Returns a warning if the environment makes machine code load late, which can make threads wait
/// for each other forever.
pub fn lazy_loading_warning() -> Option<String> {
    let (name, value) = EAGER_LOADING;
    let set = std::env::var(name).ok().filter(|set| set != value)?;
    Some(format!(
        "{name}={set}: under NCCL, loading a kernel late may wait forever for another rank's; unset it, or set it to {value}"
    ))
}

/// Does what [`allow_sharing`] does for ranks that are processes: each has contexts of its own, and
/// may load machine code late.
pub fn allow_sharing_among_processes() {
    set(SHARED_GPU_VARIABLES);
}

/// Sets the variables that NCCL also needs if ranks do share GPUs. Call it before a GPU is opened.
pub fn prepare_shared_gpus() {
    set([DISABLE_NVLS]);
}

/// One rank that is getting a communicator.
pub(crate) struct Setup<'a> {
    control: &'a Arc<dyn Backend>,
    runtime: &'a Arc<Runtime>,
    timeout: Duration,
    rank: u32,
}

/// The message of a rank to the others before they connect, in a byte order that all machines
/// share.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Peer {
    gpu: Uuid,
    multiprocessors: u32,
    /// 1 if NCCL may use NVLink SHARP: [`DISABLE_NVLS`] is not set.
    nvls_enabled: u32,
    process: u32,
    version: Version,
    /// Of the first rank: the identifier by which the ranks find each other.
    id: UniqueId,
}

/// Returns the maximum number of blocks (CTAs) of a rank's kernel if ranks share a GPU. The result
/// is the same on all ranks.
fn max_ctas(peers: &[Peer]) -> Option<i32> {
    let shared = peers.iter().filter(|peer| ranks_on(peers, &peer.gpu) > 1);
    let each = |peer: &Peer| MAX_CTAS.min(peer.multiprocessors / 2) / ranks_on(peers, &peer.gpu);
    shared.map(each).min().map(|blocks| blocks.max(1) as i32)
}

/// Returns the number of ranks on `gpu`.
fn ranks_on(peers: &[Peer], gpu: &Uuid) -> u32 {
    peers.iter().filter(|peer| peer.gpu == *gpu).count() as u32
}

/// Returns a number that tells this process from others, also of other machines and containers.
fn own_process() -> u32 {
    static NUMBER: OnceLock<u32> = OnceLock::new();
    *NUMBER.get_or_init(|| RandomState::new().build_hasher().finish() as u32)
}

/// Returns when ranks wait for each other on the host: the same on all ranks.
fn host_barrier(peers: &[Peer]) -> HostBarrier {
    let some_two = |alike: fn(&Peer, &Peer) -> bool| {
        (0..peers.len())
            .any(|a| (0..a).any(|b| peers[a].process == peers[b].process && alike(&peers[a], &peers[b])))
    };
    match (some_two(|_, _| true), some_two(|a, b| a.gpu == b.gpu)) {
        (false, _) => HostBarrier::Never,
        (true, false) => HostBarrier::AfterEnqueue,
        (true, true) => HostBarrier::AroundEnqueue,
    }
}

/// A connected rank's communicator, and the parts that serve it.
pub(crate) struct Connected {
    pub(crate) watchdog: Arc<Watchdog>,
    /// `None` if the rank is alone.
    pub(crate) communicator: Option<Communicator>,
    pub(crate) memory_probe: MemoryProbe,
    /// It holds for the groups that are split off, too.
    pub(crate) host_barrier: HostBarrier,
}

/// Returns the message of `error`. An error that names NCCL as its call says so no second time.
fn in_words(error: DeviceError) -> String {
    match error {
        DeviceError::Cuda { call: NCCL, reason } => reason,
        other => other.to_string(),
    }
}

impl<'a> Setup<'a> {
    pub(crate) fn new(control: &'a Arc<dyn Backend>, runtime: &'a Arc<Runtime>, timeout: Duration) -> Self {
        Setup { control, runtime, timeout, rank: control.global_rank() }
    }

    fn refused(&self, reason: impl ToString) -> CollectiveError {
        CollectiveError::Setup { rank: self.rank, reason: reason.to_string() }
    }

    pub(crate) fn run(&self) -> Result<Connected, CollectiveError> {
        let watchdog = Watchdog::start(self.rank).map_err(|error| self.refused(error))?;
        let channel = ControlChannel::open(self.control, Topic::Setup);
        let peers = self.exchange_peers(&channel)?;
        self.refuse_unsupported(&peers)?;
        let memory_probe =
            MemoryProbe::new(channel, self.runtime, peers.iter().map(|peer| peer.gpu).collect());
        let before = memory_probe.begin()?;
        let communicator = if peers.len() > 1 { Some(self.connect(&peers)?) } else { None };
        memory_probe.end(before)?;
        let host_barrier = host_barrier(&peers);
        Ok(Connected { watchdog: Arc::new(watchdog), communicator, memory_probe, host_barrier })
    }

    /// Exchanges the ranks' messages. They are no part of the run's traffic.
    fn exchange_peers(&self, channel: &ControlChannel) -> Result<Vec<Peer>, CollectiveError> {
        let version = version().map_err(|error| self.refused(in_words(error)))?;
        let functions = Functions::get().map_err(|error| self.refused(in_words(error)))?;
        let first = self.control.member() == 0;
        let id = if first { functions.new_id().map_err(|e| self.refused(e))? } else { UniqueId([0; 128]) };
        let GpuInfo { uuid: gpu, multiprocessors, .. } = *self.runtime.gpu().info();
        let nvls_enabled = u32::from(std::env::var_os(DISABLE_NVLS.0).is_none());
        let peer = Peer { gpu, multiprocessors, nvls_enabled, process: own_process(), version, id };
        let peers = channel.exchange(bytemuck::bytes_of(&peer))?;
        let read = |bytes: &Vec<u8>| {
            bytemuck::try_pod_read_unaligned(bytes)
                .map_err(|_| self.refused("a rank sent something other than its GPU, process and version"))
        };
        peers.iter().map(read).collect()
    }

    /// Fails if it is known beforehand that NCCL cannot connect these ranks.
    fn refuse_unsupported(&self, peers: &[Peer]) -> Result<(), CollectiveError> {
        let shares = |a: usize| (0..a).find(|&b| peers[b].gpu == peers[a].gpu).map(|b| (b, a));
        let Some((a, b)) = (0..peers.len()).find_map(shares) else { return Ok(()) };
        let ranks = self.control.global_ranks();
        let sharing = format!("ranks {} and {} share a GPU", ranks[a], ranks[b]);
        let oldest = peers.iter().map(|peer| peer.version).min().unwrap_or(Version(0));
        if !oldest.shares_gpus() {
            return Err(self.refused(SharedGpu { sharing, version: oldest }));
        }
        let crowded = peers.iter().find(|peer| ranks_on(peers, &peer.gpu) > peer.multiprocessors);
        if let Some(Peer { gpu, multiprocessors, .. }) = crowded {
            let ranks = ranks_on(peers, gpu);
            return Err(self.refused(format!(
                "{ranks} ranks share a GPU of {multiprocessors} multiprocessors, and NCCL needs one for each rank\n\
                 Leave --collectives out and start one process: its ranks may share GPUs."
            )));
        }
        let notices = matches!(peers, [.., a, b] if a.gpu == b.gpu);
        let uses_nvls = |peer: &Peer| peer.nvls_enabled == 1 && ranks_on(peers, &peer.gpu) > 1;
        if !notices && peers.iter().any(uses_nvls) {
            let (name, value) = DISABLE_NVLS;
            return Err(self.refused(format!("{sharing}, which NCCL does not notice: set {name}={value}")));
        }
        Ok(())
    }

    /// Returns this rank's end of the communicator of all ranks.
    fn connect(&self, peers: &[Peer]) -> Result<Communicator, CollectiveError> {
        let membership = CommunicatorMember { member: self.control.member(), size: peers.len() };
        // SAFETY: all ranks have exchanged identifiers, and call this with the first rank's.
        let communicator =
            unsafe { Communicator::begin(self.runtime, peers[0].id, membership, max_ctas(peers)) };
        let communicator = communicator.map_err(|reason| self.refused(reason))?;
        self.control.report_steps(1);
        let waited = RefCell::new(stopwatch(Duration::ZERO, self.timeout));
        let give_up = || {
            let failed = self.control.failure(None).map(|error| error.to_string());
            let timed_out = || waited.borrow_mut().poll(Duration::ZERO) > self.timeout;
            failed.or_else(|| timed_out().then(|| self.blame_for_timeout()))
        };
        communicator
            .settle(&give_up)
            .map_err(|reason| self.control.failure(None).unwrap_or_else(|| self.refused(reason)))?;
        Ok(communicator)
    }

    /// Blames the first rank that has not begun to connect; no rank if all have. Returns the
    /// reason.
    fn blame_for_timeout(&self) -> String {
        let (rank, waited) = (self.rank, self.timeout);
        let Some(culprit) = self.control.reported_steps().iter().position(|&steps| steps == 0) else {
            return format!("all ranks have begun to connect, but NCCL has not finished within {waited:?}");
        };
        let other = self.control.global_ranks()[culprit];
        let reason = format!("rank {rank} waited {waited:?} for rank {other}, which never began to connect");
        self.control.blame(Some(culprit), "its NCCL setup".into(), reason.clone());
        reason
    }
}
