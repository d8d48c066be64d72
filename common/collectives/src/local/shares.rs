//! Which share of an operation each rank has in the [direct](super::direct) algorithm, wherever the
//! buffers lie.

use super::{Hop, OnHop};
use crate::core::buffers::slice;
use crate::core::call::{BufferShape, Signature};
use events::Operation;
use std::ops::Range;

/// One buffer of every member, wherever they lie.
pub(super) trait MemberBuffers {
    type Error;

    /// Sums `range` over all members' buffers: rounded, into `range` of those of `receivers`; or
    /// unrounded, into this member's place for sums, if it has one.
    ///
    /// # Safety
    /// No other member touches `range` of any of the buffers, or the place for sums.
    unsafe fn sum(&self, range: Range<usize>, receivers: Range<usize>) -> Result<(), Self::Error>;

    /// Copies `range` of member `from`'s buffer into every other member's.
    ///
    /// # Safety
    /// No member writes to `range` of the source, and no other member touches `range` of the
    /// others.
    unsafe fn spread(&self, range: Range<usize>, from: usize) -> Result<(), Self::Error>;
}

/// Does the share of member `me` of `count` for the buffers with number `index`.
///
/// # Errors
/// That of `buffers`.
///
/// # Safety
/// All members have published calls that agree with `signature`. Their buffers are alive, and are
/// left to this collective. Every member calls this at most once per buffer.
pub(super) unsafe fn share<B: MemberBuffers>(
    buffers: &B,
    signature: &Signature,
    index: usize,
    (me, count): (usize, usize),
    hop: OnHop<'_>,
) -> Result<(), B::Error> {
    let BufferShape { len, dtype } = signature.shapes[index];
    let own = slice(len, me, count);
    let bytes = (own.len() * dtype.size()) as u64;
    let others = || (0..count).filter(|&member| member != me);
    let mut hop = |from, to| hop(Hop { from, to, chunk: me, bytes });
    // SAFETY: slice `me` of every buffer, and of sums, is this member's alone. The root's buffer is
    // only read.
    unsafe {
        match signature.operation {
            Operation::AllReduce => {
                others().for_each(|from| hop(from, me));
                buffers.sum(own, 0..count)?;
                others().for_each(|to| hop(me, to));
            }
            Operation::ReduceScatter => {
                others().for_each(|from| hop(from, me));
                buffers.sum(own, me..me + 1)?;
            }
            Operation::AllGather => {
                buffers.spread(own, me)?;
                others().for_each(|to| hop(me, to));
            }
            Operation::Broadcast => {
                let root = signature.root;
                buffers.spread(own, root)?;
                (0..count).filter(|&to| to != root).for_each(|to| hop(root, to));
            }
            _ => {}
        }
    }
    Ok(())
}
