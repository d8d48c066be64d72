//! What messages carry, and what becomes of it in this process's buffers.

use super::message::Message;
use super::payload::padded;
use crate::backend::{Call, Watch};
use crate::local::data::{Contribution, Span, slice};
use crate::local::deadline::Patience;
use crate::local::reduce::{Adder, BLOCK, Summand};
use crate::local::ticket::Ticket;
use device::DType;
use events::Operation;
use half::{bf16, f16};
use std::ops::Range;

/// What of every buffer a message carries.
#[derive(Clone, Copy)]
pub(crate) enum Portion {
    Nothing,
    Slice(usize),
    Whole,
}

impl Portion {
    pub(crate) fn range(self, len: usize, parties: usize) -> Range<usize> {
        match self {
            Portion::Nothing => 0..0,
            Portion::Slice(index) => slice(len, index, parties),
            Portion::Whole => 0..len,
        }
    }

    /// What the contribution of party `from` for party `to` carries.
    pub(crate) fn contribution(call: &Call, from: usize, to: usize) -> Portion {
        match call.operation {
            Operation::AllReduce | Operation::ReduceScatter => Portion::Slice(to),
            Operation::AllGather => Portion::Slice(from),
            Operation::Broadcast if call.peer == from => Portion::Whole,
            // Of a message, party 0 is the sender.
            Operation::Send | Operation::Recv if from == 0 => Portion::Whole,
            _ => Portion::Nothing,
        }
    }
}

/// A collective that this member works on.
pub(crate) struct Work<'a> {
    pub(crate) ticket: Ticket,
    pub(crate) own: &'a Contribution,
    pub(crate) parties: usize,
    pub(crate) watch: &'a Watch,
    pub(crate) patience: &'a Patience<'a>,
}

impl Work<'_> {
    pub(crate) fn me(&self) -> usize {
        self.ticket.party()
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, parties) = (self.me(), self.parties);
        (1..parties).map(move |step| (me + step) % parties)
    }

    pub(crate) fn call(&self) -> &Call {
        &self.own.call
    }

    /// Bytes of a message with `part` of every buffer, padding included.
    pub(crate) fn size(&self, part: Portion) -> usize {
        let piece = |span: &Span| padded(span.bytes_of(&part.range(span.len(), self.parties)) as usize);
        self.own.spans.iter().map(piece).sum()
    }
}

/// Sums this member's slice of every buffer over all parties: into the buffer, or as it is before rounding to its place.
pub(crate) fn add(work: &Work<'_>, contributions: &[(usize, Message)]) {
    let mut start = 0;
    for (index, span) in work.own.spans.iter().enumerate() {
        let sums = work.own.sums.get(index);
        let range = slice(span.len(), work.me(), work.parties);
        // SAFETY: the buffers were given to this collective and their elements are of the type named; sums are f32.
        unsafe {
            match span.dtype() {
                DType::F32 => add_as::<f32>(work, (span, sums), &range, contributions, start),
                DType::Bf16 => add_as::<bf16>(work, (span, sums), &range, contributions, start),
                DType::F16 => add_as::<f16>(work, (span, sums), &range, contributions, start),
                DType::U32 => unreachable!("checked when issued"),
            }
        }
        start += padded(span.bytes_of(&range) as usize);
    }
}

/// `start`: where the slice begins in a message.
///
/// # Safety
/// Nobody else touches the buffers behind `span`, whose elements are of type `T`, a float, and `sums`, f32.
unsafe fn add_as<T: Summand>(
    work: &Work<'_>,
    (span, sums): (&Span, Option<&Span>),
    range: &Range<usize>,
    contributions: &[(usize, Message)],
    start: usize,
) {
    let me = work.me();
    let mut adder = Adder::<T>::new();
    for first in range.clone().step_by(BLOCK) {
        let block = first..range.end.min(first + BLOCK);
        let offset = start + (first - range.start) * size_of::<T>();
        let read = |party: usize| -> &[T] {
            if party == me {
                // SAFETY: the caller's promise; the borrow ends before the write below.
                return unsafe { span.read::<T>(block.clone()) };
            }
            let (_, message) = &contributions[if party < me { party } else { party - 1 }];
            // SAFETY: any bits are a float.
            unsafe { message.payload.elements::<T>(offset, block.len()) }
        };
        if let Some(sums) = sums {
            let at = block.start - range.start..block.end - range.start;
            let sum = adder.exact(block.len(), work.parties, &read);
            // SAFETY: the caller's promise.
            unsafe { sums.write::<f32>(at) }.copy_from_slice(sum);
            continue;
        }
        let sum = adder.sum(block.len(), work.parties, &read);
        // SAFETY: the caller's promise.
        unsafe { span.write::<T>(block.clone()) }.copy_from_slice(sum);
    }
}

/// Copies what a message brings, `part` of every buffer, to its place.
pub(crate) fn take(work: &Work<'_>, message: &Message, part: Portion) {
    let mut start = 0;
    for span in &work.own.spans {
        let range = part.range(span.len(), work.parties);
        let len = span.bytes_of(&range) as usize;
        // SAFETY: the buffer was given to this collective, and only this thread touches it until `wait` returns.
        unsafe { span.write_bytes(range) }.copy_from_slice(&message.payload.bytes()[start..start + len]);
        start += padded(len);
    }
}

/// Everybody's bytes, in the order of parties.
pub(crate) fn gathered(work: &Work<'_>, contributions: &[(usize, Message)]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> =
        contributions.iter().map(|(_, message)| message.payload.bytes().to_vec()).collect();
    all.insert(work.me(), work.own.bytes.clone());
    all
}
