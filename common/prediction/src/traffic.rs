//! Bytes on the wire.

use crate::counts::counts;
use crate::transfers::Transfers;
use clap::ValueEnum;
use events::Operation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const OPERATIONS: usize = Operation::ALL.len();

counts! {
    /// The traffic that one rank sends: payload bytes and collectives, per operation.
    Traffic per Operation
}

impl Traffic {
    /// Returns the payload bytes of model states: all but scalars.
    pub fn payload_bytes(&self) -> u64 {
        self.total_bytes() - self.bytes(Operation::Scalars)
    }
}

/// How local collectives move data: which rank sends which slices to which other rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Each rank reads its slice from every other rank and sums over a tree: the same bits on every
    /// run.
    #[default]
    Direct,
    /// Neighbour to neighbour in a ring, hop by hop.
    Ring,
}

impl Algorithm {
    /// Returns the elements that rank `rank` of `ranks` sends in one `operation` on a buffer of
    /// `elements`, cut into slices [r·n/N, (r+1)·n/N), rounded down. 0 in operations that no stage
    /// uses on buffers.
    ///
    /// In a ring each rank sends to its right neighbour alone (Patarasuk and Yuan, 2009).
    /// Reduce-scatter: a rank sends every slice but its own, to its owner or as a partial sum.
    /// All-gather: it sends its slice to each other rank, or every slice but the right neighbour's
    /// to that neighbour. All-reduce: a reduce-scatter, then an all-gather. Both algorithms send
    /// the same number of elements over all ranks, and per rank where N divides the elements.
    pub fn elements_sent(self, operation: Operation, elements: u64, ranks: u64, rank: u64) -> u64 {
        let boundary = |r: u64| (r as u128 * elements as u128 / ranks as u128) as u64;
        let slice = |r: u64| boundary(r + 1) - boundary(r);
        let scattered = elements - slice(rank);
        let gathered = match self {
            Algorithm::Direct => slice(rank) * (ranks - 1),
            Algorithm::Ring => elements - slice((rank + 1) % ranks),
        };
        match operation {
            Operation::ReduceScatter => scattered,
            Operation::AllGather => gathered,
            Operation::AllReduce => scattered + gathered,
            _ => 0,
        }
    }
}

/// One rank, as a sender.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) algorithm: Algorithm,
    pub(crate) ranks: u64,
    pub(crate) rank: u64,
}

/// The ranks of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Among {
    /// All ranks.
    World,
    /// Groups of neighbouring ranks; the number is the group's size.
    Neighbours(u64),
    /// The ranks with the same place in groups of neighbours; the number is the group's size.
    Across(u64),
}

impl Among {
    /// Returns the size of `sender`'s group, and its place there.
    fn place(self, Sender { ranks, rank, .. }: Sender) -> (u64, u64) {
        match self {
            Among::World => (ranks, rank),
            Among::Neighbours(size) => (size, rank % size),
            Among::Across(size) => (ranks / size, rank / size),
        }
    }
}

/// Counts the collectives and transfers of one phase of a run. All ranks issue the same ones;
/// [`ByteCounter::of`] has the bytes that one rank sends.
#[derive(Clone, Default)]
pub(crate) struct ByteCounter {
    /// The number of collectives by ranks, operation, elements and bytes per element of a buffer.
    buffers: BTreeMap<(Among, Operation, u64, u64), u64>,
    calls: BTreeMap<(Among, Operation), u64>,
    /// Bytes that each rank sends to each other rank in exchanges of scalars.
    scalars: BTreeMap<Among, u64>,
    pub(crate) transfers: Transfers,
}

impl ByteCounter {
    /// Counts one collective over the buffers of several units, each cut into slices of its own.
    pub(crate) fn collective(
        &mut self,
        among: Among,
        operation: Operation,
        units: impl IntoIterator<Item = u64>,
        bytes_per_element: u64,
    ) {
        *self.calls.entry((among, operation)).or_default() += 1;
        for elements in units {
            *self.buffers.entry((among, operation, elements, bytes_per_element)).or_default() += 1;
        }
    }

    /// Counts one exchange in which each rank sends `bytes` bytes to every other.
    pub(crate) fn exchange(&mut self, among: Among, bytes: u64) {
        *self.calls.entry((among, Operation::Scalars)).or_default() += 1;
        *self.scalars.entry(among).or_default() += bytes;
    }

    /// Returns the traffic of `sender`.
    pub(crate) fn of(&self, sender: Sender) -> Traffic {
        let mut calls = [0; OPERATIONS];
        self.calls.iter().for_each(|((_, operation), times)| calls[operation.index()] += times);
        Traffic { calls, bytes: self.bytes(sender, |_| true) }
    }

    /// Returns the operations among `sender`'s groups, each with the group's size and the number of
    /// calls.
    pub(crate) fn calls(&self, sender: Sender) -> Vec<(u64, Operation, u64)> {
        let calls = self.calls.iter();
        calls.map(|(&(among, operation), &times)| (among.place(sender).0, operation, times)).collect()
    }

    /// Returns the bytes that `sender` sends in groups of neighbours.
    pub(crate) fn to_neighbours(&self, sender: Sender) -> u64 {
        self.near(sender).iter().sum()
    }

    /// Returns those bytes without scalars.
    pub(crate) fn payload_to_neighbours(&self, sender: Sender) -> u64 {
        self.to_neighbours(sender) - self.near(sender)[Operation::Scalars.index()]
    }

    fn near(&self, sender: Sender) -> [u64; OPERATIONS] {
        self.bytes(sender, |among| matches!(among, Among::Neighbours(_)))
    }

    /// Returns the bytes that `sender` sends among `wanted` ranks, per operation. Scalars are never
    /// sent around a ring.
    fn bytes(&self, sender: Sender, wanted: fn(Among) -> bool) -> [u64; OPERATIONS] {
        let mut sent = [0; OPERATIONS];
        let buffers = self.buffers.iter().filter(|((among, ..), _)| wanted(*among));
        for (&(among, operation, elements, bytes), times) in buffers {
            let (ranks, rank) = among.place(sender);
            let elements = sender.algorithm.elements_sent(operation, elements, ranks, rank);
            sent[operation.index()] += times * bytes * elements;
        }
        for (&among, bytes) in self.scalars.iter().filter(|(among, _)| wanted(**among)) {
            sent[Operation::Scalars.index()] += bytes * (among.place(sender).0 - 1);
        }
        sent
    }
}
