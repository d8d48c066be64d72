//! What processes send each other, as bytes. Little endian.
//!
//! A message is a head of [`HEAD`] bytes, a note (the description of a call, or a failure in words; padded to
//! [`ALIGN`](super::payload::ALIGN)) and the payload of a message.

use super::payload::{Payload, padded};
use crate::backend::Call;
use crate::local::ticket::{Cause, Failure, Lane};
use device::DType;
use events::Operation;
use std::time::Duration;

/// Bytes of a head.
pub(crate) const HEAD: usize = 48;

/// Longest note; a longer one is damage.
const MAX_NOTE: u32 = 16 << 20;

/// Which message of which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) group: u64,
    pub(crate) lane: Lane,
    pub(crate) sequence: u64,
    pub(crate) phase: Phase,
    /// The sender's rank in the world.
    pub(crate) from: u32,
}

/// When within a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// What is issued, and everything that can be sent at once.
    Contribution,
    /// What follows from everybody's contributions: the sums of an all-reduce.
    Result,
}

/// One rank's part of a collective, for one receiver.
pub(crate) struct Message {
    /// What the sender issued.
    pub(crate) call: Call,
    pub(crate) payload: Payload,
}

/// What a head announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message.
    Message(Address),
    /// A group has failed; the note says why.
    Failed { group: u64 },
    /// The sender takes part in nothing more.
    Departed { group: u64 },
    /// How many collectives the sender has handed in to what moves data elsewhere.
    Report { group: u64, count: u64 },
    /// The sender has waited for a rank for a while; with none it waits no longer.
    Waits { rank: Option<u32> },
}

/// A head, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// Bytes of the note, with padding.
    pub(crate) note: usize,
    /// Bytes of the payload.
    pub(crate) payload: usize,
}

/// The bytes of a head and its note.
pub(crate) fn encode(kind: Kind, mut note: Vec<u8>, payload: usize) -> Vec<u8> {
    note.resize(padded(note.len()), 0);
    let mut bytes = Vec::with_capacity(HEAD + note.len());
    let nowhere =
        |group, sequence| Address { group, lane: Lane::Group, sequence, phase: Phase::Contribution, from: 0 };
    let (tag, address) = match kind {
        Kind::Message(address) => (b'L', address),
        Kind::Failed { group } => (b'F', nowhere(group, 0)),
        Kind::Departed { group } => (b'D', nowhere(group, 0)),
        Kind::Report { group, count } => (b'R', nowhere(group, count)),
        Kind::Waits { rank } => (b'W', nowhere(u64::from(rank.is_some()), rank.unwrap_or(0).into())),
    };
    let (lane, from, to) = match address.lane {
        Lane::Group => (0, 0, 0),
        Lane::Pair { from, to } => (1, from as u32, to as u32),
    };
    bytes.extend([tag, address.phase as u8, lane, 0]);
    [address.from, from, to].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    [address.group, address.sequence].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend((note.len() as u64).to_le_bytes());
    bytes.extend((payload as u64).to_le_bytes());
    bytes.extend(note);
    bytes
}

/// Reads a head; `None` if it is none.
pub(crate) fn decode(bytes: &[u8; HEAD]) -> Option<Head> {
    let mut reader = Reader(bytes);
    let [tag, phase, lane, _] = reader.array()?;
    let (sender, from, to) = (reader.u32()?, reader.u32()? as usize, reader.u32()? as usize);
    let (group, sequence) = (reader.u64()?, reader.u64()?);
    let (note, payload) = (reader.u64()?, reader.u64()?);
    let phase = if phase == 0 { Phase::Contribution } else { Phase::Result };
    let lane = if lane == 0 { Lane::Group } else { Lane::Pair { from, to } };
    let kind = match tag {
        b'L' => Kind::Message(Address { group, lane, sequence, phase, from: sender }),
        b'F' => Kind::Failed { group },
        b'D' => Kind::Departed { group },
        b'R' => Kind::Report { group, count: sequence },
        b'W' => Kind::Waits { rank: (group != 0).then_some(sequence as u32) },
        _ => return None,
    };
    let sane = note <= u64::from(MAX_NOTE);
    sane.then_some(Head { kind, note: note as usize, payload: usize::try_from(payload).ok()? })
}

/// A call as a note.
pub(crate) fn describe(call: &Call) -> Vec<u8> {
    let mut bytes = vec![call.operation.index() as u8, u8::from(call.elsewhere)];
    [call.first_unit, call.units].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend((call.peer as u32).to_le_bytes());
    bytes.extend((call.shapes.len() as u32).to_le_bytes());
    for &(len, dtype) in &call.shapes {
        bytes.extend((len as u64).to_le_bytes());
        bytes.push(DTYPES.iter().position(|&d| d == dtype).unwrap_or(0) as u8);
    }
    bytes
}

const DTYPES: [DType; 4] = [DType::F32, DType::Bf16, DType::F16, DType::U32];

