//! Copies between main memory and a GPU's.

use super::call::Named;
use super::memory::OUT_OF_MEMORY;
use super::pinned::Pinned;
use super::runtime::Runtime;
use super::staging;
use super::stream::Fence;
use crate::{DeviceError, Result};
use cudarc::driver::result;
use std::sync::Arc;

impl Runtime {
    /// Copies `bytes` to `address`, after everything computed so far. `bytes` may change once this
    /// has returned. Blocks for a copy that is too large to be staged, since nothing says when the
    /// driver has read its source.
    pub(crate) fn upload(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() <= staging::MOST {
            return self.upload_staged(address, bytes);
        }
        self.gpu.context.enter()?;
        // SAFETY: the callers' addresses have room for the bytes; they stay borrowed until the
        // stream is idle.
        unsafe { result::memcpy_htod_async(address, bytes, self.compute.handle()) }
            .named("cuMemcpyHtoDAsync")?;
        self.compute.synchronize()
    }

    /// Copies from `address` into `bytes`, once everything computed so far is done.
    pub(crate) fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        if (1..=staging::MOST).contains(&bytes.len()) {
            return self.download_staged(address, bytes);
        }
        if !bytes.is_empty() {
            self.gpu.context.enter()?;
            // SAFETY: the callers' addresses hold as many bytes; they stay borrowed until the
            // stream is idle.
            unsafe { result::memcpy_dtoh_async(bytes, address, self.compute.handle()) }
                .named("cuMemcpyDtoHAsync")?;
        }
        self.compute.synchronize()
    }

    /// Sets `len` bytes at `address` to `value`, after everything computed so far.
    pub(crate) fn set_bytes(&self, address: u64, value: u8, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.gpu.context.enter()?;
        // SAFETY: the callers' addresses have room for the bytes.
        unsafe { result::memset_d8_async(address, value, len, self.compute.handle()) }
            .named("cuMemsetD8Async")
    }

    /// Returns main memory that this rank's GPU reaches; `None` if no more can be locked.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<Option<Pinned>> {
        match Pinned::new(&self.spare, bytes) {
            Err(DeviceError::Cuda { reason, .. }) if reason.contains(OUT_OF_MEMORY) => Ok(None),
            pinned => pinned.map(Some),
        }
    }

    /// Copies `bytes` bytes between addresses on this GPU, after everything computed so far.
    pub(crate) fn copy_on_gpu(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.gpu.context.enter()?;
        // SAFETY: the callers' addresses have room for the bytes and are held until the stream is
        // past them.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.compute.handle()) }
            .named("cuMemcpyDtoDAsync")
    }

    /// Copies `bytes`, at least one and at most `staging::MOST`, to `address`, after everything
    /// computed so far. `bytes` may change once this has returned.
    fn upload_staged(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.gpu.context.enter()?;
        let mut block = self.staging.take(&self.spare, bytes.len())?;
        let staged = block.bytes_mut(0..bytes.len());
        staged.copy_from_slice(bytes);
        // SAFETY: the callers' addresses have room for the bytes; nothing else uses the block until
        // the copy is done.
        let queued = unsafe { result::memcpy_htod_async(address, staged, self.compute.handle()) };
        queued.named("cuMemcpyHtoDAsync")?;
        let fence = self.compute.fence_after_copy()?;
        self.staging.keep(fence, block);
        Ok(())
    }

    /// Queues a copy of `len` bytes at `address`, at least one, after everything computed so far,
    /// into a block.
    fn queue_download(&self, address: u64, len: usize) -> Result<(Fence, Pinned)> {
        self.gpu.context.enter()?;
        let mut block = self.staging.take(&self.spare, len)?;
        let place = block.bytes_mut(0..len);
        // SAFETY: as in `upload_staged`, the other way round.
        let queued = unsafe { result::memcpy_dtoh_async(place, address, self.compute.handle()) };
        queued.named("cuMemcpyDtoHAsync")?;
        let fence = self.compute.fence_after_copy()?;
        Ok((fence, block))
    }

    /// Starts to copy `len` bytes at `address` to the host. Does not block.
    pub(crate) fn start_download(self: &Arc<Self>, address: u64, len: usize) -> Result<Download> {
        let block = if len == 0 { None } else { Some(self.queue_download(address, len)?) };
        Ok(Download { runtime: self.clone(), block, len })
    }

    /// Copies `len` bytes at `address` into `bytes` through a staging block, once everything
    /// computed so far is done.
    fn download_staged(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let (fence, block) = self.queue_download(address, bytes.len())?;
        let arrived = self.compute.wait_for(&fence);
        if arrived.is_ok() {
            bytes.copy_from_slice(block.bytes(0..bytes.len()));
        }
        self.staging.keep(fence, block);
        arrived
    }
}

/// A copy from a GPU to the host that has been queued.
pub(crate) struct Download {
    runtime: Arc<Runtime>,
    /// Where the bytes arrive, and the fence after their copy; `None` once given back.
    block: Option<(Fence, Pinned)>,
    len: usize,
}

impl Download {
    /// Blocks until the bytes have arrived and returns the result of `read`. Does not wait for work
    /// that was queued later.
    pub(crate) fn wait<R>(self, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let Some((fence, block)) = &self.block else { return Ok(read(&[])) };
        self.runtime.gpu.context.enter()?;
        fence.wait()?;
        Ok(read(block.bytes(0..self.len)))
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if let Some((fence, block)) = self.block.take() {
            self.runtime.staging.keep(fence, block);
        }
    }
}
