//! The processor that runs a rank's kernels.

use crate::cpu::Cpu;
use crate::cuda::Runtime;
use crate::gpu::GpuKernels;
use crate::kernels::Kernels;
use std::sync::Arc;

/// The processor that a rank computes on.
#[derive(Clone)]
pub(crate) enum Backend {
    Cpu(Arc<Cpu>),
    Cuda(Arc<GpuKernels>),
}

impl Backend {
    pub(crate) fn kernels(&self) -> &dyn Kernels {
        match self {
            Backend::Cpu(cpu) => cpu.as_ref(),
            Backend::Cuda(gpu) => gpu.as_ref(),
        }
    }

    /// Returns the threads that compute in main memory.
    pub(crate) fn cpu(&self) -> &Cpu {
        match self {
            Backend::Cpu(cpu) => cpu,
            Backend::Cuda(gpu) => &gpu.host,
        }
    }

    /// Returns the rank's share of a GPU; `None` on the CPU.
    pub(crate) fn runtime(&self) -> Option<&Arc<Runtime>> {
        match self {
            Backend::Cpu(_) => None,
            Backend::Cuda(gpu) => Some(&gpu.runtime),
        }
    }
}
