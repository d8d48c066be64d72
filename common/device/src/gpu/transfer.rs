//! Copies between kinds of memory.

use crate::Result;
use crate::cuda::Runtime;
use crate::view::{View, ViewMut};

/// `out = x` between memory of any two kinds; the same element type and number.
pub(super) fn transfer(rank: &Runtime, mut out: ViewMut<'_>, x: View<'_>) -> Result<()> {
    out.note_largest(x.largest_index());
    match (out.on_host(), x.on_host()) {
        (true, true) => {
            out.into_bytes_mut().copy_from_slice(x.bytes());
            Ok(())
        }
        (true, false) => rank.download(x.address("copy", "x")?, out.into_bytes_mut()),
        (false, true) => rank.upload(out.address("copy", "out")?, x.bytes()),
        (false, false) => {
            let bytes = x.len() * x.dtype().size();
            rank.copy_on_gpu(out.address("copy", "out")?, x.address("copy", "x")?, bytes)
        }
    }
}
