//! A connection between every two processes.
//!
//! Each connection has a thread here that reads whatever arrives into the mailbox, so that the other side can always
//! send: no two ranks can block each other, however large their messages.

use crate::wire::{self, HEAD, Head, Kind, Letter, Mailbox, Transport};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Smaller messages travel as one write.
const SMALL: usize = 64 << 10;
/// How long the end of a process waits for the others to read what it has said.
const LINGER: Duration = Duration::from_secs(2);
/// How often a write that makes no progress looks at the clock.
const TICK: Duration = Duration::from_millis(500);

/// The connections of one process.
pub(crate) struct Mesh {
    /// By rank; none to itself.
    peers: Vec<Option<Mutex<TcpStream>>>,
    readers: Arc<AtomicUsize>,
    timeout: Duration,
}

impl Mesh {
    /// Starts reading from all `peers` (by rank) into `mailbox`.
    ///
    /// # Errors
    /// If a connection or a thread cannot be set up.
    pub(crate) fn start(
        peers: Vec<Option<TcpStream>>,
        mailbox: &Arc<Mailbox>,
        timeout: Duration,
    ) -> std::io::Result<Self> {
        let readers = Arc::new(AtomicUsize::new(0));
        for (rank, peer) in peers.iter().enumerate() {
            let Some(peer) = peer else { continue };
            peer.set_nodelay(true)?;
            peer.set_read_timeout(None)?;
            peer.set_write_timeout(Some(TICK))?;
            let (stream, mailbox, readers) = (peer.try_clone()?, mailbox.clone(), readers.clone());
            readers.fetch_add(1, Ordering::AcqRel);
            std::thread::Builder::new().name(format!("from rank {rank}")).spawn(move || {
                let reason = read_all(stream, rank as u32, &mailbox);
                mailbox.lost(rank as u32, reason);
                readers.fetch_sub(1, Ordering::AcqRel);
            })?;
        }
        let peers = peers.into_iter().map(|peer| peer.map(Mutex::new)).collect();
        Ok(Mesh { peers, readers, timeout })
    }

    fn write(&self, mut stream: &TcpStream, mut bytes: &[u8]) -> Result<(), String> {
        let mut since = Instant::now();
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    since = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_tick(&error) && since.elapsed() < self.timeout => {}
                Err(error) if is_tick(&error) => {
                    return Err(format!("it has taken no data for {:?}", self.timeout));
                }
                Err(error) => return Err(broken(&error.to_string())),
            }
        }
        Ok(())
    }
}

fn is_tick(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn broken(how: &str) -> String {
    format!("its connection broke ({how}): its process has ended, or its machine is out of reach")
}

impl Transport for Mesh {
    fn send(&self, to: u32, head: &[u8], pieces: &[&[u8]]) -> Result<(), String> {
        let Some(peer) = &self.peers[to as usize] else { return Ok(()) };
        let stream = peer.lock().unwrap_or_else(PoisonError::into_inner);
        let size = head.len() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if size <= SMALL {
            let mut all = Vec::with_capacity(size);
            all.extend_from_slice(head);
            pieces.iter().for_each(|piece| all.extend_from_slice(piece));
            return self.write(&stream, &all);
        }
        self.write(&stream, head)?;
        pieces.iter().try_for_each(|piece| self.write(&stream, piece))
    }

    fn progress(&self, mailbox: &Mailbox, seen: u64, time: Duration) {
        mailbox.park(seen, time);
    }
}

impl Drop for Mesh {
    /// Says that nothing follows, and keeps reading until the others say so too: a socket that closes with unread data
    /// takes back what it has sent.
    fn drop(&mut self) {
        for peer in self.peers.iter().flatten() {
            let _ = peer.lock().unwrap_or_else(PoisonError::into_inner).shutdown(Shutdown::Write);
        }
        let since = Instant::now();
        while self.readers.load(Ordering::Acquire) > 0 && since.elapsed() < LINGER {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Delivers everything that arrives from `rank`; why it ended.
fn read_all(mut stream: TcpStream, rank: u32, mailbox: &Mailbox) -> String {
    loop {
        match read_message(&mut stream, rank, mailbox) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return "it sent what is no message: all ranks must run the same program".into();
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return broken("closed by its side"),
            Err(error) => return broken(&error.to_string()),
        }
    }
}

fn read_message(stream: &mut TcpStream, rank: u32, mailbox: &Mailbox) -> std::io::Result<()> {
    let damaged = || std::io::Error::from(ErrorKind::InvalidData);
    let mut bytes = [0; HEAD];
    stream.read_exact(&mut bytes)?;
    let Head { kind, note, payload } = wire::decode(&bytes).ok_or_else(damaged)?;
    let mut text = vec![0; note];
    stream.read_exact(&mut text)?;
    match kind {
        Kind::Letter(address) => {
            let call = wire::call(&text, address.sequence).ok_or_else(damaged)?;
            let mut parcel = mailbox.store.take(payload);
            stream.read_exact(parcel.bytes_mut())?;
            mailbox.deliver(wire::Address { from: rank, ..address }, Letter { call, payload: parcel });
        }
        Kind::Failed { group } => mailbox.fail(group, wire::failure(&text).ok_or_else(damaged)?),
        Kind::Departed { group } => mailbox.depart(group, rank),
        Kind::Report { group, count } => mailbox.report(group, rank, count),
    }
    Ok(())
}
