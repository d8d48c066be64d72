//! A buffer's memory on a GPU.

use super::in_flight::InFlight;
use super::runtime::Runtime;
use crate::Result;
use std::sync::Arc;

/// Memory on a rank's GPU; goes back to the rank's pool when dropped.
pub(crate) struct Block {
    /// The copies that touch it.
    pub(super) in_flight: InFlight,
    /// The rank that it belongs to.
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) address: u64,
    bytes: usize,
}

impl Drop for Block {
    fn drop(&mut self) {
        // The block is reused in the order of the compute stream. If the driver refuses this wait,
        // it also refuses the next work, and that error is reported.
        let _ = self.runtime.compute_after_copies(&self.in_flight);
        self.runtime.pool.take_back(self.address, self.bytes);
    }
}

impl Runtime {
    /// Returns a block of the rank's memory; `None` if the GPU has no room.
    pub(crate) fn block(self: &Arc<Self>, bytes: usize) -> Result<Option<Block>> {
        let block = |address| Block { in_flight: InFlight::default(), runtime: self.clone(), address, bytes };
        Ok(self.pool.lend(bytes)?.map(block))
    }

    /// Makes all later computation wait for the copies `in_flight`.
    fn compute_after_copies(&self, in_flight: &InFlight) -> Result<()> {
        if in_flight.is_empty() {
            return Ok(());
        }
        self.gpu.context.enter()?;
        let fences = in_flight.before(&(0..usize::MAX), true);
        fences.iter().try_for_each(|fence| self.compute.wait(fence))
    }
}
