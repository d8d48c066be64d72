//! The measurements of one rank over a run.

use crate::hardware_rows::GpuRow;
use crate::kernels::KernelRow;
use crate::rows::{Clocks, StepRow};
use collectives::Traffic;
use offload::TransferCounters;
use serde::{Deserialize, Serialize};

/// Peak bytes in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peaks {
    /// By class, in [`Class::ALL`](events::Class::ALL)'s order.
    pub classes: Vec<u64>,
    /// Of the sum over classes.
    pub total: u64,
}

/// The measurements of one rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Its steps; the same on every rank except for the seconds.
    pub steps: Vec<StepRow>,
    /// Seconds of all its steps, with the end of an update that an interrupted step completed.
    pub seconds: f64,
    /// Number of its steps that began after the previous update had finished.
    pub fresh_starts: u64,
    /// Validation losses: after how many steps, nats per token.
    pub evaluations: Vec<(u32, f64)>,
    /// Number of checkpoints between two of its steps.
    pub checkpoints: u64,
    /// Peak bytes by place, in [`Place::ALL`](events::Place::ALL)'s order.
    pub memory: Vec<Peaks>,
    /// GPU memory that the ledger does not count; `None` on the CPU.
    pub gpu: Option<GpuRow>,
    /// Time by kind of kernel, of whole steps; empty if the device is not metered, or if a step or
    /// a validation of a run on a GPU was interrupted.
    pub kernels: Vec<KernelRow>,
    /// Bytes and calls per operation.
    pub traffic: Traffic,
    /// The part of these bytes that it sent to neighbours; `None` if it has no group of neighbours.
    pub to_neighbours: Option<u64>,
    /// Its transfers between places.
    pub transfers: TransferCounters,
    /// The part of `transfers` that was for validation.
    pub validation_transfers: TransferCounters,
    /// Its transfers in setup and for checkpoints.
    pub other_transfers: TransferCounters,
    /// Seconds per phase.
    pub clocks: Clocks,
    /// Hash of the final weights; set only on rank 0, and only on request.
    pub weights_blake3: Option<String>,
    /// The reason why the last checkpoint was not saved; `None` if it was saved.
    pub unsaved: Option<String>,
}
