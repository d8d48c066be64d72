//! The CPU: main memory, kernels on the rank's own threads.

mod adamw;
mod attention;
mod cross_entropy;
mod dense;
mod elementwise;
mod embedding;
mod kernels;
mod math;
mod matmul;
mod multiply;
mod norm;
mod operand;
mod reduction;
mod rope;
mod swiglu;
mod tile;
mod transpose;
mod workers;

pub(crate) use elementwise::round_into;

use crate::pool::{Pool, Scratch};
use rope::Rotations;
use std::sync::Arc;
use workers::Workers;

/// A rank's share of the CPU.
pub(crate) struct Cpu {
    pool: Arc<Pool>,
    workers: Workers,
    rotations: Rotations,
}

impl Cpu {
    pub(crate) fn new(threads: usize) -> Self {
        Cpu { pool: Arc::default(), workers: Workers::new(threads), rotations: Rotations::default() }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// `len` f32 of unspecified contents for the inside of a kernel.
    fn scratch(&self, len: usize) -> Scratch {
        self.pool.scratch(len)
    }
}
