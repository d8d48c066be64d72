//! A rank's call as it lies in a slot for the other ranks.

use super::gpu::{GpuMembers, OnGpu};
use crate::core::buffers::Issued;
use crate::core::call::Signature;

/// A call and where its rank's buffers lie.
pub(crate) struct Published {
    /// The call, with its buffers in main memory.
    pub(crate) issued: Issued,
    /// The buffers on a GPU; `None` if they lie in main memory.
    pub(crate) gpu: Option<OnGpu>,
}

impl AsRef<Signature> for Published {
    fn as_ref(&self) -> &Signature {
        &self.issued.call.signature
    }
}

/// Returns all members' buffers, if they lie on GPUs.
pub(crate) fn on_gpus(all: &[Published]) -> Option<GpuMembers<'_>> {
    let on_gpu: Option<Vec<_>> = all.iter().map(|one| one.gpu.as_ref()).collect();
    Some(GpuMembers { signature: all[0].as_ref(), all: on_gpu? })
}
