//! Between main memory and a GPU's.

use super::call::Named;
use super::pinned::Pinned;
use super::runtime::Runtime;
use super::staging;
use super::stream::Fence;
use crate::Result;
use cudarc::driver::result;
use std::sync::Arc;

impl Runtime {
    /// Copies `bytes` to `address`, after everything computed so far. `bytes` may change once this has returned: what no block
    /// of ours stands for is waited for, since nothing says when the driver has read it.
    pub(crate) fn upload(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() <= staging::MOST {
            return self.send(address, bytes);
        }
        self.gpu.context.enter()?;
        // SAFETY: the callers' addresses have room for the bytes; they stay borrowed until the stream is idle.
        unsafe { result::memcpy_htod_async(address, bytes, self.compute.handle()) }
            .named("cuMemcpyHtoDAsync")?;
        self.compute.synchronize()
    }

    /// Copies from `address` into `bytes`, once everything computed so far is done.
    pub(crate) fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        if (1..=staging::MOST).contains(&bytes.len()) {
            return self.receive(address, bytes);
        }
        if !bytes.is_empty() {
            self.gpu.context.enter()?;
            // SAFETY: the callers' addresses hold as many bytes; they stay borrowed until the stream is idle.
            unsafe { result::memcpy_dtoh_async(bytes, address, self.compute.handle()) }
                .named("cuMemcpyDtoHAsync")?;
        }
        self.compute.synchronize()
    }

    /// `len` bytes at `address` become `value`, after everything computed so far.
    pub(crate) fn set_bytes(&self, address: u64, value: u8, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.gpu.context.enter()?;
        // SAFETY: the callers' addresses have room for the bytes.
        unsafe { result::memset_d8_async(address, value, len, self.compute.handle()) }
            .named("cuMemsetD8Async")
    }

    /// Main memory that this rank's GPU reaches.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<Pinned> {
        Pinned::new(&self.gpu.context, &self.spare, bytes)
    }

    /// Copies `bytes` bytes between addresses on this GPU, after everything computed so far.
    pub(crate) fn copy_on_gpu(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the callers' addresses have room for the bytes and are held until the stream is past them.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.compute.handle()) }
            .named("cuMemcpyDtoDAsync")
    }

    /// Copies `bytes`, at least one and at most [`MOST`], to `address`, after everything computed so far. `bytes` may change
    /// once this has returned.
    fn send(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.gpu.context.enter()?;
        let mut block = self.staging.take(&self.gpu.context, &self.spare, bytes.len())?;
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
    fn send_for(&self, address: u64, len: usize) -> Result<(Fence, Pinned)> {
        self.gpu.context.enter()?;
        let mut block = self.staging.take(&self.gpu.context, &self.spare, len)?;
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
    pub(crate) fn coming(self: &Arc<Self>, address: u64, len: usize) -> Result<Coming> {
        let block = if len == 0 { None } else { Some(self.send_for(address, len)?) };
        Ok(Coming { rank: self.clone(), block, len })
    }

    /// Copies `len` bytes at `address` into `bytes` by way of a block, once everything computed so far is done.
    fn receive(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let (fence, block) = self.send_for(address, bytes.len())?;
        let arrived = self.compute.wait_for(&fence);
        if arrived.is_ok() {
            bytes.copy_from_slice(&block.bytes()[..bytes.len()]);
        }
        self.staging.keep(fence, block);
        arrived
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
