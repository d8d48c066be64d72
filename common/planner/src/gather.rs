//! Full parameters of sharded units: gathered before a layer needs them, freed after the last one that does.

use crate::books::{Books, Held};
use crate::partition::Partition;
use crate::traffic::{Among, Tally};
use events::{Class, Operation};

/// The gathered units of one rank.
pub(crate) struct GatherWindow {
    full: Vec<Option<Held>>,
    /// The pass's units in the order in which they are first needed, and how many have been acquired.
    order: Vec<usize>,
    acquired: usize,
    /// Among whom this pass gathers.
    among: Among,
    ahead: usize,
    bytes_per_element: u64,
}

impl GatherWindow {
    /// An empty window that gathers up to `ahead` units before they are needed.
    pub(crate) fn new(units: usize, ahead: usize, bytes_per_element: u64) -> Self {
        let full = (0..units).map(|_| None).collect();
        GatherWindow { full, order: Vec::new(), acquired: 0, among: Among::World, ahead, bytes_per_element }
    }

    /// Begins a pass that will acquire `order`'s units one by one, each once, and gather them among
    /// `among`. Nothing is gathered before its first acquisition.
    pub(crate) fn begin(&mut self, order: Vec<usize>, among: Among) {
        self.among = among;
        self.order = order;
        self.acquired = 0;
    }

    /// Acquires the next unit of the pass; it and the units ahead of it are gathered unless they are already.
    pub(crate) fn acquire(&mut self, books: &mut Books, partition: &Partition, tally: &mut Tally) {
        let window = self.acquired..(self.acquired + 1 + self.ahead).min(self.order.len());
        for &unit in &self.order[window] {
            if self.full[unit].is_none() {
                let elements = partition.units[unit].padded;
                self.full[unit] =
                    Some(books.allocate(Class::GatheredParameters, elements * self.bytes_per_element));
                tally.collective(self.among, Operation::AllGather, &[elements], self.bytes_per_element);
            }
        }
        self.acquired += 1;
    }

    /// Frees the full copy of `unit`.
    pub(crate) fn release(&mut self, books: &mut Books, unit: usize) {
        books.free_all(self.full[unit].take());
    }
}
