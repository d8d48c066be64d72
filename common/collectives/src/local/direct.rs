//! The direct algorithm: each rank does its share of the work straight on all ranks' buffers.
//!
//! Rank r answers for slice r of every buffer: it alone writes that slice of any rank's buffer, and
//! no other rank reads what it writes there. In a reduce-scatter it writes only its own buffer. So
//! ranks never wait for each other inside.

use super::Hop;
use super::published::Published;
use crate::core::buffers::{Span, slice};
use crate::core::reduce::{Adder, BLOCK, Summand};
use device::DType;
use events::Operation;
use half::{bf16, f16};
use std::ops::Range;

/// Bytes copied to one receiver before the next: the source stays in the first-level cache.
const PIECE: usize = 8 << 10;

/// Moves member `me`'s part of the data.
///
/// # Safety
/// All members have published calls that agree. Their buffers are alive, and are left to this
/// collective. Every member calls this at most once per collective.
pub(crate) unsafe fn run(all: &[Published], me: usize, hop: Hop<'_>) {
    let issued = &all[me].issued;
    if all.len() == 1 && issued.sums.is_empty() {
        return;
    }
    for index in 0..issued.call.signature.shapes.len() {
        // SAFETY: the caller's promise; slices of different members do not overlap.
        unsafe { run_one(Spans { all, index }, me, hop) };
    }
}

/// Every member's buffer number `index`.
#[derive(Clone, Copy)]
struct Spans<'a> {
    all: &'a [Published],
    index: usize,
}

impl Spans<'_> {
    fn count(&self) -> usize {
        self.all.len()
    }

    fn of(&self, member: usize) -> Span {
        self.all[member].issued.spans[self.index]
    }
}

/// Does for one buffer what [`run`] does for all.
///
/// # Safety
/// As [`run`].
unsafe fn run_one(spans: Spans<'_>, me: usize, hop: Hop<'_>) {
    let signature = &spans.all[me].issued.call.signature;
    let own = slice(spans.of(me).len(), me, spans.count());
    let bytes = spans.of(me).bytes_of(&own);
    let others = || (0..spans.count()).filter(|&member| member != me);
    match signature.operation {
        Operation::AllReduce => {
            others().for_each(|from| hop(from, me, me, bytes));
            // SAFETY: slice `me` of every buffer is this member's alone.
            unsafe { sum(spans, own, To::Buffers(0..spans.count())) };
            others().for_each(|to| hop(me, to, me, bytes));
        }
        Operation::ReduceScatter => {
            others().for_each(|from| hop(from, me, me, bytes));
            let place = spans.all[me].issued.sums.get(spans.index);
            let to = place.map_or(To::Buffers(me..me + 1), To::Exact);
            // SAFETY: no other member touches slice `me` of any buffer, or this member's places for
            // sums.
            unsafe { sum(spans, own, to) };
        }
        Operation::AllGather => {
            // SAFETY: as above.
            unsafe { spread(spans, own, me) };
            others().for_each(|to| hop(me, to, me, bytes));
        }
        Operation::Broadcast => {
            let root = signature.root;
            // SAFETY: as above. The root's buffer is only read.
            unsafe { spread(spans, own, root) };
            (0..spans.count()).filter(|&to| to != root).for_each(|to| hop(root, to, me, bytes));
        }
        _ => {}
    }
}

/// Where sums over all buffers go.
#[derive(Clone)]
enum To<'a> {
    /// Rounded, to where they were read, in the buffers of these members.
    Buffers(Range<usize>),
    /// Unrounded, to an f32 buffer.
    Exact(&'a Span),
}

/// Sums `range` over all buffers.
///
/// # Safety
/// No other thread touches `range` of any of the buffers, or the place for exact sums.
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
        // SAFETY: only this thread touches the block, and these borrows end before the writes
        // below.
        let read = |rank| unsafe { spans.of(rank).read::<T>(block.clone()) };
        match &to {
            To::Buffers(members) => {
                let sum = adder.sum(block.len(), spans.count(), &read);
                for member in members.clone() {
                    // SAFETY: only this thread touches the block.
                    unsafe { spans.of(member).write::<T>(block.clone()) }.copy_from_slice(sum);
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

/// Copies `range` of member `from`'s buffer into every other member's.
///
/// # Safety
/// No thread writes to `range` of the source, and no other thread touches `range` of the others.
unsafe fn spread(spans: Spans<'_>, range: Range<usize>, from: usize) {
    let step = PIECE / spans.of(from).dtype().size();
    for start in range.clone().step_by(step) {
        let block = start..range.end.min(start + step);
        // SAFETY: the caller's promise.
        let source = unsafe { spans.of(from).read_bytes(block.clone()) };
        for to in (0..spans.count()).filter(|&to| to != from) {
            // SAFETY: the caller's promise; another member's buffer is other memory.
            unsafe { spans.of(to).write_bytes(block.clone()) }.copy_from_slice(source);
        }
    }
}
