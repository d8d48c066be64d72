//! The accepting end: all connections are read at once, so that silent and slow ones delay no rank.

use super::proof::{ANSWER, Challenge, Key};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long a connection may take to prove itself.
const PROOF_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of strangers' connections that are read at once, beside those of the ranks; for
/// another one the oldest is closed.
const MAX_STRANGERS: usize = 256;

/// A connection that has proven nothing yet.
struct Candidate {
    stream: TcpStream,
    address: IpAddr,
    until: Instant,
    challenge: Challenge,
    answer: [u8; ANSWER],
    filled: usize,
}

/// A candidate's progress towards its proof.
enum ProofState {
    Waiting,
    Gone,
    WrongKey,
    Proven(u32),
}

/// Why no connection was accepted.
#[derive(Debug, PartialEq)]
enum AcceptError {
    /// There is none now; the network may bring one later.
    NonePending,
    /// One ended before it was accepted; there may be others.
    Aborted,
    /// No more files may be open.
    TooManyFiles,
    /// The listener cannot be used.
    Broken,
}

impl AcceptError {
    /// Returns what an error of `accept` means. Linux hands on errors of the network that a new
    /// connection has met, which say nothing about the listener: see accept(2).
    fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::INTR | Errno::CONNABORTED) => AcceptError::Aborted,
            Some(Errno::AGAIN | Errno::NETDOWN | Errno::PROTO | Errno::NOPROTOOPT) => {
                AcceptError::NonePending
            }
            Some(Errno::HOSTDOWN | Errno::NONET | Errno::HOSTUNREACH) => AcceptError::NonePending,
            Some(Errno::OPNOTSUPP | Errno::NETUNREACH | Errno::PERM) => AcceptError::NonePending,
            Some(Errno::MFILE | Errno::NFILE) => AcceptError::TooManyFiles,
            _ => AcceptError::Broken,
        }
    }
}

/// Accepts connections and hands out those that prove to know the key.
pub(crate) struct Acceptor<'a> {
    listener: &'a TcpListener,
    key: Key,
    candidates: Vec<Candidate>,
    /// Maximum number of candidates.
    limit: usize,
    /// The number of candidates with another key, and the address of the last.
    pub(crate) wrong_keys: Option<(usize, IpAddr)>,
}

impl<'a> Acceptor<'a> {
    /// Returns an acceptor to which up to `ranks` ranks may connect at the same time.
    ///
    /// # Errors
    /// The system's, if the listener cannot be used.
    pub(crate) fn open(listener: &'a TcpListener, key: Key, ranks: u32) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let limit = MAX_STRANGERS + ranks as usize;
        Ok(Acceptor { listener, key, candidates: Vec::new(), limit, wrong_keys: None })
    }

    /// Blocks until the next rank has proven itself, and returns it with its connection; `None` at
    /// the deadline.
    ///
    /// # Errors
    /// The system's, if the listener cannot be used.
    pub(crate) fn next(&mut self, deadline: Instant) -> io::Result<Option<(u32, TcpStream)>> {
        loop {
            if let Some(proven) = self.read_all() {
                return Ok(Some(proven));
            }
            let now = Instant::now();
            self.candidates.retain(|candidate| now < candidate.until);
            if now >= deadline {
                return Ok(None);
            }
            let soonest =
                self.candidates.iter().map(|candidate| candidate.until).fold(deadline, Instant::min);
            self.wait(soonest.saturating_duration_since(now))?;
            self.accept_all()?;
        }
    }

    /// Blocks until a connection or data arrive, for at most `time`.
    fn wait(&self, time: Duration) -> io::Result<()> {
        let mut sources = vec![PollFd::new(self.listener, PollFlags::IN)];
        sources.extend(self.candidates.iter().map(|candidate| PollFd::new(&candidate.stream, PollFlags::IN)));
        let time = Timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
        match poll(&mut sources, Some(&time)) {
            Err(Errno::INTR) | Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts the connections that are there.
    fn accept_all(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => self.candidates.extend(Candidate::new(stream, address.ip()).ok()),
                Err(error) => match AcceptError::of(&error) {
                    AcceptError::NonePending => return Ok(()),
                    AcceptError::Aborted => {}
                    AcceptError::TooManyFiles if !self.candidates.is_empty() => {
                        drop(self.candidates.remove(0))
                    }
                    AcceptError::TooManyFiles | AcceptError::Broken => return Err(error),
                },
            }
            if self.candidates.len() > self.limit {
                self.candidates.remove(0);
            }
        }
    }

    /// Reads the bytes that have arrived. Returns the first connection that has proven itself, and
    /// forgets those that cannot.
    fn read_all(&mut self) -> Option<(u32, TcpStream)> {
        let mut index = 0;
        while index < self.candidates.len() {
            let progress = self.candidates[index].read(self.key);
            if matches!(progress, ProofState::Waiting) {
                index += 1;
                continue;
            }
            let Candidate { stream, address, .. } = self.candidates.remove(index);
            match progress {
                ProofState::WrongKey => {
                    let count = self.wrong_keys.map_or(0, |(count, _)| count);
                    self.wrong_keys = Some((count + 1, address));
                }
                ProofState::Proven(rank) if stream.set_nonblocking(false).is_ok() => {
                    return Some((rank, stream));
                }
                _ => {}
            }
        }
        None
    }
}

impl Candidate {
    fn new(stream: TcpStream, address: IpAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let challenge = Challenge::send(&stream)?;
        let until = Instant::now() + PROOF_TIMEOUT;
        Ok(Candidate { stream, address, until, challenge, answer: [0; ANSWER], filled: 0 })
    }

    fn read(&mut self, key: Key) -> ProofState {
        while self.filled < ANSWER {
            match self.stream.read(&mut self.answer[self.filled..]) {
                Ok(0) => return ProofState::Gone,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return ProofState::Waiting,
                Err(_) => return ProofState::Gone,
            }
        }
        let Some((rank, proof)) = self.challenge.verify(key, &self.answer) else {
            return ProofState::WrongKey;
        };
        if self.stream.write_all(&proof).is_ok() { ProofState::Proven(rank) } else { ProofState::Gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_errors_do_not_stop_accepting() {
        let of = |error: Errno| AcceptError::of(&error.into());
        for error in [Errno::AGAIN, Errno::NETDOWN, Errno::PROTO, Errno::HOSTUNREACH, Errno::NETUNREACH] {
            assert_eq!(of(error), AcceptError::NonePending, "{error}");
        }
        assert_eq!(of(Errno::CONNABORTED), AcceptError::Aborted);
        assert_eq!(
            [of(Errno::MFILE), of(Errno::NFILE)],
            [AcceptError::TooManyFiles, AcceptError::TooManyFiles]
        );
        assert_eq!([of(Errno::BADF), of(Errno::INVAL)], [AcceptError::Broken, AcceptError::Broken]);
    }
}
