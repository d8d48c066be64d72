//! The messages of the rendezvous, once both ends are proven: short, with their length and version
//! in front.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

/// The version of these messages and of all later ones.
const VERSION: u32 = 6;
/// How long after the deadline rank 0's answer and the last connection may arrive.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// How often to retry.
pub(crate) const RETRY: Duration = Duration::from_millis(20);
/// No message is longer.
const LONGEST: u32 = 1 << 20;

/// What a process registers with rank 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) world_size: u32,
    /// The port at which it listens for the other ranks.
    pub(crate) port: u16,
    pub(crate) process: u32,
    /// The time that is left until its deadline.
    pub(crate) left: Duration,
    pub(crate) settings: String,
}

/// Rank 0's answer, once all ranks have registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Where every rank listens, and the token from which the key of their connections is made.
    Welcome { token: [u8; 32], listeners: Vec<(IpAddr, u16)> },
    /// The job does not start.
    Refused(String),
}

/// Why no message was received.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The connection's error; [`ErrorKind::TimedOut`] at the deadline.
    Connection(ErrorKind),
    /// The other end runs another version of the program.
    Version(u32),
    /// The bytes are not a message.
    Damaged,
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Unread::Connection(error.kind())
    }
}

/// Returns the words for two ranks that run different versions.
pub(crate) fn versions(rank: u32, version: u32, other: u32, theirs: u32) -> String {
    format!(
        "ranks run different versions of the program: rank {rank} speaks version {version} of the rendezvous, \
         rank {other} version {theirs}\nInstall the same build on every machine."
    )
}

impl Unread {
    /// Returns words about both versions if `theirs`, a rank that has proven itself, runs another.
    pub(crate) fn other_version(&self, ours: u32, theirs: u32) -> Option<String> {
        let Unread::Version(version) = self else { return None };
        Some(if ours < theirs {
            versions(ours, VERSION, theirs, *version)
        } else {
            versions(theirs, *version, ours, VERSION)
        })
    }
}

/// Returns a message with its length and version in front.
fn encode(message: &impl Serialize) -> Vec<u8> {
    // Serialising these types into a vector cannot fail.
    let mut bytes = postcard::to_extend(message, vec![0; 8]).unwrap_or_default();
    let length = bytes.len() as u32 - 8;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Sends one message.
pub(crate) fn send(mut stream: impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&encode(message))
}

/// Reads one message.
pub(crate) fn receive<M: DeserializeOwned>(mut stream: impl Read) -> Result<M, Unread> {
    let (mut length, mut version) = ([0; 4], [0; 4]);
    stream.read_exact(&mut length)?;
    stream.read_exact(&mut version)?;
    let [length, version] = [length, version].map(u32::from_le_bytes);
    if version != VERSION {
        return Err(Unread::Version(version));
    }
    if length > LONGEST {
        return Err(Unread::Damaged);
    }
    let mut message = vec![0; length as usize];
    stream.read_exact(&mut message)?;
    postcard::from_bytes(&message).map_err(|_| Unread::Damaged)
}

/// A connection that is read until a deadline; then a read fails with [`ErrorKind::TimedOut`].
#[derive(Clone, Copy)]
pub(crate) struct Until<'a>(pub(crate) &'a TcpStream, pub(crate) Instant);

impl Read for Until<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Until(mut stream, deadline) = *self;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(room) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let left = Duration::from_millis(1234);
        let hello = Hello { world_size: 4, port: 65_535, process: 9, left, settings: "steps 3".into() };
        let bytes = encode(&hello);
        assert_eq!(receive::<Hello>(&bytes[..]).unwrap(), hello);
        assert!(matches!(receive::<Hello>(&bytes[..20]), Err(Unread::Connection(ErrorKind::UnexpectedEof))));
        let listeners = vec![("10.0.0.1".parse().unwrap(), 1), ("::1".parse().unwrap(), 2)];
        for answer in [Answer::Welcome { token: [255; 32], listeners }, Answer::Refused("no".into())] {
            assert_eq!(receive::<Answer>(&encode(&answer)[..]).unwrap(), answer);
        }
    }

    #[test]
    fn another_version_and_lengths_beyond_all_bounds_are_told_apart() {
        let mut bytes = encode(&Answer::Refused("no".into()));
        bytes[..4].fill(255);
        assert!(matches!(receive::<Answer>(&bytes[..]), Err(Unread::Damaged)));
        bytes[4] += 1;
        let error = receive::<Answer>(&bytes[..]).unwrap_err();
        let words = error.other_version(3, 0).unwrap();
        assert!(words.contains("rank 0 speaks version 7") && words.contains("rank 3 version 6"), "{words}");
    }
}
