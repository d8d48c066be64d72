//! Between main memory and a GPU's.

use super::driver::Named;
use super::pinned::Pinned;
use super::runtime::Runtime;
use super::staging::{self, Coming};
use crate::view::{View, ViewMut};
use crate::{DType, Result};
use cudarc::driver::result;
use std::sync::Arc;

impl Runtime {
    /// Copies `bytes` to `address`, after everything computed so far. `bytes` may change once this has returned: what no block
    /// of ours stands for is waited for, since nothing says when the driver has read it.
    pub(super) fn upload(&self, address: u64, bytes: &[u8]) -> Result<()> {
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
    pub(super) fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
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

    /// `out = bytes`, after everything computed so far. The largest of indices is noted, for checks that need no transfer.
    pub(crate) fn write(&self, mut out: ViewMut<'_>, bytes: &[u8]) -> Result<()> {
        if out.dtype() == DType::U32 {
            let largest = bytes.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).max();
            out.note_largest(largest);
        }
        self.upload(out.address("write", "the buffer")?, bytes)
    }

    /// `bytes = view`, once everything computed so far is done.
    pub(crate) fn read(&self, view: View<'_>, bytes: &mut [u8]) -> Result<()> {
        self.download(view.address("read", "the buffer")?, bytes)
    }

    /// Sends for what `view` holds once everything computed so far is done, and goes on.
    pub(crate) fn fetch(self: &Arc<Self>, view: View<'_>) -> Result<Coming> {
        self.coming(view.address("fetch", "the buffer")?, view.len() * view.dtype().size())
    }

    /// Main memory that this rank's GPU reaches.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<Pinned> {
        Pinned::new(&self.gpu.context, &self.spare, bytes)
    }

    /// `out = x` between memory of any two kinds; the same element type and number.
    pub(super) fn transfer(&self, mut out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        out.note_largest(x.largest_index());
        match (out.on_host(), x.on_host()) {
            (true, true) => {
                out.into_bytes_mut().copy_from_slice(x.bytes());
                Ok(())
            }
            (true, false) => self.download(x.address("copy", "x")?, out.into_bytes_mut()),
            (false, true) => self.upload(out.address("copy", "out")?, x.bytes()),
            (false, false) => self.copy_on_gpu(out, x),
        }
    }

    fn copy_on_gpu(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        let bytes = x.len() * x.dtype().size();
        if bytes == 0 {
            return Ok(());
        }
        let (to, from) = (out.address("copy", "out")?, x.address("copy", "x")?);
        // SAFETY: both views are of this many bytes and are held until the stream is past them.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.compute.handle()) }
            .named("cuMemcpyDtoDAsync")
    }
}
