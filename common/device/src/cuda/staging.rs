//! Page-locked main memory between the host and a GPU: copies to and from it run while the host goes on.
//!
//! Pageable memory the driver copies itself, once everything queued before is done, and the host stands still meanwhile.

use super::driver::{Fence, Named};
use super::pinned::Pinned;
use super::runtime::Runtime;
use crate::Result;
use cudarc::driver::result;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Larger copies go to and from pageable memory: they are of weights, at the beginning and the end of a run.
pub(super) const MOST: usize = 4 << 20;

/// Blocks are powers of two, and at least this large.
const LEAST: usize = 4 << 10;

/// Blocks that may wait for their copies at any one time; one more waits for the oldest.
const BUSY: usize = 16;

/// A rank's blocks of queued copies, each with the point at which its copy is done.
#[derive(Default)]
pub(super) struct Staging(Mutex<Busy>);

#[derive(Default)]
struct Busy(VecDeque<(Fence, Pinned)>);

impl Busy {
    /// Takes back the blocks whose copies are done, oldest first; of more than [`BUSY`] the oldest are waited for.
    fn settle(&mut self) -> Result<()> {
        while let Some((fence, _)) = self.0.front() {
            if self.0.len() > BUSY {
                fence.wait()?;
            } else if !fence.is_reached()? {
                return Ok(());
            }
            self.0.pop_front();
        }
        Ok(())
    }
}

impl Staging {
    fn busy(&self) -> MutexGuard<'_, Busy> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block with room for `bytes` that no copy touches.
    fn take(&self, rank: &Runtime, bytes: usize) -> Result<Pinned> {
        let size = bytes.next_power_of_two().max(LEAST);
        self.busy().settle()?;
        rank.pinned(size)
    }

    /// Keeps a block for reuse after `fence`.
    fn keep(&self, fence: Fence, block: Pinned) {
        self.busy().0.push_back((fence, block));
    }
}

/// Bytes on their way from a GPU.
pub(crate) struct Coming {
    rank: Arc<Runtime>,
    /// Where they arrive, and the point at which they have; `None` once given back.
    block: Option<(Fence, Pinned)>,
    len: usize,
}

impl Coming {
    /// What `read` makes of the bytes, once they are here: waits for what had been computed when they were sent for, and for
    /// nothing that was queued since.
    pub(crate) fn wait<R>(self, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let Some((fence, block)) = &self.block else { return Ok(read(&[])) };
        self.rank.gpu.context.enter()?;
        fence.wait()?;
        Ok(read(&block.bytes()[..self.len]))
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Some((fence, block)) = self.block.take() {
            self.rank.staging.keep(fence, block);
        }
    }
}

impl Runtime {
    /// Copies `bytes`, at least one and at most [`MOST`], to `address`, after everything computed so far. `bytes` may change
    /// once this has returned.
    pub(super) fn send(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.gpu.context.enter()?;
        let mut block = self.staging.take(self, bytes.len())?;
        let staged = &mut block.bytes_mut()[..bytes.len()];
        staged.copy_from_slice(bytes);
        // SAFETY: the callers' addresses have room for the bytes; the block is nobody else's until the copy is done.
        let queued = unsafe { result::memcpy_htod_async(address, staged, self.compute.handle()) };
        queued.named("cuMemcpyHtoDAsync")?;
        let fence = self.behind()?;
        self.staging.keep(fence, block);
        Ok(())
    }

    /// Sends for `len` bytes at `address`, at least one, as they are after everything computed so far.
    pub(super) fn send_for(&self, address: u64, len: usize) -> Result<(Fence, Pinned)> {
        self.gpu.context.enter()?;
        let mut block = self.staging.take(self, len)?;
        let place = &mut block.bytes_mut()[..len];
        // SAFETY: as in `send`, the other way round.
        let queued = unsafe { result::memcpy_dtoh_async(place, address, self.compute.handle()) };
        queued.named("cuMemcpyDtoHAsync")?;
        let fence = self.behind()?;
        Ok((fence, block))
    }

    /// The point at which the copy that was queued last is done. Without one nobody knows when its block may go: then it goes
    /// when nothing runs any more.
    fn behind(&self) -> Result<Fence> {
        self.compute.fence().inspect_err(|_| {
            let _ = self.compute.synchronize();
        })
    }

    /// Sends for `len` bytes at `address`, and goes on.
    pub(super) fn coming(self: &Arc<Self>, address: u64, len: usize) -> Result<Coming> {
        let block = if len == 0 { None } else { Some(self.send_for(address, len)?) };
        Ok(Coming { rank: self.clone(), block, len })
    }

    /// Copies `len` bytes at `address` into `bytes` by way of a block, once everything computed so far is done.
    pub(super) fn receive(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let (fence, block) = self.send_for(address, bytes.len())?;
        let arrived = self.compute.wait_for(&fence);
        if arrived.is_ok() {
            bytes.copy_from_slice(&block.bytes()[..bytes.len()]);
        }
        self.staging.keep(fence, block);
        arrived
    }
}
