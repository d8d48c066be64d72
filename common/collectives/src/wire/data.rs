//! The data in messages, and how this process applies them to its buffers.

use super::message::Message;
use super::payload::padded;
use crate::core::buffers::{Issued, Span, slice};
use crate::core::call::{Call, Signature};
use crate::core::context::CallContext;
use crate::core::reduce::{Sums, sum};
use events::Operation;
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

    /// Returns the part that the contribution of member `from` for member `to` carries.
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

    /// Returns the other members, beginning with the next.
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
    let (me, members) = (exchange.me(), exchange.members);
    // Where the slice begins in a message.
    let mut start = 0;
    for (index, span) in exchange.own.spans.iter().enumerate() {
        let range = slice(span.len(), me, members);
        let read = |member: usize, block: Range<usize>| {
            if member == me {
                // SAFETY: the buffer is left to this collective, and only this thread touches it
                // until `wait` returns.
                return unsafe { span.read(block) };
            }
            let (_, message) = &contributions[if member < me { member } else { member - 1 }];
            let [first, end] = [block.start, block.end]
                .map(|element| start + span.bytes_of(&(range.start..element)) as usize);
            &message.payload.bytes()[first..end]
        };
        let rounded = Sums::Rounded(std::slice::from_ref(span));
        let to = exchange.own.sums.get(index).map_or(rounded, Sums::Exact);
        // SAFETY: as above; so is the place for sums.
        unsafe { sum(span.dtype(), range.clone(), members, read, to) };
        start += padded(span.bytes_of(&range) as usize);
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
        unsafe { span.write(range) }.copy_from_slice(&message.payload.bytes()[start..start + len]);
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
