//! A buffer's memory on a GPU.

use super::runtime::Runtime;
use crate::Result;
use std::sync::Arc;

/// Memory on a rank's GPU; goes back to the rank's pool when dropped.
pub(crate) struct Block {
    rank: Arc<Runtime>,
    address: u64,
    bytes: usize,
}

impl Block {
    /// `None` if the GPU has no room.
    fn new(rank: Arc<Runtime>, bytes: usize) -> Result<Option<Self>> {
        Ok(rank.pool.lend(bytes)?.map(|address| Block { rank, address, bytes }))
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The rank that it belongs to.
    pub(crate) fn rank(&self) -> &Arc<Runtime> {
        &self.rank
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.rank.pool.take_back(self.address, self.bytes);
    }
}

impl Runtime {
    /// A block of the rank's memory; `None` if the GPU has no room.
    pub(crate) fn block(self: &Arc<Self>, bytes: usize) -> Result<Option<Block>> {
        Block::new(self.clone(), bytes)
    }
}
