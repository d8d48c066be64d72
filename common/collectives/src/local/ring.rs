//! The ring algorithm: each rank receives from its left neighbour only.
//!
//! The bandwidth-optimal ring of Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations" (2009): in N−1 steps partial sums travel to their owner, in N−1 more the sums travel on to everybody.
//! A rank may take step s + 1 once its left neighbour has finished step s. Through the chain of neighbours this also
//! says that its right neighbour has read whatever the step overwrites. Partial sums are rounded to the element type at
//! every hop, and the order of addition differs from slice to slice.

use super::data::{Contribution, Span, slice};
use super::reduce::{Adder, BLOCK, Summand};
use device::DType;
use events::Operation;
use half::{bf16, f16};
use std::ops::Range;

/// Bytes that travel together in a broadcast.
const PIECE: usize = 256 << 10;

/// What a party needs to know of its neighbours.
pub(crate) trait Neighbours<E> {
    /// Waits until the left neighbour has finished `steps` steps.
    fn follow(&mut self, left: usize, steps: usize) -> Result<(), E>;
    /// Says that one more step is finished here.
    fn advance(&mut self);
    /// Hears of each transfer.
    fn hop(&mut self, from: usize, to: usize, chunk: usize, bytes: u64);
}

/// Bytes that party `me` of `count` sends to its right neighbour.
pub(crate) fn sent(contribution: &Contribution, me: usize, count: usize) -> u64 {
    let call = &contribution.call;
    let per_buffer = |&(len, dtype): &(usize, DType)| {
        let without = |index: usize| (len - slice(len, index % count, count).len()) as u64;
        let elements = match call.operation {
            Operation::ReduceScatter => without(me),
            Operation::AllGather => without(me + 1),
            Operation::AllReduce => without(me) + without(me + 1),
            Operation::Broadcast if (me + 1) % count != call.peer => len as u64,
            _ => 0,
        };
        elements * dtype.size() as u64
    };
    if count == 1 { 0 } else { call.shapes.iter().map(per_buffer).sum() }
}

/// One party's place in the ring.
pub(crate) struct Ring<'a> {
    pub(crate) all: &'a [Contribution],
    pub(crate) me: usize,
}

impl Ring<'_> {
    fn count(&self) -> usize {
        self.all.len()
    }

    fn left(&self) -> usize {
        (self.me + self.count() - 1) % self.count()
    }

    /// Moves this party's part of the data.
    ///
    /// # Safety
    /// As [`super::direct::run`], and `neighbours` keeps its word.
    pub(crate) unsafe fn run<E>(&self, neighbours: &mut impl Neighbours<E>) -> Result<(), E> {
        let call = &self.all[self.me].call;
        if self.count() == 1 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe {
            match call.operation {
                Operation::ReduceScatter => self.reduce_scatter(neighbours),
                Operation::AllGather => self.all_gather(0, neighbours),
                Operation::AllReduce => {
                    self.reduce_scatter(neighbours)?;
                    self.all_gather(self.count() - 1, neighbours)
                }
                Operation::Broadcast => self.broadcast(call.peer, neighbours),
                operation => unreachable!("{operation} has no ring"),
            }
        }
    }

    /// At step s adds the left neighbour's partial sum of slice me − s − 2 to its own.
    ///
    /// # Safety
    /// As [`Ring::run`].
    unsafe fn reduce_scatter<E>(&self, neighbours: &mut impl Neighbours<E>) -> Result<(), E> {
        let count = self.count();
        for step in 0..count - 1 {
            let chunk = (self.me + 2 * count - step - 2) % count;
            neighbours.follow(self.left(), step)?;
            // SAFETY: the left neighbour is done with the chunk, and nobody else reads ours before `advance`.
            let bytes = self.chunks(chunk, |own, from, range| unsafe { add(own, from, range) });
            neighbours.hop(self.left(), self.me, chunk, bytes);
            neighbours.advance();
        }
        Ok(())
    }

    /// At step s copies the left neighbour's slice me − s − 1; `before` steps of this collective came earlier.
    ///
    /// # Safety
    /// As [`Ring::run`].
    unsafe fn all_gather<E>(&self, before: usize, neighbours: &mut impl Neighbours<E>) -> Result<(), E> {
        let count = self.count();
        for step in 0..count - 1 {
            let chunk = (self.me + count - step - 1) % count;
            neighbours.follow(self.left(), before + step)?;
            // SAFETY: the left neighbour's chunk is final, and by the chain of steps nobody still reads ours.
            let bytes = self.chunks(chunk, |own, from, range| unsafe { copy(own, from, range) });
            neighbours.hop(self.left(), self.me, chunk, bytes);
            neighbours.advance();
        }
        Ok(())
    }

    /// Passes the root's buffers on, piece by piece.
    ///
    /// # Safety
    /// As [`Ring::run`].
    unsafe fn broadcast<E>(&self, root: usize, neighbours: &mut impl Neighbours<E>) -> Result<(), E> {
        let mut steps = 0;
        for (index, own) in self.all[self.me].spans.iter().enumerate() {
            let size = PIECE / own.dtype().size();
            for start in (0..own.len()).step_by(size) {
                let piece = start..own.len().min(start + size);
                steps += 1;
                if self.me != root {
                    neighbours.follow(self.left(), steps)?;
                    let from = &self.all[self.left()].spans[index];
                    // SAFETY: the left neighbour's piece is final, and ours is not read before `advance`.
                    unsafe { copy(own, from, piece.clone()) };
                    neighbours.hop(self.left(), self.me, steps - 1, own.bytes_of(&piece));
                }
                neighbours.advance();
            }
        }
        Ok(())
    }

    /// Visits one slice of every buffer, here and at the left neighbour; returns its bytes.
    fn chunks(&self, chunk: usize, mut visit: impl FnMut(&Span, &Span, Range<usize>)) -> u64 {
        let mut bytes = 0;
        for (own, from) in self.all[self.me].spans.iter().zip(&self.all[self.left()].spans) {
            let range = slice(own.len(), chunk, self.count());
            bytes += own.bytes_of(&range);
            visit(own, from, range);
        }
        bytes
    }
}

/// # Safety
/// Nobody writes to `range` of `from`, and nobody else touches it in `own`.
unsafe fn copy(own: &Span, from: &Span, range: Range<usize>) {
    // SAFETY: the caller's promise; two buffers do not overlap.
    unsafe { own.write_bytes(range.clone()).copy_from_slice(from.read_bytes(range)) };
}

/// # Safety
/// As [`copy`].
unsafe fn add(own: &Span, from: &Span, range: Range<usize>) {
    // SAFETY: the caller's promise; the element types agree.
    unsafe {
        match own.dtype() {
            DType::F32 => add_as::<f32>(own, from, range),
            DType::Bf16 => add_as::<bf16>(own, from, range),
            DType::F16 => add_as::<f16>(own, from, range),
            DType::U32 => unreachable!("checked when issued"),
        }
    }
}

/// # Safety
/// As [`copy`], and the elements are of type `T`.
unsafe fn add_as<T: Summand>(own: &Span, from: &Span, range: Range<usize>) {
    let mut adder = Adder::<T>::new();
    for start in range.clone().step_by(BLOCK) {
        let block = start..range.end.min(start + BLOCK);
        // SAFETY: the caller's promise; these borrows end before the write below.
        let read = |rank| unsafe { if rank == 0 { own } else { from }.read::<T>(block.clone()) };
        let sum = adder.sum(block.len(), 2, &read);
        // SAFETY: the caller's promise.
        unsafe { own.write::<T>(block.clone()) }.copy_from_slice(sum);
    }
}