/// Reads [`describe`]'s note.
pub(crate) fn call(note: &[u8], sequence: u64) -> Option<Call> {
    let mut reader = Reader(note);
    let [operation, elsewhere] = reader.array()?;
    let [first_unit, units] = [reader.u16()?, reader.u16()?];
    let operation = *Operation::ALL.get(usize::from(operation))?;
    let (peer, count) = (reader.u32()? as usize, reader.u32()?);
    let mut shapes = Vec::new();
    for _ in 0..count {
        let len = reader.u64()? as usize;
        let [dtype] = reader.array()?;
        shapes.push((len, *DTYPES.get(usize::from(dtype))?));
    }
    let elsewhere = elsewhere != 0;
    Some(Call { operation, sequence, peer, shapes, first_unit, units, elsewhere, ..Call::none() })
}

/// A failure as a note.
pub(crate) fn failure_note(failure: &Failure) -> Vec<u8> {
    let mut bytes = failure.culprit.to_le_bytes().to_vec();
    match &failure.cause {
        Cause::Poisoned { during, reason } => {
            bytes.push(0);
            [during, reason].iter().for_each(|text| put_text(&mut bytes, text));
        }
        Cause::Late { reporter, operation, sequence, issued, waited } => {
            bytes.extend([1, operation.index() as u8, u8::from(*issued)]);
            bytes.extend(reporter.to_le_bytes());
            bytes.extend(sequence.to_le_bytes());
            bytes.extend((waited.as_nanos() as u64).to_le_bytes());
        }
        Cause::Departed => bytes.push(2),
        Cause::Mismatch { reference, sequence, expected, theirs } => {
            bytes.push(3);
            bytes.extend(reference.to_le_bytes());
            bytes.extend(sequence.to_le_bytes());
            [expected, theirs].iter().for_each(|text| put_text(&mut bytes, text));
        }
        Cause::Unknown { during, reason } => {
            bytes.push(4);
            [during, reason].iter().for_each(|text| put_text(&mut bytes, text));
        }
    }
    bytes
}

/// Reads [`failure_note`]'s note.
pub(crate) fn failure(note: &[u8]) -> Option<Failure> {
    let mut reader = Reader(note);
    let culprit = reader.u32()?;
    let [tag] = reader.array()?;
    let cause = match tag {
        0 => Cause::Poisoned { during: reader.text()?, reason: reader.text()? },
        1 => {
            let [operation, issued] = reader.array()?;
            let operation = *Operation::ALL.get(usize::from(operation))?;
            let (reporter, sequence) = (reader.u32()?, reader.u64()?);
            let waited = Duration::from_nanos(reader.u64()?);
            Cause::Late { reporter, operation, sequence, issued: issued != 0, waited }
        }
        2 => Cause::Departed,
        3 => {
            let (reference, sequence) = (reader.u32()?, reader.u64()?);
            Cause::Mismatch { reference, sequence, expected: reader.text()?, theirs: reader.text()? }
        }
        4 => Cause::Unknown { during: reader.text()?, reason: reader.text()? },
        _ => return None,
    };
    Some(Failure { culprit, cause })
}

/// Appends a text and its length.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Takes numbers and texts off the front of bytes; `None` where they end too early.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        let len = self.u32()? as usize;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn heads_come_back_as_they_were() {
        let address = Address {
            group: u64::MAX - 3,
            lane: Lane::Pair { from: 3, to: 1 },
            sequence: 1 << 40,
            phase: Phase::Result,
            from: 3,
        };
        let report = Kind::Report { group: 3, count: 1 << 50 };
        let (message, failed, departed) =
            (Kind::Message(address), Kind::Failed { group: 9 }, Kind::Departed { group: 0 });
        let [waits, waits_no_longer] = [Some(0), None].map(|rank| Kind::Waits { rank });
        for kind in [message, failed, departed, report, waits, waits_no_longer] {
            let bytes = encode(kind, vec![1, 2, 3], 77);
            let head = decode(bytes[..HEAD].try_into().unwrap()).unwrap();
            assert_eq!(head, Head { kind, note: 8, payload: 77 });
            assert_eq!(bytes[HEAD..], [1, 2, 3, 0, 0, 0, 0, 0]);
        }
        assert_eq!(decode(&[0; HEAD]), None);
    }

    #[test]
    fn failures_come_back_as_they_were() {
        let (during, reason) = ("step 3".to_string(), "naïve".to_string());
        let (expected, theirs) = ("barrier".to_string(), "scalars".to_string());
        let (operation, waited) = (Operation::AllGather, Duration::from_millis(1500));
        for cause in [
            Cause::Poisoned { during: during.clone(), reason: reason.clone() },
            Cause::Unknown { during, reason },
            Cause::Late { reporter: 3, operation, sequence: 8, issued: true, waited },
            Cause::Departed,
            Cause::Mismatch { reference: 1, sequence: 5, expected, theirs },
        ] {
            let there = Failure { culprit: 7, cause };
            let note = failure_note(&there);
            assert_eq!(failure(&note), Some(there));
            assert_eq!(failure(&note[..note.len() - 1]), None, "a note that ends early is none");
        }
    }
}
