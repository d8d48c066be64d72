//! Frames: the messages of a recording or a socket, with checksums.
//!
//! A stream begins with [`MAGIC`] and the format's version (u16). Frames follow: kind (u8), length
//! of the payload (u32), low half of the CRC-32 of these two (u16), CRC-32 of the payload (u32),
//! payload (postcard). All numbers are little endian. The checksum of the first two fields
//! distinguishes a damaged length from a file that ends early.

use crate::amount::bounded;
use crate::event::Event;
use crate::header::RunHeader;
use crate::history::CatchUp;
use crate::pace::Control;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read};

/// The first bytes of every stream. They are not text, and a program that converts line endings
/// damages them detectably.
pub const MAGIC: [u8; 8] = *b"\x89ZERO\r\n\x1a";

/// The version of the format that this crate writes. Version 3 records more about transfers between
/// places; no recording of version 2 has transfers. Since version 4 the units of a collective need
/// not be neighbours. Since version 5 a pass may be the CPU's addition of gradients.
pub const VERSION: u16 = 5;

/// The oldest version that this crate reads.
const OLDEST: u16 = 2;

/// The length of [`MAGIC`] and the version, in bytes.
pub const PREAMBLE: usize = MAGIC.len() + 2;

const FRAME_HEAD: usize = 11;

/// The longest valid payload, in bytes. A greater length is treated as damage.
const MAX_PAYLOAD: usize = 64 << 20;

/// The longest payload of a viewer's request, in bytes.
const MAX_REQUEST: usize = 64;

/// Events that the collector took at one time, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventBatch {
    /// The number of events lost since the run started because a rank's ring was full.
    #[serde(deserialize_with = "bounded")]
    pub dropped: u64,
    /// The events.
    pub events: Vec<Event>,
}

/// One message of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The run's header. Always the first message.
    Header(Box<RunHeader>),
    /// The run's current state, for a watcher that has joined late or fallen behind.
    CatchUp(Box<CatchUp>),
    /// The next events.
    Batch(EventBatch),
    /// The run is over; no message follows.
    End,
    /// A viewer's request; from the run to viewers, the pace that one of them has asked for.
    Control(Control),
}

/// Damage to a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The stream does not begin with [`MAGIC`].
    #[error("this is not a recording of a run: it does not begin with the recording's signature")]
    Foreign,
    /// The stream has another version of the format.
    #[error(
        "written in version {found} of the recording format; this program reads versions {OLDEST} to {VERSION}; \
         use the release that wrote it"
    )]
    Version {
        /// The version found.
        found: u16,
    },
    /// A frame's checksum, kind or content is wrong.
    #[error("damaged at byte {offset}: {problem}")]
    Corrupt {
        /// Offset of the frame in the stream, in bytes.
        offset: u64,
        /// The defect of the frame.
        problem: String,
    },
}

/// Returns the first bytes of a stream.
pub fn preamble() -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Checks the first bytes of a stream.
pub(crate) fn check_preamble(bytes: &[u8]) -> Result<(), FrameError> {
    if bytes.len() < PREAMBLE || bytes[..MAGIC.len()] != MAGIC {
        return Err(FrameError::Foreign);
    }
    match u16::from_le_bytes([bytes[MAGIC.len()], bytes[MAGIC.len() + 1]]) {
        OLDEST..=VERSION => Ok(()),
        found => Err(FrameError::Version { found }),
    }
}

/// Appends `message` as a frame.
pub fn encode(message: &Message, into: &mut Vec<u8>) {
    match message {
        Message::Header(header) => {
            frame(b'H', &(header.as_ref(), &header.theory, &header.offload, &header.choices), into)
        }
        Message::CatchUp(catch_up) => frame(b'C', catch_up.as_ref(), into),
        Message::Batch(batch) => frame(b'B', batch, into),
        Message::End => frame(b'E', &(), into),
        Message::Control(control) => frame(b'P', control, into),
    }
}

/// Returns `message` as a frame.
pub(crate) fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

fn frame<T: Serialize>(kind: u8, content: &T, into: &mut Vec<u8>) {
    // Writing to a vector cannot fail, and postcard can encode all of these types.
    let payload = postcard::to_extend(content, Vec::new()).unwrap_or_default();
    let start = into.len();
    into.push(kind);
    into.extend((payload.len() as u32).to_le_bytes());
    into.extend((crc32fast::hash(&into[start..]) as u16).to_le_bytes());
    into.extend(crc32fast::hash(&payload).to_le_bytes());
    into.extend(payload);
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Returns the length of the frame that begins `bytes`, content included. `None` if its head is
/// incomplete or damaged.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..FRAME_HEAD).filter(|head| b"HCBEP".contains(&head[0]))?;
    let content = word(&head[1..5]) as usize;
    let head_sum = (crc32fast::hash(&head[..5]) as u16).to_le_bytes();
    (head_sum == head[5..7] && content <= MAX_PAYLOAD).then_some(FRAME_HEAD + content)
}

/// A complete frame within a longer buffer, its checksums verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawFrame<'a> {
    kind: u8,
    payload: &'a [u8],
    offset: u64,
}

impl<'a> RawFrame<'a> {
    /// Returns the frame at the start of `bytes`, which begin at `offset` in the stream. Returns
    /// `None` if the frame is not complete yet.
    pub(crate) fn first(bytes: &'a [u8], offset: u64) -> Result<Option<Self>, FrameError> {
        if bytes.len() < FRAME_HEAD {
            return Ok(None);
        }
        let end = length(bytes).ok_or_else(|| corrupt(offset, "no frame begins here"))?;
        let Some(payload) = bytes.get(FRAME_HEAD..end) else { return Ok(None) };
        if crc32fast::hash(payload) != word(&bytes[7..FRAME_HEAD]) {
            return Err(corrupt(offset, "the checksum does not match the content"));
        }
        Ok(Some(RawFrame { kind: bytes[0], payload, offset }))
    }

