//! A GPU's context.

use super::call::Named;
use super::gate::ContextWait;
use crate::Result;
use cudarc::driver::{result, sys};
use std::sync::Arc;

/// A GPU's primary context, which all ranks on it share.
pub(super) struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
}

// SAFETY: the driver's handles may be used from any thread; every call is thread-safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn retain(device: sys::CUdevice) -> Result<Arc<Self>> {
        // SAFETY: the device comes from the driver.
        let handle = unsafe { result::primary_ctx::retain(device) }.named("cuDevicePrimaryCtxRetain")?;
        Ok(Arc::new(Context { device, handle }))
    }

    /// Makes it current on the calling thread.
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        unsafe { result::ctx::set_current(self.handle) }.named("cuCtxSetCurrent")
    }

    /// Lets its kernels and copies access the memory of `other`.
    pub(super) fn reach(&self, other: &Context) -> Result<()> {
        self.enter()?;
        // SAFETY: both contexts are alive.
        let reached = unsafe { sys::cuCtxEnablePeerAccess(other.handle, 0) }.result();
        match reached {
            Err(error) if error.0 == sys::cudaError_enum::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            reached => reached.named("cuCtxEnablePeerAccess"),
        }
    }

    /// Blocks until every stream of every rank on this GPU is idle.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.enter()?;
        let _wait = ContextWait::begin();
        result::ctx::synchronize().named("cuCtxSynchronize")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _wait = ContextWait::begin();
        // SAFETY: retained once, released once.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
