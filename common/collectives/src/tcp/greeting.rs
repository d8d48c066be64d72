//! The words of the meeting: short messages with a length in front.

use crate::wire::{Reader, put_text};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

/// First bytes of what a process says: this program, this version of its words.
const MAGIC: [u8; 8] = *b"ZERO-TCP";
const VERSION: u32 = 3;
/// No message is longer.
const LONGEST: u32 = 1 << 20;

/// A process introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    /// Where it listens for its peers.
    pub(crate) port: u16,
    pub(crate) process: u32,
    /// How long it will go on waiting, to the millisecond.
    pub(crate) left: Duration,
    pub(crate) settings: String,
}

/// What rank 0 answers once all have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Where every rank listens, and the word by which they know each other.
    Welcome { token: u64, places: Vec<(IpAddr, u16)> },
    /// The job does not start.
    Refused(String),
}

impl Hello {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        [VERSION, self.rank, self.world_size, u32::from(self.port), self.process]
            .iter()
            .for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend((self.left.as_millis() as u64).to_le_bytes());
        put_text(&mut bytes, &self.settings);
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let ours = reader.array()? == MAGIC && reader.u32()? == VERSION;
        let [rank, world_size, port, process] = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        let (left, settings) = (Duration::from_millis(reader.u64()?), reader.text()?);
        ours.then_some(Hello { rank, world_size, port: port as u16, process, left, settings })
    }
}

impl Answer {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        match self {
            Answer::Refused(reason) => {
                bytes.push(0);
                put_text(&mut bytes, reason);
            }
            Answer::Welcome { token, places } => {
                bytes.push(1);
                bytes.extend(token.to_le_bytes());
                bytes.extend((places.len() as u32).to_le_bytes());
                for (address, port) in places {
                    put_text(&mut bytes, &address.to_string());
                    bytes.extend(u32::from(*port).to_le_bytes());
                }
            }
        }
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (magic, [tag]) = (reader.array()?, reader.array()?);
        if magic != MAGIC {
            return None;
        }
        if tag == 0 {
            return reader.text().map(Answer::Refused);
        }
        let (token, count) = (reader.u64()?, reader.u32()?);
        let mut places = Vec::new();
        for _ in 0..count {
            places.push((reader.text()?.parse().ok()?, reader.u32()? as u16));
        }
        Some(Answer::Welcome { token, places })
    }
}

/// Sends one message.
pub(crate) fn say(mut stream: &TcpStream, message: &[u8]) -> io::Result<()> {
    let mut bytes = (message.len() as u32).to_le_bytes().to_vec();
    bytes.extend(message);
    stream.write_all(&bytes)
}

/// Waits for one message until `deadline`.
pub(crate) fn hear(stream: &TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
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
    fn words_come_back_as_they_were() {
        let hello = Hello {
            rank: 3,
            world_size: 4,
            port: 65_535,
            process: 9,
            left: Duration::from_millis(1234),
            settings: "steps 3".into(),
        };
        assert_eq!(Hello::read(&hello.bytes()), Some(hello.clone()));
        assert_eq!(Hello::read(&hello.bytes()[..20]), None);
        assert_eq!(Hello::read(b"GET / HTTP/1.1\r\n\r\n"), None);
        let places = vec![("10.0.0.1".parse().unwrap(), 1), ("::1".parse().unwrap(), 2)];
        for answer in [Answer::Welcome { token: u64::MAX, places }, Answer::Refused("no".into())] {
            assert_eq!(Answer::read(&answer.bytes()), Some(answer.clone()));
        }
    }
}
