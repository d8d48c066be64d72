//! The CPU: main memory, kernels on the rank's own threads.

mod adamw;
mod attention;
mod cross_entropy;
mod elementwise;
mod embedding;
mod grid;
mod kernels;
mod math;
mod matmul;
mod non_temporal;
mod norm;
mod operand;
mod prefetch;
mod product;
mod reduction;
mod rope;
mod swiglu;
mod tile;
mod workers;

pub(crate) use elementwise::round_into;
pub(crate) use operand::FloatsMut;

use crate::Result;
use crate::ledger::Ledger;
use crate::pool::{Pool, Scratch};
use events::{Class, Place};
use rope::Rotations;
use std::sync::Arc;
use workers::Workers;

/// A rank's share of the CPU.
pub(crate) struct Cpu {
    pub(crate) pool: Arc<Pool>,
    workers: Workers,
    rotations: Rotations,
    /// Of the rank, for errors.
    ledger: Ledger,
}

impl Cpu {
    pub(crate) fn new(ledger: Ledger, threads: usize) -> Self {
        Cpu { pool: Arc::default(), workers: Workers::new(threads), rotations: Rotations::default(), ledger }
    }

    /// `len` f32 of unspecified contents for the inside of a kernel.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::OutOfMemory) if the system gives no more.
    fn scratch(&self, len: usize) -> Result<Scratch> {
        let bytes = len.saturating_mul(size_of::<f32>());
        self.pool
            .scratch(len)
            .ok_or_else(|| self.ledger.exhausted(Place::Device, Class::Workspace, bytes).into())
    }

    /// An empty vector with room for `len` elements, for the inside of a kernel.
    ///
    /// # Errors
    /// As [`Cpu::scratch`].
    fn room<T>(&self, len: usize) -> Result<Vec<T>> {
        self.ledger.room(Place::Device, len)
    }
}
