//! What one rank measures over a run.

use crate::hardware_rows::GpuRow;
use crate::kernels::KernelRow;
use crate::rows::{Clocks, StepRow};
use collectives::Traffic;
use offload::Moved;
use serde::{Deserialize, Serialize};

/// Peak bytes in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peaks {
    /// By class, in [`Class::ALL`](events::Class::ALL)'s order.
    pub classes: Vec<u64>,
    /// Of the sum over classes.
    pub total: u64,
}

/// What one rank measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Its steps; the same on every rank but for the seconds.
    pub steps: Vec<StepRow>,
    /// Its steps that began when the update before them was over.
    pub fresh_starts: u64,
    /// Validation losses: after how many steps, nats per token.
    pub evaluations: Vec<(u32, f64)>,
    /// Checkpoints between two of its steps.
    pub checkpoints: u64,
    /// Peak bytes by place, in [`Place::ALL`](events::Place::ALL)'s order.
    pub memory: Vec<Peaks>,
    /// GPU memory that the ledger does not count; `None` on the CPU.
    pub gpu: Option<GpuRow>,
    /// Time by kind of kernel, if the device is metered.
    pub kernels: Vec<KernelRow>,
    /// Bytes and calls per operation.
    pub traffic: Traffic,
    /// Of these bytes, what it sent to neighbours, if it has a group of them.
    pub to_neighbours: Option<u64>,
    /// What it moved between its places.
    pub transfers: Moved,
    /// Of this, what it moved for validation.
    pub validation_transfers: Moved,
    /// What it moved in setup and for checkpoints.
    pub other_transfers: Moved,
    /// Seconds per phase.
    pub clocks: Clocks,
    /// Hash of the final weights, on rank 0 if it was asked for.
    pub weights_blake3: Option<String>,
    /// Why the last checkpoint was not saved, if it was not.
    pub unsaved: Option<String>,
}
