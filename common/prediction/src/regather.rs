//! The all-gather of updated parameters, so that every rank has the updates of all ranks: in ZeRO-1
//! and ZeRO-2, and in ZeRO-3 of persistent units.

use crate::job::Job;
use crate::partition::Partition;
use crate::rank::{InFlight, SymbolicRank};
use crate::traffic::Among;
use events::Operation;

/// Updated units that are gathered in place, a bucket at a time.
pub(crate) struct Regather {
    among: Among,
    /// Elements of each unit that is gathered; `None` for the others.
    elements: Vec<Option<u64>>,
    /// A bucket closes once it has this many elements, or with the last unit.
    size: u64,
    bytes_per_element: u64,
    overlap: bool,
    filling: Vec<(usize, u64)>,
    in_flight: Option<InFlight>,
}

impl Regather {
    pub(crate) fn new(job: &Job, partition: &Partition, among: Among) -> Self {
        let sharded = job.stage.sharded();
        let gathered = |persistent| sharded.optimizer && (persistent || !sharded.parameters);
        let elements = partition.units.iter().map(|unit| gathered(unit.persistent).then_some(unit.padded));
        Regather {
            among,
            elements: elements.collect(),
            size: job.gather_bucket.unwrap_or(partition.largest()),
            bytes_per_element: job.recipe.weights,
            overlap: job.overlap,
            filling: Vec::new(),
            in_flight: None,
        }
    }

    /// Adds `unit`, which is updated, to the open bucket, unless it is not gathered. If the bucket
    /// is full, or no further unit is gathered, gathers it.
    pub(crate) fn push(&mut self, rank: &mut SymbolicRank, unit: usize) {
        let Some(elements) = self.elements[unit] else { return };
        self.filling.push((unit, elements));
        let open: u64 = self.filling.iter().map(|(_, elements)| elements).sum();
        if open < self.size && self.elements[unit + 1..].iter().any(Option::is_some) {
            return;
        }
        self.finish(rank);
        let bucket = std::mem::take(&mut self.filling);
        self.in_flight =
            Some(rank.issue((self.among, Operation::AllGather), &bucket, self.bytes_per_element));
        if !self.overlap {
            self.finish(rank);
        }
    }

    /// Waits for the bucket in flight.
    pub(crate) fn finish(&mut self, rank: &mut SymbolicRank) {
        if let Some(gather) = self.in_flight.take() {
            rank.wait(gather);
        }
    }
}
