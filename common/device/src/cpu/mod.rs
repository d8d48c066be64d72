//! The CPU twin: main memory, kernels on the rank's own threads.

mod kernels;
mod memory;

pub(crate) use memory::{Memory, Pool};

use std::sync::Arc;

/// A rank's share of the CPU.
pub(crate) struct Cpu {
    pool: Arc<Pool>,
    #[allow(dead_code)]
    threads: usize,
}

impl Cpu {
    pub(crate) fn new(threads: usize) -> Self {
        Cpu { pool: Arc::new(Pool::default()), threads: threads.max(1) }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}
