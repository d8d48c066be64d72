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
    /// The number of generations.
    pub const COUNT: usize = 4;

    /// Returns its index among them.
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
    /// Floating-point operations of dense products of 16-bit floats, summed in f32.
    pub products_16: f64,
    /// Floating-point operations of dense products of f32 without tensor cores.
    pub products_32: f64,
    /// Bytes read from or written to its memory.
    pub memory_rate: f64,
    /// Bytes to other GPUs of its machine.
    pub link: f64,
    /// Bytes that a usual machine of eight sends to other machines.
    pub network: f64,
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label)
    }
}

const GB: f64 = 1e9;
const TERA: f64 = 1e12;

/// NVIDIA A100, 80 GB, SXM; eight 200 Gb/s links to other machines (DGX A100).
pub const A100: Gpu = Gpu {
    name: "a100",
    label: "A100",
    generation: Generation::Ampere,
    memory: 80_000_000_000,
    products_16: 312.0 * TERA,
    products_32: 19.5 * TERA,
    memory_rate: 2039.0 * GB,
    link: 300.0 * GB,
    network: 200.0 * GB,
};

/// NVIDIA H100, 80 GB, SXM; eight 400 Gb/s links to other machines (DGX H100).
pub const H100: Gpu = Gpu {
    name: "h100",
    label: "H100",
    generation: Generation::Hopper,
    memory: 80_000_000_000,
    products_16: 989.4 * TERA,
    products_32: 66.9 * TERA,
    memory_rate: 3350.0 * GB,
    link: 450.0 * GB,
    network: 400.0 * GB,
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
    products_16: 165.2 * TERA,
    products_32: 82.6 * TERA,
    memory_rate: 1008.0 * GB,
    link: 32.0 * GB,
    network: 12.5 * GB,
};

/// NVIDIA RTX PRO 6000 Blackwell, on PCIe 5.0; one 400 Gb/s link to other machines.
pub const RTX_PRO_6000: Gpu = Gpu {
    name: "rtx-pro-6000",
    label: "RTX PRO 6000",
    generation: Generation::Blackwell,
    memory: 96_000_000_000,
    products_16: 503.8 * TERA,
    products_32: 126.0 * TERA,
    memory_rate: 1792.0 * GB,
    link: 64.0 * GB,
    network: 50.0 * GB,
};

/// Every GPU, in the order in which help texts list them.
pub const GPUS: [Gpu; 5] = [A100, H100, H200, RTX_4090, RTX_PRO_6000];

/// Machines of equal GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// The GPU.
    pub gpu: Gpu,
    /// GPUs per machine.
    pub gpus_per_node: usize,
    /// Bytes per second that a machine sends to others.
    pub network: f64,
}

impl Cluster {
    /// Returns machines of `gpus_per_node` GPUs with their usual network.
    pub fn of(gpu: Gpu, gpus_per_node: usize) -> Self {
        Cluster { gpu, gpus_per_node, network: gpu.network }
    }
}
