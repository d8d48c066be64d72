//! Counters of payload, the authority on the bytes that a rank has sent.

use events::{Began, Emitter, Operation, cpu, lock};
use std::sync::Mutex;
use std::time::Duration;

const OPERATIONS: usize = Operation::ALL.len();

/// The payload that a rank has sent through one group, per operation in [`Operation::ALL`]'s order.
///
/// Payload only: the bytes of buffers that leave this rank, each once per receiver. With N ranks
/// and a buffer of n elements of s bytes, of which rank r's slice holds |r| (n/N where N divides
/// n), rank r sends
///
/// | operation | direct | ring |
/// |---|---|---|
/// | reduce-scatter | (n − \|r\|)·s | the same |
/// | all-gather | (N−1)·\|r\|·s | (n − \|r+1\|)·s |
/// | all-reduce | (n − \|r\|)·s + (N−1)·\|r\|·s | (n − \|r\|)·s + (n − \|r+1\|)·s |
/// | broadcast | root (N−1)·n·s, others 0 | n·s, the root's left neighbour 0 |
/// | scalars | (N−1)·bytes | (N−1)·bytes |
///
/// With even slices both algorithms send the same. Alone (N = 1), a rank sends nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// Bytes sent.
    pub bytes: [u64; OPERATIONS],
    /// Collectives finished.
    pub calls: [u64; OPERATIONS],
    /// Nanoseconds spent issuing and waiting for results: for other ranks, for data to move, for a
    /// simulated link.
    pub nanoseconds: [u64; OPERATIONS],
    /// The part of `nanoseconds` in which the rank's thread did not run.
    pub off_processor: [u64; OPERATIONS],
    /// The part of `nanoseconds` spent waiting for other ranks.
    pub for_peers: [u64; OPERATIONS],
    /// The part of `nanoseconds` spent waiting for a simulated link to deliver.
    pub for_link: [u64; OPERATIONS],
}

impl Traffic {
    /// Returns the bytes sent for one operation.
    pub fn sent(&self, operation: Operation) -> u64 {
        self.bytes[operation.index()]
    }

    /// Returns the bytes sent for all operations.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Returns the seconds spent on collectives.
    pub fn seconds(&self) -> f64 {
        sum_in_seconds(&self.nanoseconds)
    }

    /// Returns the seconds spent waiting for other ranks.
    pub fn seconds_for_peers(&self) -> f64 {
        sum_in_seconds(&self.for_peers)
    }

    /// Returns the seconds spent waiting for a simulated link.
    pub fn seconds_for_link(&self) -> f64 {
        sum_in_seconds(&self.for_link)
    }

    /// Returns the seconds spent on collectives in which the rank's thread did not run.
    pub fn seconds_off_processor(&self) -> f64 {
        sum_in_seconds(&self.off_processor)
    }
}

fn sum_in_seconds(nanoseconds: &[u64; OPERATIONS]) -> f64 {
    nanoseconds.iter().sum::<u64>() as f64 * 1e-9
}

events::counters! { Traffic [bytes, calls, nanoseconds, off_processor, for_peers, for_link] }

/// Parts of a wait for a collective's result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// Until the other ranks had issued the call and done their parts.
    pub(crate) peers: Duration,
    /// Until the simulated link delivered.
    pub(crate) link: Duration,
}

/// The time that a rank's thread spends in a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTime {
    total: Duration,
    /// The part of `total` in which the thread did not run.
    off_processor: Duration,
}

/// Measures a [`CallTime`], without the time for which a viewer holds the run.
pub(crate) struct CallTimer {
    began: Began,
    on_processor: Duration,
}

impl CallTimer {
    /// Starts to measure.
    pub(crate) fn start(emitter: &Emitter) -> Self {
        CallTimer { began: emitter.begin(), on_processor: cpu::of_thread() }
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(&self, emitter: &Emitter) -> CallTime {
        let total = emitter.since(self.began);
        CallTime { total, off_processor: total.saturating_sub(cpu::of_thread() - self.on_processor) }
    }
}

/// The counters behind [`Traffic`].
#[derive(Default)]
pub(crate) struct TrafficCounters(Mutex<Traffic>);

impl TrafficCounters {
    /// Counts the time of `call`, which was spent on a call of `operation`.
    pub(crate) fn spent(&self, operation: Operation, call: CallTime) {
        let (traffic, index) = (&mut *lock(&self.0), operation.index());
        traffic.nanoseconds[index] += call.total.as_nanos() as u64;
        traffic.off_processor[index] += call.off_processor.as_nanos() as u64;
    }

    /// Counts a finished call of `operation`.
    pub(crate) fn finished(&self, operation: Operation, sent: u64, waits: Waits) {
        let (traffic, index) = (&mut *lock(&self.0), operation.index());
        traffic.bytes[index] += sent;
        traffic.calls[index] += 1;
        traffic.for_peers[index] += waits.peers.as_nanos() as u64;
        traffic.for_link[index] += waits.link.as_nanos() as u64;
    }

    pub(crate) fn snapshot(&self) -> Traffic {
        *lock(&self.0)
    }
}
