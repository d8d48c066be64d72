//! Messages between processes.
//!
//! A message is a prefix of [`PREFIX`] bytes, a head (a [`Head`] in postcard's encoding, padded to
//! [`ALIGN`]) and a payload, the data of buffers. The prefix says how long
//! the other two are.

use super::payload::{ALIGN, Payload, padded};
use crate::core::call::Signature;
use crate::core::failure::Failure;
use events::Operation;
use serde::{Deserialize, Serialize};

/// First bytes of every message.
const MAGIC: [u8; 4] = *b"ZWIR";
/// Bytes of a prefix: [`MAGIC`], the head's length (32 bits) and the payload's (64 bits), little
/// endian.
pub(crate) const PREFIX: usize = 16;
/// Longest head; a longer one is damage.
const MAX_HEAD: u32 = 16 << 20;
/// Most bytes that one rank contributes to scalars; more are damage.
pub(crate) const MAX_SCALARS: usize = 1 << 30;

/// Which message of which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) group: u64,
    pub(crate) sequence: u64,
    pub(crate) phase: Phase,
}

/// When within a collective a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// At issue: the call, and everything that can be sent at once.
    Contribution,
    /// Once all contributions have arrived: the sums of an all-reduce.
    Result,
}

/// The head of a message; data follow as its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Head {
    /// The sender's part of a collective for this receiver.
    Data { address: Address, signature: Signature },
    /// A group has failed.
    Failed { group: u64, failure: Failure },
    /// The sender takes no further part in the group.
    Departed { group: u64 },
    /// The number of steps that the sender has taken in an external engine.
    Steps { group: u64, steps: u64 },
    /// The sender has been waiting for a rank for a while; `None`: it no longer waits.
    Waits { rank: Option<u32> },
}

impl Head {
    /// Returns the most bytes that a payload after this head can have.
    fn longest_payload(&self) -> Option<usize> {
        match self {
            Head::Data { signature, .. } if signature.operation == Operation::Scalars => {
                Some(padded(MAX_SCALARS))
            }
            Head::Data { signature, .. } => signature.shapes.iter().try_fold(0_usize, |sum, shape| {
                sum.checked_add(shape.len.checked_mul(shape.dtype.size())?.checked_next_multiple_of(ALIGN)?)
            }),
            _ => Some(0),
        }
    }
}

/// One rank's part of a collective, as it has arrived.
pub(crate) struct Message {
    /// The call that the sender issued.
    pub(crate) signature: Signature,
    /// Bytes that the sender announced.
    pub(crate) announced: usize,
    /// Those bytes; empty if they are more than this rank's call expects.
    pub(crate) payload: Payload,
}

/// Lengths in bytes, as a prefix states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// With padding.
    pub(crate) head: usize,
    pub(crate) payload: usize,
}

/// Returns the bytes of a prefix and a head, before a payload of `payload` bytes.
pub(crate) fn encode(head: &Head, payload: usize) -> Vec<u8> {
    // Serialising these types into a vector cannot fail.
    let mut bytes = postcard::to_extend(head, vec![0; PREFIX]).unwrap_or_default();
    bytes.resize(padded(bytes.len()), 0);
    let length = (bytes.len() - PREFIX) as u32;
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[8..PREFIX].copy_from_slice(&(payload as u64).to_le_bytes());
    bytes
}

/// Reads a prefix; `None` if the bytes are not one.
pub(crate) fn lengths(bytes: &[u8; PREFIX]) -> Option<Lengths> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let (head, payload) = rest.split_first_chunk::<4>()?;
    let head = u32::from_le_bytes(*head);
    let payload = usize::try_from(u64::from_le_bytes(*payload.first_chunk()?)).ok()?;
    (*magic == MAGIC && head <= MAX_HEAD).then_some(Lengths { head: head as usize, payload })
}

/// Reads a head that announces `payload` bytes; `None` if the bytes are not one, or if no payload
/// of it can be that long.
pub(crate) fn decode(bytes: &[u8], payload: usize) -> Option<Head> {
    let (head, _) = postcard::take_from_bytes::<Head>(bytes).ok()?;
    (payload <= head.longest_payload()?).then_some(head)
}

#[cfg(test)]
mod tests;
