//! A connection between every two processes.
//!
//! A thread per connection reads everything that arrives into the mailbox, so that the other side
//! can always send: no two ranks can block each other, however large their messages.

use crate::core::stopwatch::Stopwatch;
use crate::wire::{self, Head, Lengths, Mailbox, PREFIX, Payload, Stalled, Transport};
use events::lock;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

/// Messages of at most this many bytes are written at once, and read without asking whether this
/// rank's call expects them.
const SMALL_MESSAGE: usize = 64 << 10;
/// How long a process that ends waits for the others to read its last messages.
const LINGER: Duration = Duration::from_secs(2);
/// The longest time after which a write that makes no progress looks at the clock.
const MAX_TICK: Duration = Duration::from_millis(500);
/// The shortest one, where the timeout is short.
const MIN_TICK: Duration = Duration::from_millis(1);
/// How long a write that must not wait may take.
const OFFER_TIMEOUT: Duration = Duration::from_millis(1);

/// The connections of one process.
pub(crate) struct Connections {
    /// By rank; `None` for this rank.
    peers: Vec<Option<Mutex<TcpStream>>>,
    readers: Arc<AtomicUsize>,
    timeout: Duration,
    /// True once a write to some rank has been given up. The run is over then, so later writes wait
    /// only briefly.
    gave_up: AtomicBool,
}

impl Connections {
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
            peer.set_write_timeout(Some(tick(timeout)))?;
            let (stream, mailbox, readers) = (peer.try_clone()?, mailbox.clone(), readers.clone());
            readers.fetch_add(1, Ordering::AcqRel);
            std::thread::Builder::new().name(format!("from rank {rank}")).spawn(move || {
                let reason = read_all(stream, rank as u32, &mailbox);
                mailbox.lost(rank as u32, reason);
                readers.fetch_sub(1, Ordering::AcqRel);
            })?;
        }
        let peers = peers.into_iter().map(|peer| peer.map(Mutex::new)).collect();
        Ok(Connections { peers, readers, timeout, gave_up: AtomicBool::new(false) })
    }

    /// Writes all of `bytes`. After a write that was given up nothing more is written: the receiver
    /// would take it for the rest of that message.
    fn write(&self, mut stream: &TcpStream, mut bytes: &[u8], stalled: Stalled<'_>) -> Result<(), String> {
        // A blocked write returns after a tick. If more than two have passed, this process was
        // stopped.
        let start = || Stopwatch::start(Duration::ZERO, 2 * tick(self.timeout));
        let mut stopwatch = start();
        let timeout =
            if self.gave_up.load(Ordering::Relaxed) { LINGER.min(self.timeout / 10) } else { self.timeout };
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    stopwatch = start();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_tick(&error) && stopwatch.poll(Duration::ZERO) < timeout => {
                    stalled(stopwatch.waited());
                }
                Err(error) => {
                    self.gave_up.store(true, Ordering::Relaxed);
                    let _ = stream.shutdown(Shutdown::Write);
                    return Err(if is_tick(&error) {
                        format!("it has taken no data for {timeout:?}")
                    } else {
                        broken(&error.to_string())
                    });
                }
            }
        }
        Ok(())
    }
}

/// Returns how often a write looks at the clock.
fn tick(timeout: Duration) -> Duration {
    (timeout / 10).clamp(MIN_TICK, MAX_TICK)
}

fn is_tick(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn broken(how: &str) -> String {
    format!("its connection broke ({how}): its process has ended, or its machine is out of reach")
}

impl Transport for Connections {
    fn send(&self, to: u32, head: &[u8], pieces: &[&[u8]], stalled: Stalled<'_>) -> Result<(), String> {
        let Some(peer) = &self.peers[to as usize] else { return Ok(()) };
        let stream = lock(peer);
        let size = head.len() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if size <= SMALL_MESSAGE {
            let mut all = Vec::with_capacity(size);
            all.extend_from_slice(head);
            pieces.iter().for_each(|piece| all.extend_from_slice(piece));
            return self.write(&stream, &all, stalled);
        }
        self.write(&stream, head, stalled)?;
        pieces.iter().try_for_each(|piece| self.write(&stream, piece, stalled))
    }

    fn offer(&self, to: u32, head: &[u8]) {
        let Some(peer) = &self.peers[to as usize] else { return };
        let stream = match peer.try_lock() {
            Ok(stream) => stream,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if stream.set_write_timeout(Some(OFFER_TIMEOUT)).is_err() {
            return;
        }
        let began = (&*stream).write(head);
        let _ = stream.set_write_timeout(Some(tick(self.timeout)));
        // A message that was begun must be completed, or the receiver would misread the next one.
        if let Ok(written) = began {
            let _ = self.write(&stream, &head[written..], &mut |_| {});
        }
    }

    fn progress(&self, mailbox: &Mailbox, seen: u64, time: Duration) {
        mailbox.park(seen, time);
    }
}

impl Drop for Connections {
    /// Shuts down all connections for writing, and keeps reading until the others have done so too:
    /// a socket that is closed with unread data discards the data it has sent.
    fn drop(&mut self) {
        for peer in self.peers.iter().flatten() {
            let _ = lock(peer).shutdown(Shutdown::Write);
        }
        let since = Instant::now();
        while self.readers.load(Ordering::Acquire) > 0 && since.elapsed() < LINGER {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Delivers everything that arrives from `rank`. Returns why the connection ended.
fn read_all(mut stream: TcpStream, rank: u32, mailbox: &Mailbox) -> String {
    loop {
        match read_message(&mut stream, rank, mailbox) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return "it sent something other than a message: all ranks must run the same program".into();
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return broken("closed by its side"),
            Err(error) => return broken(&error.to_string()),
        }
    }
}

pub(crate) fn read_message(stream: &mut impl Read, rank: u32, mailbox: &Mailbox) -> std::io::Result<()> {
    let damaged = || std::io::Error::from(ErrorKind::InvalidData);
    let mut prefix = [0; PREFIX];
    stream.read_exact(&mut prefix)?;
    let Lengths { head, payload } = wire::lengths(&prefix).ok_or_else(damaged)?;
    let mut bytes = Vec::new();
    if stream.take(head as u64).read_to_end(&mut bytes)? < head {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let head = wire::decode(&bytes, payload).ok_or_else(damaged)?;
    if let Some(payload) = read_payload(stream, rank, &head, payload, mailbox)? {
        mailbox.receive(rank, head, payload);
    }
    Ok(())
}

/// Reads the `announced` bytes after `head`. Their memory grows as they arrive. Returns `None`, and
/// skips the rest, once this rank's call turns out to expect fewer.
fn read_payload(
    stream: &mut impl Read,
    rank: u32,
    head: &Head,
    announced: usize,
    mailbox: &Mailbox,
) -> std::io::Result<Option<Payload>> {
    let asks = announced > SMALL_MESSAGE;
    let (mut payload, mut read) = (Payload::default(), 0);
    let mut wanted = !asks || mailbox.announce(rank, head, announced);
    if wanted {
        payload = mailbox.pool.reuse(announced).unwrap_or_default();
    }
    while wanted && read < announced {
        let next = announced.min(SMALL_MESSAGE.max(2 * read));
        payload.grow(next);
        stream.read_exact(&mut payload.bytes_mut()[read..next])?;
        read = next;
        wanted = !asks || mailbox.wants(rank, head);
    }
    let rest = (announced - read) as u64;
    if std::io::copy(&mut stream.take(rest), &mut std::io::sink())? < rest {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(wanted.then_some(payload))
}

#[cfg(test)]
mod tests;
