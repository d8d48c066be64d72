//! Payload counters: the authority for what a rank has sent.

use events::Operation;
use std::sync::atomic::{AtomicU64, Ordering};

const OPERATIONS: usize = Operation::ALL.len();

/// What a rank has sent through one group, per operation in [`Operation::ALL`]'s order.
///
/// Payload only: the bytes of buffers that leave this rank, each once per receiver. With N ranks and a buffer of n
/// elements of s bytes, of which rank r's slice holds |r| (n/N where N divides n), rank r sends
///
/// | operation | direct | ring |
/// |---|---|---|
/// | reduce-scatter | (n − \|r\|)·s | the same |
/// | all-gather | (N−1)·\|r\|·s | (n − \|r+1\|)·s |
/// | all-reduce | (n − \|r\|)·s + (N−1)·\|r\|·s | (n − \|r\|)·s + (n − \|r+1\|)·s |
/// | broadcast | root (N−1)·n·s, others 0 | n·s, the root's left neighbour 0 |
/// | send | n·s | n·s |
/// | scalars | (N−1)·bytes | (N−1)·bytes |
///
/// With even slices both algorithms send the same. Alone (N = 1), a rank sends nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent.
    pub bytes: [u64; OPERATIONS],
    /// Collectives finished.
    pub calls: [u64; OPERATIONS],
    /// Nanoseconds spent waiting for peers and moving data.
    pub nanoseconds: [u64; OPERATIONS],
}

impl Traffic {
    /// Bytes sent for one operation.
    pub fn sent(&self, operation: Operation) -> u64 {
        self.bytes[operation.index()]
    }

    /// Bytes sent for all operations.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// The counters behind [`Traffic`]. Only their rank's thread writes.
#[derive(Default)]
pub(crate) struct Tally {
    bytes: [AtomicU64; OPERATIONS],
    calls: [AtomicU64; OPERATIONS],
    nanoseconds: [AtomicU64; OPERATIONS],
}

impl Tally {
    pub(crate) fn finished(&self, operation: Operation, sent: u64, nanoseconds: u64) {
        self.nanoseconds[operation.index()].fetch_add(nanoseconds, Ordering::Relaxed);
        self.bytes[operation.index()].fetch_add(sent, Ordering::Relaxed);
        self.calls[operation.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, operation: Operation) -> u64 {
        self.bytes[operation.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn snapshot(&self) -> Traffic {
        let load = |counters: &[AtomicU64; OPERATIONS]| {
            std::array::from_fn(|index| counters[index].load(Ordering::Relaxed))
        };
        Traffic { bytes: load(&self.bytes), calls: load(&self.calls), nanoseconds: load(&self.nanoseconds) }
    }
}
