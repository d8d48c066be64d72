//! A thread per rank that watches the rank's communicators, so that no rank waits forever for its
//! GPU.
//!
//! Ranks wait for each other on the host before anything is queued, with deadlines of their own.
//! The watchdog covers what can go wrong later, on the GPU: NCCL fails there, or waits for a rank
//! that has agreed to a call and then does not hand it in. The compute thread then blocks inside
//! the driver, which has no timeout. The watchdog notices, fails the group, and aborts the
//! communicator; then the driver returns.
//!
//! An abort frees memory of the GPU, and so waits for everything that runs there, kernels of the
//! rank's other communicators included. Those wait for ranks that enqueue nothing more, until they
//! are aborted too. So every abort has a thread of its own.

use super::watched_communicator::{POLL_INTERVAL, WatchedCommunicator};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// One rank's watchdog thread.
pub(crate) struct Watchdog {
    /// Hands communicators to the thread, which ends once this is dropped.
    watched: Option<Sender<Weak<WatchedCommunicator>>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread, for rank `rank`.
    pub(crate) fn start(rank: u32) -> std::io::Result<Self> {
        let (watched, given) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("watch over rank {rank}"))
            .spawn(move || watch_all(&given))?;
        Ok(Watchdog { watched: Some(watched), thread: Some(thread) })
    }

    /// Watches a communicator from now on.
    pub(crate) fn add(&self, watched: &Arc<WatchedCommunicator>) {
        // Fails only if the thread has panicked.
        self.watched.iter().for_each(|given| drop(given.send(Arc::downgrade(watched))));
    }
}

/// Looks at all communicators that arrive, repeatedly, until the sender is dropped.
fn watch_all(given: &Receiver<Weak<WatchedCommunicator>>) {
    let mut all = Vec::new();
    std::thread::scope(|aborts| {
        loop {
            match given.recv_timeout(POLL_INTERVAL) {
                Ok(watched) => all.push(watched),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            all.retain(|watched| watched.strong_count() > 0);
            for watched in all.iter().filter_map(Weak::upgrade).filter(|watched| watched.check()) {
                aborts.spawn(move || watched.abort());
            }
        }
    });
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.watched = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends within one look and its aborts, and has reported every failure it
            // noticed to the group.
            let _ = thread.join();
        }
    }
}
