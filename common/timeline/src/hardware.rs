//! GPUs and the links between them, as their data sheets describe them.

use std::fmt;

/// A generation of GPUs, whose kernels reach similar shares of what its data sheets say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// A100.
    Ampere,
    /// H100, H200.
    Hopper,
    /// GeForce RTX 40.
    Ada,
    /// RTX PRO Blackwell.
    Blackwell,
}

impl Generation {
    /// Every generation.
    pub const ALL: [Generation; 4] =
        [Generation::Ampere, Generation::Hopper, Generation::Ada, Generation::Blackwell];

    /// Returns its index in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A model of GPU. Rates are per second, links per direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its name in tables.
    pub label: &'static str,
    /// Its generation.
    pub generation: Generation,
    /// Bytes of memory.
    pub memory: u64,
    /// Floating-point operations of dense matrix products of 16-bit floats, summed in f32.
    pub peak_flops: f64,
    /// Bytes read from or written to its memory.
    pub memory_rate: f64,
    /// Bytes to other GPUs of its machine.
    pub link: f64,
    /// Bytes that a usual machine of eight sends to other machines.
    pub network: f64,
    /// Bytes to and from main memory.
    pub host_link: f64,
    /// Main memory and disks of a usual machine of eight.
    pub machine: Machine,
}

/// Main memory and disks of a machine. Rates are per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Bytes read from or written to main memory.
    pub memory_rate: f64,
    /// Bytes that its CPUs read and write while they update states; `None` for a usual share of
    /// `memory_rate`.
    pub cpu_rate: Option<f64>,
    /// Bytes read from its disks.
    pub disk_read: f64,
    /// Bytes written to its disks.
    pub disk_write: f64,
}

impl Machine {
    /// Returns a machine with `share` of these rates.
    fn times(self, share: f64) -> Machine {
        Machine {
            memory_rate: share * self.memory_rate,
            cpu_rate: self.cpu_rate.map(|rate| share * rate),
            disk_read: share * self.disk_read,
            disk_write: share * self.disk_write,
        }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label)
    }
}

const GB: f64 = 1e9;
const TERA: f64 = 1e12;

/// Two EPYC 7742 (DGX A100), and four PCIe 4.0 disks as DeepNVMe reads and writes them.
const PCIE4_MACHINE: Machine =
    Machine { memory_rate: 409.6 * GB, cpu_rate: None, disk_read: 10.0 * GB, disk_write: 5.0 * GB };
/// Two Xeon 8480C (DGX H100), and eight PCIe 5.0 disks as DeepNVMe reads and writes them.
const PCIE5_MACHINE: Machine =
    Machine { memory_rate: 614.4 * GB, cpu_rate: None, disk_read: 48.0 * GB, disk_write: 26.0 * GB };

/// NVIDIA A100, 80 GB, SXM; eight 200 Gb/s links to other machines (DGX A100).
pub const A100: Gpu = Gpu {
    name: "a100",
    label: "A100",
    generation: Generation::Ampere,
    memory: 80_000_000_000,
    peak_flops: 312.0 * TERA,
    memory_rate: 2039.0 * GB,
    link: 300.0 * GB,
    network: 200.0 * GB,
    host_link: 32.0 * GB,
    machine: PCIE4_MACHINE,
};

/// NVIDIA A100, 40 GB.
pub const A100_40: Gpu =
    Gpu { name: "a100-40gb", label: "A100 40 GB", memory: 40_000_000_000, memory_rate: 1555.0 * GB, ..A100 };

/// NVIDIA H100, 80 GB, SXM; eight 400 Gb/s links to other machines (DGX H100).
pub const H100: Gpu = Gpu {
    name: "h100",
    label: "H100",
    generation: Generation::Hopper,
    memory: 80_000_000_000,
    peak_flops: 989.4 * TERA,
    memory_rate: 3350.0 * GB,
    link: 450.0 * GB,
    network: 400.0 * GB,
    host_link: 64.0 * GB,
    machine: PCIE5_MACHINE,
};

/// NVIDIA H200: an H100 with more and faster memory.
pub const H200: Gpu =
    Gpu { name: "h200", label: "H200", memory: 141_000_000_000, memory_rate: 4800.0 * GB, ..H100 };

/// NVIDIA GeForce RTX 4090, on PCIe 4.0; one 100 Gb/s link to other machines.
pub const RTX_4090: Gpu = Gpu {
    name: "rtx4090",
    label: "RTX 4090",
    generation: Generation::Ada,
    memory: 24_000_000_000,
    peak_flops: 165.2 * TERA,
    memory_rate: 1008.0 * GB,
    link: 32.0 * GB,
    network: 12.5 * GB,
    host_link: 32.0 * GB,
    machine: PCIE4_MACHINE,
};

/// NVIDIA RTX PRO 6000 Blackwell, on PCIe 5.0; one 400 Gb/s link to other machines.
pub const RTX_PRO_6000: Gpu = Gpu {
    name: "rtx-pro-6000",
    label: "RTX PRO 6000",
    generation: Generation::Blackwell,
    memory: 96_000_000_000,
    peak_flops: 503.8 * TERA,
    memory_rate: 1792.0 * GB,
    link: 64.0 * GB,
    network: 50.0 * GB,
    host_link: 64.0 * GB,
    machine: PCIE5_MACHINE,
};

/// Every GPU, in the order in which help texts list them.
pub const GPUS: [Gpu; 6] = [A100, A100_40, H100, H200, RTX_4090, RTX_PRO_6000];

/// GPUs in the machines that [`Gpu::network`] describes.
const USUAL_GPUS_PER_NODE: usize = 8;

/// Machines of equal GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// The GPU.
    pub gpu: Gpu,
    /// GPUs per machine.
    pub gpus_per_node: usize,
    /// Bytes per second that a machine sends to others.
    pub network: f64,
    /// Its main memory and disks.
    pub machine: Machine,
}

impl Cluster {
    /// Returns machines of `gpus_per_node` GPUs, with as much of everything per GPU as usual.
    pub fn of(gpu: Gpu, gpus_per_node: usize) -> Self {
        let share = gpus_per_node as f64 / USUAL_GPUS_PER_NODE as f64;
        Cluster { gpu, gpus_per_node, network: share * gpu.network, machine: gpu.machine.times(share) }
    }
}