    /// Returns the frame's length in bytes.
    pub(crate) fn len(&self) -> usize {
        FRAME_HEAD + self.payload.len()
    }

    /// True if the frame holds events.
    pub(crate) fn is_batch(&self) -> bool {
        self.kind == b'B'
    }

    /// Decodes the frame's message.
    pub(crate) fn decode(&self) -> Result<Message, FrameError> {
        match self.kind {
            b'H' => self.header().map(|header| Message::Header(Box::new(header))),
            b'C' => self.content().map(|catch_up| Message::CatchUp(Box::new(catch_up))),
            b'B' => self.content().map(Message::Batch),
            b'P' => self.content().map(Message::Control),
            _ => Ok(Message::End),
        }
    }

    /// Decodes a header and, if the stream has them, the theory, the offload and the choices after
    /// it.
    fn header(&self) -> Result<RunHeader, FrameError> {
        let (header, rest) = self.value(self.payload)?;
        let (theory, rest) = if rest.is_empty() { Default::default() } else { self.value(rest)? };
        let (offload, rest) = if rest.is_empty() { Default::default() } else { self.value(rest)? };
        let (choices, _) = if rest.is_empty() { Default::default() } else { self.value(rest)? };
        let header = RunHeader { theory, offload, choices, ..header };
        if !header.is_plausible(self.payload.len()) {
            let problem = "its header describes more ranks and units than it has room for";
            return Err(corrupt(self.offset, problem));
        }
        Ok(header)
    }

    /// Decodes the value at the start of `bytes`. Returns it and the bytes after it.
    fn value<'b, T: Deserialize<'b>>(&self, bytes: &'b [u8]) -> Result<(T, &'b [u8]), FrameError> {
        postcard::take_from_bytes(bytes)
            .map_err(|error| corrupt(self.offset, &format!("unreadable ({error})")))
    }

    fn content<T: Deserialize<'a>>(&self) -> Result<T, FrameError> {
        self.value(self.payload).map(|(content, _)| content)
    }
}

/// Returns an error about the frame at `offset`.
pub(crate) fn corrupt(offset: u64, problem: &str) -> FrameError {
    FrameError::Corrupt { offset, problem: problem.into() }
}

/// Decodes the messages of a stream that arrives in pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
    offset: u64,
    greeted: bool,
    requests: bool,
    /// The numbers of ranks and units in the header.
    shape: Option<(usize, usize)>,
}

impl Decoder {
    /// Returns a decoder for a stream without [`preamble`].
    pub fn without_preamble() -> Self {
        Decoder { greeted: true, ..Self::default() }
    }

    /// Returns a decoder for viewers' requests, which are short and have no [`preamble`].
    pub fn of_requests() -> Self {
        Decoder { requests: true, ..Self::without_preamble() }
    }

    /// Adds the bytes that `stream` has. Retries if a signal interrupts the read. Returns the
    /// number of bytes: 0 at the stream's end.
    pub(crate) fn read_from(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        let mut bytes = [0; 1 << 16];
        loop {
            match stream.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.inspect(|&read| self.push(&bytes[..read])),
            }
        }
    }

    /// Adds the bytes that have arrived on `stream`, which does not block, up to the limit of one
    /// turn. Returns true if the stream has ended.
    pub(crate) fn read_ready(&mut self, stream: &mut impl Read) -> bool {
        for _ in 0..64 {
            match self.read_from(stream) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Ok(0) | Err(_) => return true,
            }
        }
        false
    }

    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Returns the messages that are complete so far.
    ///
    /// # Errors
    /// Any [`FrameError`]. After an error the rest of the stream cannot be read.
    pub fn messages(&mut self) -> Result<Vec<Message>, FrameError> {
        let mut used = 0;
        if !self.greeted {
            if self.pending.len() < PREAMBLE {
                return Ok(Vec::new());
            }
            check_preamble(&self.pending)?;
            self.greeted = true;
            used = PREAMBLE;
        }
        let mut messages = Vec::new();
        while let Some(frame) = self.frame_at(used)? {
            let (message, offset) = (frame.decode()?, frame.offset);
            used += frame.len();
            check_shape(&mut self.shape, &message, offset)?;
            messages.push(message);
        }
        self.pending.drain(..used);
        self.offset += used as u64;
        Ok(messages)
    }

    /// Returns the frame at byte `start` of those that have arrived; `None` if it is not complete.
    fn frame_at(&self, start: usize) -> Result<Option<RawFrame<'_>>, FrameError> {
        let (bytes, offset) = (&self.pending[start..], self.offset + start as u64);
        if self.requests && length(bytes).is_some_and(|length| length > FRAME_HEAD + MAX_REQUEST) {
            return Err(corrupt(offset, "no request is this long"));
        }
        RawFrame::first(bytes, offset)
    }
}

/// Records the `shape` of the first header. A state of any other shape is treated as damage.
fn check_shape(shape: &mut Option<(usize, usize)>, message: &Message, offset: u64) -> Result<(), FrameError> {
    match message {
        Message::Header(header) => {
            shape.get_or_insert((header.world_size as usize, header.units.len()));
        }
        Message::CatchUp(state) if !shape.is_some_and(|shape| state.snapshot.has_shape(shape)) => {
            return Err(corrupt(offset, "its state is of other ranks or units than its header"));
        }
        _ => {}
    }
    Ok(())
}
