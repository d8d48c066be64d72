//! The ring algorithm: each rank receives from its left neighbour only.
//!
//! The bandwidth-optimal ring of Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
//! clusters of workstations" (2009): in N−1 steps partial sums travel to their owner, in N−1 more
//! the sums travel on to all ranks. A rank may take step s + 1 once its left neighbour has finished
//! step s. Through the chain of neighbours this also says that its right neighbour has read
//! whatever the step overwrites. Partial sums are rounded to the element type at every hop, and the
//! order of addition differs from slice to slice.

use super::coordinator::Coordinator;
use super::published::Published;
use super::{Hop, OnHop};
use crate::core::buffers::{Issued, Span, slice};
use crate::core::call::BufferShape;
use crate::core::context::CallContext;
use crate::core::failure::GroupResult;
use crate::core::reduce::{Sums, sum};
use events::Operation;
use std::ops::Range;

/// Bytes that travel together in a broadcast.
const PIECE: usize = 256 << 10;

/// Returns the bytes that `member` of `count` members sends.
pub(crate) fn sent(issued: &Issued, member: usize, count: usize) -> u64 {
    let signature = &issued.call.signature;
    let per_buffer = |&BufferShape { len, dtype }: &BufferShape| {
        let without = |index: usize| (len - slice(len, index % count, count).len()) as u64;
        let elements = match signature.operation {
            Operation::ReduceScatter => without(member),
            Operation::AllGather => without(member + 1),
            Operation::AllReduce => without(member) + without(member + 1),
            Operation::Broadcast if (member + 1) % count != signature.root => len as u64,
            _ => 0,
        };
        elements * dtype.size() as u64
    };
    if count == 1 { 0 } else { signature.shapes.iter().map(per_buffer).sum() }
}

/// One member's place in the ring.
pub(crate) struct Ring<'a> {
    pub(crate) all: &'a [Published],
    pub(crate) coordinator: &'a Coordinator<Published>,
    pub(crate) context: &'a CallContext<'a>,
}

/// How slices go around the ring once.
struct SlicePass {
    /// The number of its first step in the collective.
    first_step: usize,
    /// How far the slice of the first step is behind the member.
    behind: usize,
}

impl Ring<'_> {
    fn me(&self) -> usize {
        self.context.member
    }

    fn count(&self) -> usize {
        self.all.len()
    }

    fn left(&self) -> usize {
        (self.me() + self.count() - 1) % self.count()
    }

    /// Blocks until the left neighbour has finished `steps` steps.
    fn wait_for_step(&self, steps: usize) -> GroupResult<()> {
        self.coordinator.wait_for_step(self.context, self.left(), steps)
    }

    /// Moves this member's part of the data.
    ///
    /// # Safety
    /// As [`super::direct::run`].
    pub(crate) unsafe fn run(&self, hop: OnHop<'_>) -> GroupResult<()> {
        let signature = &self.context.call.signature;
        if self.count() == 1 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe {
            match signature.operation {
                Operation::ReduceScatter => self.reduce_scatter(hop),
                Operation::AllGather => self.all_gather(0, hop),
                Operation::AllReduce => {
                    self.reduce_scatter(hop)?;
                    self.all_gather(self.count() - 1, hop)
                }
                Operation::Broadcast => self.broadcast(signature.root, hop),
                operation => unreachable!("{operation} has no ring"),
            }
        }
    }

    /// At step s adds the left neighbour's partial sum of slice me − s − 2 to its own.
    ///
    /// # Safety
    /// As [`Ring::run`].
    unsafe fn reduce_scatter(&self, hop: OnHop<'_>) -> GroupResult<()> {
        let pass = SlicePass { first_step: 0, behind: 2 };
        // SAFETY: the left neighbour is done with the slice, and no other member reads ours before
        // the step is declared finished.
        self.pass_slices(pass, hop, |own, from, range| unsafe { add(own, from, range) })
    }

    /// At step s copies the left neighbour's slice me − s − 1. `first_step` is the number of its
    /// first step in the collective.
    ///
    /// # Safety
    /// As [`Ring::run`].
    unsafe fn all_gather(&self, first_step: usize, hop: OnHop<'_>) -> GroupResult<()> {
        let pass = SlicePass { first_step, behind: 1 };
        // SAFETY: the left neighbour's slice is final, and by the chain of steps no member still
        // reads ours.
        self.pass_slices(pass, hop, |own, from, range| unsafe { copy(own, from, range) })
    }

    /// Takes N−1 steps. At step s calls `take` for slice me − s − `behind` of every buffer, here
    /// and at the left neighbour.
    fn pass_slices(
        &self,
        SlicePass { first_step, behind }: SlicePass,
        hop: OnHop<'_>,
        take: impl Fn(&Span, &Span, Range<usize>),
    ) -> GroupResult<()> {
        let count = self.count();
        let [own, left] = [self.me(), self.left()].map(|member| &self.all[member].issued.spans);
        for step in 0..count - 1 {
            let chunk = (self.me() + 2 * count - step - behind) % count;
            self.wait_for_step(first_step + step)?;
            let mut bytes = 0;
            for (own, from) in own.iter().zip(left) {
                let range = slice(own.len(), chunk, count);
                bytes += own.bytes_of(&range);
                take(own, from, range);
            }
            hop(Hop { from: self.left(), to: self.me(), chunk, bytes });
            self.coordinator.advance(self.context);
        }
        Ok(())
    }

    /// Passes the root's buffers on, piece by piece.
    ///
    /// # Safety
    /// As [`Ring::run`].
    unsafe fn broadcast(&self, root: usize, hop: OnHop<'_>) -> GroupResult<()> {
        let mut steps = 0;
        for (index, own) in self.all[self.me()].issued.spans.iter().enumerate() {
            let size = PIECE / own.dtype().size();
            for start in (0..own.len()).step_by(size) {
                let piece = start..own.len().min(start + size);
                steps += 1;
                if self.me() != root {
                    self.wait_for_step(steps)?;
                    let from = &self.all[self.left()].issued.spans[index];
                    // SAFETY: the left neighbour's piece is final, and ours is not read before
                    // `advance`.
                    unsafe { copy(own, from, piece.clone()) };
                    let bytes = own.bytes_of(&piece);
                    hop(Hop { from: self.left(), to: self.me(), chunk: steps - 1, bytes });
                }
                self.coordinator.advance(self.context);
            }
        }
        Ok(())
    }
}

/// # Safety
/// No thread writes to `range` of `from`, and no other thread touches it in `own`.
unsafe fn copy(own: &Span, from: &Span, range: Range<usize>) {
    // SAFETY: the caller's promise; two buffers do not overlap.
    unsafe { own.write(range.clone()).copy_from_slice(from.read(range)) };
}

/// # Safety
/// As [`copy`].
unsafe fn add(own: &Span, from: &Span, range: Range<usize>) {
    // SAFETY: the caller's promise.
    let read = |rank: usize, block| unsafe { [own, from][rank].read(block) };
    // SAFETY: the caller's promise; the element types agree.
    unsafe { sum(own.dtype(), range, 2, read, Sums::Rounded(std::slice::from_ref(own))) };
}
