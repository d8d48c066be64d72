//! Turns a job of several processes into one run: every process streams its rank's events to the
//! process of rank 0, which sends viewers' requests to all others.
//!
//! A stream carries [frames](crate::frame) without a preamble. Before them, each process
//! synchronizes its clock with rank 0's.

use crate::frame::{self, Decoder, EventBatch, Message};
use crate::pace::Pace;
use crate::ring::{Feed, Receiver};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which events are sent.
const PERIOD: Duration = Duration::from_millis(20);
/// Maximum time for which a process waits for a peer that does not respond.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The number of times that a process asks for the clock. The last answer counts: the first may be
/// late because a thread slept.
const QUESTIONS: u32 = 3;

/// Returns when the run started according to rank 0, the peer of `link`, as an instant of this
/// process.
///
/// # Errors
/// If the peer does not answer within `timeout`.
pub fn clock(mut link: &TcpStream, timeout: Duration) -> io::Result<Instant> {
    link.set_read_timeout(Some(timeout))?;
    let mut start = Instant::now();
    for _ in 0..QUESTIONS {
        let asked = Instant::now();
        link.write_all(b"?")?;
        let mut answer = [0; 8];
        link.read_exact(&mut answer)?;
        let (now, there) = (Instant::now(), Duration::from_nanos(u64::from_le_bytes(answer)));
        start = now.checked_sub(there + (now - asked) / 2).unwrap_or(now);
    }
    link.set_read_timeout(None)?;
    Ok(start)
}

fn tell_clock(mut link: &TcpStream, start: Instant) -> io::Result<()> {
    for _ in 0..QUESTIONS {
        link.read_exact(&mut [0])?;
        link.write_all(&(start.elapsed().as_nanos() as u64).to_le_bytes())?;
    }
    Ok(())
}

/// A process's stream of events to rank 0. Dropping it sends the remaining events.
pub struct Outlet {
    ending: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl Outlet {
    /// Starts to send the events of `receiver` to rank 0, and to apply viewers' requests that rank
    /// 0 sends to `pace`.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn start(link: TcpStream, receiver: Receiver, pace: Arc<Pace>) -> io::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        pace.share_between_processes();
        let (incoming, over) = (link.try_clone()?, ending.clone());
        std::thread::Builder::new().name("controls".into()).spawn(move || apply_controls(incoming, &pace))?;
        let sender = std::thread::Builder::new().name("events".into()).spawn(move || {
            // If rank 0 is gone, the collectives report it.
            let _ = stream(&link, &receiver, &over);
        })?;
        Ok(Outlet { ending, sender: Some(sender) })
    }
}

impl Drop for Outlet {
    /// Sends the remaining events and the end of the stream.
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        if let Some(sender) = self.sender.take() {
            sender.thread().unpark();
            let _ = sender.join();
        }
    }
}

fn stream(mut link: &TcpStream, receiver: &Receiver, ending: &AtomicBool) -> io::Result<()> {
    link.set_write_timeout(Some(TIMEOUT))?;
    loop {
        let last = ending.load(Ordering::Acquire);
        let mut events = Vec::new();
        receiver.drain(&mut events);
        let mut bytes = Vec::new();
        if !events.is_empty() {
            frame::encode(&Message::Batch(EventBatch { dropped: receiver.dropped(), events }), &mut bytes);
        }
        if last {
            frame::encode(&Message::End, &mut bytes);
        }
        link.write_all(&bytes)?;
        if last {
            return link.shutdown(Shutdown::Write);
        }
        std::thread::park_timeout(PERIOD);
    }
}

fn apply_controls(mut link: TcpStream, pace: &Pace) {
    let mut decoder = Decoder::of_requests();
    while let Ok(1..) = decoder.read_from(&mut link) {
        let Ok(messages) = decoder.messages() else { break };
        for message in messages {
            if let Message::Control(control) = message {
                pace.control(control);
            }
        }
    }
    // Rank 0 is gone, so no viewer could release this process.
    pace.cancel();
}

/// Rank 0's receiving ends of all streams.
pub struct Inlets {
    /// The number of streams that have not ended.
    open: Arc<AtomicUsize>,
}

impl Inlets {
    /// Starts to read the streams of `links` into `feeds`, in the same order, and to forward
    /// requests to `pace` to all of them. The run's clock started at `start`.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn start(links: Vec<TcpStream>, feeds: Vec<Feed>, start: Instant, pace: &Pace) -> io::Result<Self> {
        let open = Arc::new(AtomicUsize::new(0));
        let outgoing = links.iter().map(TcpStream::try_clone).collect::<io::Result<Vec<_>>>()?;
        pace.share_between_processes();
        let controls = pace.listen();
        // Forwards no request until every reader thread has answered its peer's question about the
        // clock: both use the same connection.
        let (telling, told) = mpsc::channel::<()>();
        std::thread::Builder::new().name("controls".into()).spawn(move || {
            told.iter().for_each(drop);
            forward(&outgoing, &controls);
        })?;
        for (link, feed) in links.into_iter().zip(feeds) {
            let (open, telling) = (open.clone(), telling.clone());
            open.fetch_add(1, Ordering::AcqRel);
            std::thread::Builder::new().name("events in".into()).spawn(move || {
                let told = tell_clock(&link, start);
                drop(telling);
                if told.is_ok() {
                    read(link, &feed);
                }
                open.fetch_sub(1, Ordering::AcqRel);
            })?;
        }
        Ok(Inlets { open })
    }

    /// Blocks until all streams have ended, or until `deadline`.
    pub fn finish(&self, deadline: Instant) {
        while self.open.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn forward(links: &[TcpStream], controls: &mpsc::Receiver<crate::Control>) {
    for control in controls {
        let bytes = frame::encoded(&Message::Control(control));
        for mut link in links {
            // A process that has ended has no rank to hold.
            let _ = link.write_all(&bytes);
        }
    }
}

fn read(mut link: TcpStream, feed: &Feed) {
    let mut decoder = Decoder::without_preamble();
    while let Ok(1..) = decoder.read_from(&mut link) {
        let Ok(messages) = decoder.messages() else { return };
        for message in messages {
            match message {
                Message::Batch(EventBatch { dropped, events }) => {
                    feed.lost(dropped);
                    events.into_iter().for_each(|event| feed.push(event));
                }
                Message::End => return,
                _ => {}
            }
        }
    }
}
