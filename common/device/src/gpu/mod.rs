//! The kernels of one rank on a GPU: views of buffers become addresses, and operations become
//! launches.
//!
//! Launches return at once; the host waits only where it needs a number. The CPU's kernels compute
//! element-wise operations whose operands lie in main memory.

mod kernels;
mod transfer;

pub(crate) use transfer::start;

use crate::cpu::Cpu;
use crate::cuda::{Options, Rotations, Runtime};
use crate::ledger::Ledger;
use std::sync::Arc;

/// A rank on a GPU, with the threads that compute in main memory.
pub(crate) struct GpuKernels {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) host: Cpu,
    rotations: Rotations,
    /// See [`Options::attention_by_products`].
    attention_by_products: bool,
}

impl GpuKernels {
    pub(crate) fn new(runtime: Arc<Runtime>, ledger: Ledger, options: Options) -> Self {
        GpuKernels {
            runtime,
            host: Cpu::new(ledger, options.threads.max(1)),
            rotations: Rotations::default(),
            attention_by_products: options.attention_by_products,
        }
    }
}
