//! Copies between kinds of memory.

use crate::Result;
use crate::buffer::Storage;
use crate::copying::Copying;
use crate::cuda::Runtime;
use crate::view::{View, ViewMut};
use events::Work;

/// `out = x` between memory of any two kinds; the same element type and number.
pub(super) fn transfer(runtime: &Runtime, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
    match (out.on_host(), x.on_host()) {
        (true, true) => {
            out.into_bytes_mut().copy_from_slice(x.bytes());
            Ok(())
        }
        (true, false) => runtime.download(x.address("copy", "x")?, out.into_bytes_mut()),
        (false, true) => runtime.upload(out.address("copy", "out")?, x.bytes()),
        (false, false) => {
            let bytes = x.len() * x.dtype().size();
            runtime.copy_on_gpu(out.address("copy", "out")?, x.address("copy", "x")?, bytes)
        }
    }
}

/// Starts `out = x` between page-locked memory and a GPU's, on a separate stream from computation;
/// `work` names it in events. Copies immediately between other kinds of memory.
pub(crate) fn start(
    runtime: &Runtime,
    mut out: ViewMut<'_>,
    x: View<'_>,
    work: Option<Work>,
) -> Result<Copying> {
    out.note_largest(x.largest_index());
    let queued = match (out.memory(), x.memory()) {
        (_, (_, bytes)) if bytes.is_empty() => return Ok(Copying::done()),
        ((Storage::Gpu(block), to), (Storage::Pinned(pages), from)) => {
            block.runtime.copy_in((block, to), (pages, from), work)
        }
        ((Storage::Pinned(pages), to), (Storage::Gpu(block), from)) => {
            block.runtime.copy_out((pages, to), (block, from), work)
        }
        _ => return transfer(runtime, out, x).map(|()| Copying::done()),
    };
    queued.map(Copying::queued)
}
