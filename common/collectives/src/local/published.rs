//! What a rank leaves in a slot for the other ranks.

use super::gpu::{OnGpu, Parties};
use crate::core::buffers::Issued;
use crate::core::failure::Comparable;

/// A call and where its rank's buffers lie.
pub(crate) struct Published {
    /// The call, with its buffers in main memory.
    pub(crate) issued: Issued,
    /// The buffers, if they lie on a GPU.
    pub(crate) gpu: Option<OnGpu>,
}

impl Comparable for Published {
    fn agrees(&self, other: &Self) -> bool {
        self.issued.call.signature.agrees(&other.issued.call.signature)
    }

    fn describe(&self, other: &Self) -> String {
        self.issued.call.signature.describe(&other.issued.call.signature)
    }
}

/// Returns all members' buffers, if they lie on GPUs.
pub(crate) fn on_gpus(all: &[Published]) -> Option<Parties<'_>> {
    let on_gpu: Option<Vec<_>> = all.iter().map(|one| one.gpu.as_ref()).collect();
    Some(Parties { signature: &all[0].issued.call.signature, all: on_gpu? })
}
