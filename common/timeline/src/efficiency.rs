//! The share of a data sheet's rates that training reaches.

use crate::hardware::{Generation, Gpu};

/// How a program computes element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// Each operation is a kernel that reads its operands from memory and writes its result there.
    Eager,
    /// Operations that follow each other are one kernel: compiled, or written so.
    Fused,
}

events::labels! { Software { Eager => "eager", Fused => "fused" } }

/// What training reaches on one GPU and its links: shares of the data sheet's rates, and a latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Efficiency {
    /// Of its products, in products with weights.
    pub products: f64,
    /// Of its products, in attention.
    pub attention: f64,
    /// Of its memory.
    pub memory: f64,
    /// Of its links inside a machine.
    pub link: f64,
    /// Of its machine's network.
    pub network: f64,
    /// Of its link to main memory.
    pub host_link: f64,
    /// Of its machine's main memory, while CPUs update states there.
    pub cpu: f64,
    /// Seconds per hop of a collective.
    pub hop: f64,
    /// Passes over memory that eager programs make for one of fused programs.
    pub eager_passes: f64,
}

/// The share of its memory's rate that a kernel reaches which only moves elements. Assumed: no
/// published run depends on it enough to fit it.
const MEMORY: f64 = 0.8;
/// The share of links inside a machine. Assumed, for the same reason: where they are fast,
/// computation hides them.
const LINK: f64 = 0.8;
/// The share of links between GPUs and main memory. Assumed: no published run is limited by it.
const HOST_LINK: f64 = 0.8;
/// The share of tensor cores in attention on GPUs whose published runs hardly use it.
const ATTENTION: f64 = 0.5;

/// Efficiencies fitted to published runs. They absorb what times leave out, such as launches of
/// kernels and copies into buckets, so they are no measurements of kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// [`Efficiency::products`] of each generation. More than 1 where clocks are higher than the
    /// data sheet's.
    pub products: [f64; Generation::ALL.len()],
    /// [`Efficiency::attention`] of Ampere and Hopper.
    pub attention: [f64; 2],
    /// [`Efficiency::network`].
    pub network: f64,
    /// [`Efficiency::cpu`].
    pub cpu: f64,
    /// [`Efficiency::hop`].
    pub hop: f64,
    /// [`Efficiency::eager_passes`].
    pub eager_passes: f64,
}

impl Calibration {
    /// The efficiencies that agree best with all published runs: [`fit`](crate::calibration::fit)
    /// computes them.
    #[allow(clippy::approx_constant, reason = "a fitted number may be near one")]
    pub const ALL_RUNS: Calibration = Calibration {
        products: [0.7331, 0.5904, 1.0, 0.7864],
        attention: [0.2943, 0.1649],
        network: 0.7864,
        cpu: 0.0992,
        hop: 9.357e-6,
        eager_passes: 3.14,
    };

    /// Usual values, from which a fit begins.
    pub const USUAL: Calibration = Calibration {
        products: [0.75, 0.75, 1.0, 0.8],
        attention: [0.5, 0.3],
        network: 0.8,
        cpu: 0.2,
        hop: 5e-6,
        eager_passes: 3.0,
    };

    /// Returns the efficiency of `gpu`.
    pub fn of(&self, gpu: &Gpu) -> Efficiency {
        let generation = gpu.generation.index();
        Efficiency {
            products: self.products[generation],
            attention: self.attention.get(generation).copied().unwrap_or(ATTENTION),
            memory: MEMORY,
            link: LINK,
            network: self.network,
            host_link: HOST_LINK,
            cpu: self.cpu,
            hop: self.hop,
            eager_passes: self.eager_passes,
        }
    }
}
