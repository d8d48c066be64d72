//! What messages carry, and what this process does with it in its buffers.

use super::message::Message;
use super::payload::padded;
use crate::core::buffers::{Issued, Span, slice};
use crate::core::call::{Call, Signature};
use crate::core::context::CallContext;
use crate::core::reduce::{Adder, BLOCK, Summand};
use device::DType;
use events::Operation;
use half::{bf16, f16};
use std::ops::Range;

/// The part of every buffer that a message carries.
#[derive(Clone, Copy)]
pub(crate) enum Portion {
    Nothing,
    Slice(usize),
    Whole,
}

impl Portion {
    pub(crate) fn range(self, len: usize, members: usize) -> Range<usize> {
        match self {
            Portion::Nothing => 0..0,
            Portion::Slice(index) => slice(len, index, members),
            Portion::Whole => 0..len,
        }
    }

    /// What the contribution of member `from` for member `to` carries.
    pub(crate) fn contribution(signature: &Signature, from: usize, to: usize) -> Portion {
        match signature.operation {
            Operation::AllReduce | Operation::ReduceScatter => Portion::Slice(to),
            Operation::AllGather => Portion::Slice(from),
            Operation::Broadcast if signature.root == from => Portion::Whole,
            _ => Portion::Nothing,
        }
    }
}

/// A collective that this member carries out among `members`.
pub(crate) struct Exchange<'a> {
    pub(crate) context: CallContext<'a>,
    pub(crate) own: &'a Issued,
    pub(crate) members: usize,
}

impl Exchange<'_> {
    pub(crate) fn me(&self) -> usize {
        self.context.member
    }

    /// The other members, beginning with the next.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, members) = (self.me(), self.members);
        (1..members).map(move |step| (me + step) % members)
    }

    pub(crate) fn call(&self) -> &Call {
        self.context.call
    }

    pub(crate) fn signature(&self) -> &Signature {
        &self.context.call.signature
    }

    /// Returns the bytes of a message with `portion` of every buffer, padding included.
    pub(crate) fn size(&self, portion: Portion) -> usize {
        let piece = |span: &Span| padded(span.bytes_of(&portion.range(span.len(), self.members)) as usize);
        self.own.spans.iter().map(piece).sum()
    }
}

/// Sums this member's slice of every buffer over all members: rounded into the buffer, or exactly
/// into its place for sums.
pub(crate) fn add(exchange: &Exchange<'_>, contributions: &[(usize, Message)]) {
    let mut start = 0;
    for (index, span) in exchange.own.spans.iter().enumerate() {
        let sums = exchange.own.sums.get(index);
        let range = slice(span.len(), exchange.me(), exchange.members);
        // SAFETY: the buffers are left to this collective and their elements are of the type named;
        // sums are f32.
        unsafe {
            match span.dtype() {
                DType::F32 => add_as::<f32>(exchange, (span, sums), &range, contributions, start),
                DType::Bf16 => add_as::<bf16>(exchange, (span, sums), &range, contributions, start),
                DType::F16 => add_as::<f16>(exchange, (span, sums), &range, contributions, start),
                DType::U32 => unreachable!("checked when issued"),
            }
        }
        start += padded(span.bytes_of(&range) as usize);
    }
}

/// Does for one buffer what [`add`] does for all. `start`: where the slice begins in a message.
///
/// # Safety
/// No other thread touches the buffers behind `span`, whose elements are of type `T`, a float, and
/// `sums`, f32.
unsafe fn add_as<T: Summand>(
    exchange: &Exchange<'_>,
    (span, sums): (&Span, Option<&Span>),
    range: &Range<usize>,
    contributions: &[(usize, Message)],
    start: usize,
) {
    let (me, members) = (exchange.me(), exchange.members);
    let mut adder = Adder::<T>::new();
    for first in range.clone().step_by(BLOCK) {
        let block = first..range.end.min(first + BLOCK);
        let offset = start + (first - range.start) * size_of::<T>();
        let read = |member: usize| -> &[T] {
            if member == me {
                // SAFETY: the caller's promise; the borrow ends before the write below.
                return unsafe { span.read::<T>(block.clone()) };
            }
            let (_, message) = &contributions[if member < me { member } else { member - 1 }];
            // SAFETY: any bits are a float.
            unsafe { message.payload.elements::<T>(offset, block.len()) }
        };
        if let Some(sums) = sums {
            let at = block.start - range.start..block.end - range.start;
            let sum = adder.exact(block.len(), members, &read);
            // SAFETY: the caller's promise.
            unsafe { sums.write::<f32>(at) }.copy_from_slice(sum);
            continue;
        }
        let sum = adder.sum(block.len(), members, &read);
        // SAFETY: the caller's promise.
        unsafe { span.write::<T>(block.clone()) }.copy_from_slice(sum);
    }
}

/// Copies the payload of a message, `portion` of every buffer, to its place.
pub(crate) fn take(exchange: &Exchange<'_>, message: &Message, portion: Portion) {
    let mut start = 0;
    for span in &exchange.own.spans {
        let range = portion.range(span.len(), exchange.members);
        let len = span.bytes_of(&range) as usize;
        // SAFETY: the buffer is left to this collective, and only this thread touches it until
        // `wait` returns.
        unsafe { span.write_bytes(range) }.copy_from_slice(&message.payload.bytes()[start..start + len]);
        start += padded(len);
    }
}

/// Returns every member's bytes, in the order of members.
pub(crate) fn gathered(exchange: &Exchange<'_>, contributions: &[(usize, Message)]) -> Vec<Vec<u8>> {
    let bytes = |(_, message): &(usize, Message)| message.payload.bytes().to_vec();
    let mut all: Vec<Vec<u8>> = contributions.iter().map(bytes).collect();
    all.insert(exchange.me(), exchange.own.bytes.clone());
    all
}
