//! The direct algorithm: each rank does its share of the work straight on everybody's buffers.
//!
//! Rank r answers for slice r of every buffer: it alone writes that slice of anybody's buffer, and nobody reads there
//! what it writes. In a reduce-scatter it writes only its own. So ranks never wait for each other inside.

use super::data::{Contribution, Span, slice};
use super::reduce::{Adder, BLOCK, Summand};
use device::DType;
use events::Operation;
use half::{bf16, f16};
use std::ops::Range;

/// Bytes copied to one receiver before the next: the source stays in the first-level cache.
const PIECE: usize = 8 << 10;

/// Moves party `me`'s part of the data. `hop(from, to, chunk, bytes)` hears of each transfer. Returns the bytes that
/// `me` sent.
///
/// # Safety
/// All contributions agree; their buffers are alive and given to this collective; every party calls this at most once
/// per collective (of a message, only one of the two does).
pub(crate) unsafe fn run(
    all: &[Contribution],
    me: usize,
    hop: &mut dyn FnMut(usize, usize, usize, u64),
) -> u64 {
    let call = &all[me].call;
    if all.len() > 1 || !all[me].sums.is_empty() {
        for index in 0..call.shapes.len() {
            let spans = Spans { all, index };
            // SAFETY: the caller's promise; slices of different parties do not overlap.
            unsafe { part(spans, call.operation, call.peer, me, hop) };
        }
    }
    sent(&all[me], me, all.len())
}

/// Bytes that party `me` of `count` sends.
pub(crate) fn sent(contribution: &Contribution, me: usize, count: usize) -> u64 {
    let others = count as u64 - 1;
    let call = &contribution.call;
    let per_buffer = |&(len, dtype): &(usize, DType)| {
        let size = dtype.size() as u64;
        let (all, own) = (len as u64 * size, slice(len, me, count).len() as u64 * size);
        match call.operation {
            Operation::AllReduce => all - own + others * own,
            Operation::ReduceScatter => all - own,
            Operation::AllGather => others * own,
            Operation::Broadcast if call.peer == me => others * all,
            // Either party may ask: the protocol books a message on its sender.
            Operation::Send | Operation::Recv => all,
            _ => 0,
        }
    };
    call.shapes.iter().map(per_buffer).sum::<u64>() + others * contribution.bytes.len() as u64
}

/// Everybody's buffer number `index`.
#[derive(Clone, Copy)]
struct Spans<'a> {
    all: &'a [Contribution],
    index: usize,
}

impl Spans<'_> {
    fn count(&self) -> usize {
        self.all.len()
    }

    fn of(&self, party: usize) -> Span {
        self.all[party].spans[self.index]
    }
}

/// # Safety
/// As [`run`].
unsafe fn part(
    spans: Spans<'_>,
    operation: Operation,
    root: usize,
    me: usize,
    hop: &mut dyn FnMut(usize, usize, usize, u64),
) {
    let own = slice(spans.of(me).len(), me, spans.count());
    let bytes = spans.of(me).bytes_of(&own);
    let others = || (0..spans.count()).filter(|&party| party != me);
    match operation {
        Operation::AllReduce => {
            others().for_each(|from| hop(from, me, me, bytes));
            // SAFETY: slice `me` of every buffer is this party's alone.
            unsafe { sum(spans, own, To::Buffers(0..spans.count())) };
            others().for_each(|to| hop(me, to, me, bytes));
        }
        Operation::ReduceScatter => {
            others().for_each(|from| hop(from, me, me, bytes));
            let place = spans.all[me].sums.get(spans.index);
            let to = place.map_or(To::Buffers(me..me + 1), To::Exact);
            // SAFETY: nobody else touches slice `me` of any buffer, or this party's places for sums.
            unsafe { sum(spans, own, to) };
        }
        Operation::AllGather => {
            // SAFETY: as above.
            unsafe { spread(spans, own, me) };
            others().for_each(|to| hop(me, to, me, bytes));
        }
        Operation::Broadcast => {
            // SAFETY: as above. The root's buffer is only read.
            unsafe { spread(spans, own, root) };
            (0..spans.count()).filter(|&to| to != root).for_each(|to| hop(root, to, me, bytes));
        }
        Operation::Send | Operation::Recv => {
            // SAFETY: only one party runs this, and it moves everything.
            unsafe { spread(spans, 0..spans.of(0).len(), 0) };
            hop(0, 1, 0, spans.of(0).bytes_of(&(0..spans.of(0).len())));
        }
        Operation::Barrier | Operation::Scalars => {}
    }
}

/// Where sums over all buffers go.
#[derive(Clone)]
enum To<'a> {
    /// Rounded, to where they were read, in the buffers of these parties.
    Buffers(Range<usize>),
    /// As they are, to an f32 buffer of their own.
    Exact(&'a Span),
}

/// Sums `range` over all buffers.
///
/// # Safety
/// Nobody else touches `range` of any of the buffers, or a place of its own for the sums.
unsafe fn sum(spans: Spans<'_>, range: Range<usize>, to: To<'_>) {
    // SAFETY: the buffers agree in type; the rest is the caller's promise.
    unsafe {
        match spans.of(0).dtype() {
            DType::F32 => sum_as::<f32>(spans, range, to),
            DType::Bf16 => sum_as::<bf16>(spans, range, to),
            DType::F16 => sum_as::<f16>(spans, range, to),
            DType::U32 => unreachable!("checked when issued"),
        }
    }
}

/// # Safety
/// As [`sum`], and the elements are of type `T`.
unsafe fn sum_as<T: Summand>(spans: Spans<'_>, range: Range<usize>, to: To<'_>) {
    let mut adder = Adder::<T>::new();
    for start in range.clone().step_by(BLOCK) {
        let block = start..range.end.min(start + BLOCK);
        // SAFETY: only this thread touches the block, and these borrows end before the writes below.
        let read = |rank| unsafe { spans.of(rank).read::<T>(block.clone()) };
        match &to {
            To::Buffers(parties) => {
                let sum = adder.sum(block.len(), spans.count(), &read);
                for party in parties.clone() {
                    // SAFETY: only this thread touches the block.
                    unsafe { spans.of(party).write::<T>(block.clone()) }.copy_from_slice(sum);
                }
            }
            To::Exact(place) => {
                let sum = adder.exact(block.len(), spans.count(), &read);
                let at = block.start - range.start..block.end - range.start;
                // SAFETY: only this thread touches the place.
                unsafe { place.write::<f32>(at) }.copy_from_slice(sum);
            }
        }
    }
}

/// Copies `range` of party `from`'s buffer into everybody else's.
///
/// # Safety
/// Nobody writes to `range` of the source, and nobody else touches `range` of the others.
unsafe fn spread(spans: Spans<'_>, range: Range<usize>, from: usize) {
    let step = PIECE / spans.of(from).dtype().size();
    for start in range.clone().step_by(step) {
        let block = start..range.end.min(start + step);
        // SAFETY: the caller's promise.
        let source = unsafe { spans.of(from).read_bytes(block.clone()) };
        for to in (0..spans.count()).filter(|&to| to != from) {
            // SAFETY: the caller's promise; another party's buffer is other memory.
            unsafe { spans.of(to).write_bytes(block.clone()) }.copy_from_slice(source);
        }
    }
}
