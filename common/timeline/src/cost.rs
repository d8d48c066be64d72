//! How long each thing takes: operations and bytes over the rates that a GPU reaches.

use crate::efficiency::{Efficiency, Software};
use crate::hardware::{Cluster, Machine};
use crate::rings::{Ring, rings};
use crate::work::{LayerWork, Work};
use events::say::digits;
use events::{Operation, Pass, Route};
use model::LayerKind;
use prediction::{Among, CpuTask, CpuWork, Issued, Job};
use std::collections::BTreeMap;

/// The costs of one rank's actions, whose products are of 16-bit floats.
#[derive(Clone, Debug)]
pub struct Costs {
    cluster: Cluster,
    efficiency: Efficiency,
    software: Software,
    layers: LayerWork,
    rings: BTreeMap<Among, Ring>,
    /// The ranks in a machine, which share its main memory and disks.
    ranks_per_node: usize,
}

impl Costs {
    /// Returns the costs of `job` on `cluster`.
    pub fn new(job: &Job, cluster: Cluster, software: Software, efficiency: Efficiency) -> Self {
        let (layers, rings) = (LayerWork::of(job), rings(job, &cluster));
        let ranks_per_node = job.world_size.min(cluster.gpus_per_node);
        Costs { cluster, efficiency, software, layers, rings, ranks_per_node }
    }

    /// Returns these costs where backward recomputes `share` of a checkpointed block's whole
    /// forward, its last product included.
    pub fn recomputing(self, share: f64) -> Self {
        Costs { layers: self.layers.recomputing(share), ..self }
    }

    /// Returns these costs where the GPUs reach `efficiency`.
    pub(crate) fn reaching(&self, efficiency: Efficiency) -> Self {
        Costs { efficiency, ..self.clone() }
    }

    /// Returns the seconds of `pass` over `layer`.
    pub fn pass(&self, pass: Pass, layer: LayerKind) -> f64 {
        let forward = match layer {
            LayerKind::Embedding => self.layers.embedding,
            LayerKind::Block(_) => self.layers.block,
            LayerKind::Head => self.layers.head,
        };
        match pass {
            Pass::Forward | Pass::Evaluate => self.seconds(forward),
            Pass::Recompute => self.seconds(self.layers.recomputed),
            Pass::Backward => self.seconds(forward.backward()),
            Pass::Step | Pass::Add => 0.0,
        }
    }

    fn seconds(&self, work: Work) -> f64 {
        let Efficiency { products, attention, eager_passes, .. } = self.efficiency;
        let memory_passes = if self.software == Software::Eager { eager_passes } else { 1.0 };
        let rate = self.cluster.gpu.peak_flops;
        // Products of few rows wait for the weights.
        let of_weights = (work.products / (products * rate)).max(work.weights / self.memory_rate());
        of_weights
            + work.attention / (attention * rate)
            + memory_passes * (work.elements + work.loss) / self.memory_rate()
    }

    /// Returns the bytes per second of kernels that only move elements.
    fn memory_rate(&self) -> f64 {
        self.efficiency.memory * self.cluster.gpu.memory_rate
    }

    /// Returns the seconds of a transfer of `bytes` bytes. The ranks of a machine share its disks.
    pub fn transfer(&self, route: Route, bytes: u64) -> f64 {
        let shared = |rate: f64| rate / self.ranks_per_node as f64;
        let rate = match route {
            Route::DeviceToHost | Route::HostToDevice => {
                self.efficiency.host_link * self.cluster.gpu.host_link
            }
            Route::DiskToHost => shared(self.cluster.machine.disk_read),
            Route::HostToDisk => shared(self.cluster.machine.disk_write),
        };
        bytes as f64 / rate
    }

    /// Returns the seconds of the CPU's `work`, which the ranks of a machine do at the same time.
    pub fn on_cpu(&self, work: &CpuWork) -> f64 {
        let rate = self.cpu_rate() / self.ranks_per_node as f64;
        let bytes = match work.task {
            CpuTask::Update { .. } => self.layers.cpu_update_bytes,
            CpuTask::AddGradients => self.layers.added_bytes,
        };
        work.elements as f64 * bytes / rate
    }

    /// Returns the bytes per second that a machine's CPUs read and write while they update states.
    fn cpu_rate(&self) -> f64 {
        let Machine { memory_rate, cpu_rate, .. } = self.cluster.machine;
        cpu_rate.unwrap_or(self.efficiency.cpu * memory_rate)
    }

    /// Returns the elements per second that a machine's CPUs update.
    pub fn cpu_updates(&self) -> f64 {
        self.cpu_rate() / self.layers.cpu_update_bytes
    }

    /// Returns the seconds of an update of `elements` elements.
    pub fn update(&self, elements: u64) -> f64 {
        elements as f64 * self.layers.update_bytes / self.memory_rate()
    }

    /// Returns the seconds of a collective once every rank has issued it: a latency per hop, and
    /// its bytes over the slowest link of its ring. Groups of one kind share a machine's network;
    /// groups of two kinds do not slow each other down.
    pub fn collective(&self, issued: &Issued) -> f64 {
        let Efficiency { link, network, hop, .. } = self.efficiency;
        let ring = self.rings.get(&issued.among);
        debug_assert!(ring.is_some(), "a job forms the groups of its collectives: {:?}", issued.among);
        let Some(&Ring { size, machines, network_share }) = ring else { return 0.0 };
        if size == 1 {
            return 0.0;
        }
        let together = size.div_ceil(machines);
        let inside = link * self.cluster.gpu.link;
        let across = network * self.cluster.network * network_share;
        let rate = match (machines, together) {
            (1, _) => inside,
            (_, 1) => across,
            _ => across.min(inside),
        };
        let hops = (size - 1) as f64;
        let payload = issued.bytes as f64 * hops / size as f64;
        // A ring passes every rank. Sums and scalars take a tree of machines, and a chain in each.
        let hops = match issued.operation {
            Operation::AllReduce | Operation::Scalars => (together - 1) as f64 + (machines as f64).log2(),
            _ => hops,
        };
        issued.operation.rounds() as f64 * (hops * hop + payload / rate)
    }

    /// Returns the machines in words, for a run's header. Screens look for "simulated
    /// link".
    pub(crate) fn describe_device(&self) -> String {
        let Cluster { gpu, network, .. } = self.cluster;
        let machines = self.rings.get(&Among::World).map_or(1, |ring| ring.machines);
        let across = if machines > 1 {
            format!(", {} GB/s between machines", digits(network / 1e9))
        } else {
            String::new()
        };
        format!("{gpu}, simulated link ({} GB/s{across})", digits(gpu.link / 1e9))
    }

    /// Returns the bytes of the GPU's memory.
    pub(crate) fn capacity(&self) -> u64 {
        self.cluster.gpu.memory
    }
}
