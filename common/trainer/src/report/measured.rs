//! What one rank measures over a run.

use super::StepRow;
use crate::hardware_rows::{GpuRow, KernelRow};
use collectives::Traffic;
use serde::{Deserialize, Serialize};

/// Seconds per phase of the training loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Fetching tokens.
    pub data: f64,
    /// Forward passes.
    pub forward: f64,
    /// Backward passes.
    pub backward: f64,
    /// The part of backward in which blocks recompute what forward has not kept.
    pub recompute: f64,
    /// Optimizer steps.
    pub step: f64,
    /// Validation.
    pub evaluate: f64,
}

/// Seconds per phase: in all, and in waits for collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// In all.
    pub total: Times,
    /// Of it, in waits for collectives.
    pub waits: Times,
    /// Of these, for peers.
    pub for_peers: Times,
    /// Of these, for a simulated link.
    pub for_link: Times,
}

/// What one rank measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Its steps; the same on every rank but for the seconds.
    pub steps: Vec<StepRow>,
    /// Validation losses: after how many steps, nats per token.
    pub evaluations: Vec<(u32, f64)>,
    /// Checkpoints between two of its steps.
    pub checkpoints: u64,
    /// Peak bytes per class, in [`Class::ALL`](events::Class::ALL)'s order.
    pub peaks: Vec<u64>,
    /// Peak of the sum over classes.
    pub total_peak: u64,
    /// GPU memory that the ledger does not count; `None` on the CPU.
    pub gpu: Option<GpuRow>,
    /// Time by kind of kernel, if the device is metered.
    pub kernels: Vec<KernelRow>,
    /// Bytes and calls per operation.
    pub traffic: Traffic,
    /// Of these bytes, what it sent to neighbours, if it has a group of them.
    pub to_neighbours: Option<u64>,
    /// Seconds per phase.
    pub clocks: Clocks,
    /// Hash of the final weights, on rank 0 if it was asked for.
    pub weights_blake3: Option<String>,
}
