//! The messages of the meeting: short, with a length in front.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

/// First bytes of every message: this program, this version of its messages.
const MAGIC: [u8; 8] = *b"ZERO-TCP";
const VERSION: u32 = 4;
/// No message is longer.
const LONGEST: u32 = 1 << 20;

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    /// Where it listens for the other ranks.
    pub(crate) port: u16,
    pub(crate) process: u32,
    /// How much longer it will wait.
    pub(crate) left: Duration,
    pub(crate) settings: String,
}

/// What rank 0 answers once all have come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Where every rank listens, and the token by which they recognise each other.
    Welcome { token: u64, listeners: Vec<(IpAddr, u16)> },
    /// The job does not start.
    Refused(String),
}

/// What a rank says to another rank when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) token: u64,
    pub(crate) rank: u32,
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    let start = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    // Serialising these types into a vector cannot fail.
    postcard::to_extend(message, start).unwrap_or_default()
}

/// Reads a message; `None` if it is another program's, another version's, or damaged.
fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Option<M> {
    let bytes = bytes.strip_prefix(&MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
    postcard::from_bytes(bytes).ok()
}

/// Sends one message.
pub(crate) fn send(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let message = encode(message);
    stream.write_all(&[&(message.len() as u32).to_le_bytes(), &message[..]].concat())
}

/// Blocks until one message has arrived, or until `deadline`.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for something other than a message `M`, [`ErrorKind::TimedOut`] at
/// the deadline, and the system's errors.
pub(crate) fn receive<M: DeserializeOwned>(stream: &TcpStream, deadline: Instant) -> io::Result<M> {
    decode(&receive_bytes(stream, deadline)?).ok_or_else(|| ErrorKind::InvalidData.into())
}

fn receive_bytes(stream: &TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    fill(stream, &mut length, deadline)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length as usize];
    fill(stream, &mut message, deadline)?;
    Ok(message)
}

fn fill(mut stream: &TcpStream, mut room: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !room.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(room) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => room = &mut room[read..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let hello = Hello {
            rank: 3,
            world_size: 4,
            port: 65_535,
            process: 9,
            left: Duration::from_millis(1234),
            settings: "steps 3".into(),
        };
        let bytes = encode(&hello);
        assert_eq!(decode(&bytes), Some(hello));
        assert_eq!(decode::<Hello>(&bytes[..20]), None);
        assert_eq!(decode::<Hello>(b"GET / HTTP/1.1\r\n\r\n"), None);
        let listeners = vec![("10.0.0.1".parse().unwrap(), 1), ("::1".parse().unwrap(), 2)];
        for answer in [Answer::Welcome { token: u64::MAX, listeners }, Answer::Refused("no".into())] {
            assert_eq!(decode(&encode(&answer)), Some(answer));
        }
    }
}
