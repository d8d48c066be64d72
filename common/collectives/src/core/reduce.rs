//! Sums over ranks, and where they go.

use super::buffers::Span;
use device::{DType, TreeSum};
use std::ops::Range;

/// Where the sums of a range of elements go.
#[derive(Clone, Copy)]
pub(crate) enum Sums<'a> {
    /// Rounded, to this range of these buffers.
    Rounded(&'a [Span]),
    /// Unrounded, to an f32 buffer that has the elements of the range alone.
    Exact(&'a Span),
}

/// Sums `range` of buffers of `dtype` over `ranks` ranks, as [`TreeSum`] does. `read` returns the
/// bytes of some elements of one rank's buffer.
///
/// # Safety
/// The buffers behind `to` are alive, and no other thread touches the elements written there.
/// `read` may return such memory.
pub(crate) unsafe fn sum<'a>(
    dtype: DType,
    range: Range<usize>,
    ranks: usize,
    read: impl Fn(usize, Range<usize>) -> &'a [u8],
    to: Sums<'_>,
) {
    let mut sums = TreeSum::new(dtype);
    for start in range.clone().step_by(TreeSum::BLOCK) {
        let block = start..range.end.min(start + TreeSum::BLOCK);
        let read = |rank| read(rank, block.clone());
        match to {
            Sums::Rounded(buffers) => {
                let sum = sums.rounded(block.len(), ranks, &read);
                for buffer in buffers {
                    // SAFETY: only this thread touches the block, and no longer reads it.
                    unsafe { buffer.write(block.clone()) }.copy_from_slice(sum);
                }
            }
            Sums::Exact(buffer) => {
                let sum = bytemuck::cast_slice(sums.exact(block.len(), ranks, &read));
                let at = block.start - range.start..block.end - range.start;
                // SAFETY: only this thread touches the place.
                unsafe { buffer.write(at) }.copy_from_slice(sum);
            }
        }
    }
}
