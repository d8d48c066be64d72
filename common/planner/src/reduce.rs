//! Gradients: units fill buckets, and a bucket is reduced as one while backward goes on.

use crate::books::{Books, Held};
use crate::partition::Partition;
use crate::traffic::Tally;
use events::{Class, Operation};

/// Units in order, cut into buckets: one closes once it has `size` elements, or with the last unit.
pub(crate) fn buckets(units: impl IntoIterator<Item = u64>, size: u64) -> Vec<Vec<u64>> {
    let mut buckets = Vec::new();
    let mut open = Vec::new();
    for elements in units {
        open.push(elements);
        if open.iter().sum::<u64>() >= size {
            buckets.push(std::mem::take(&mut open));
        }
    }
    if !open.is_empty() {
        buckets.push(open);
    }
    buckets
}

/// The reduction of gradients on one rank.
pub(crate) struct Reducer {
    operation: Operation,
    size: u64,
    bytes_per_element: u64,
    /// Whether full gradients live only until they are reduced.
    temporary: bool,
    full: Vec<Option<Held>>,
    /// The open bucket's units, in elements, and their full gradients.
    open: Vec<u64>,
    filling: Vec<Held>,
    in_flight: Vec<Held>,
}

impl Reducer {
    /// Nothing in flight; buckets of `size` elements.
    pub(crate) fn new(
        units: usize,
        operation: Operation,
        size: u64,
        bytes_per_element: u64,
        temporary: bool,
    ) -> Self {
        let full = (0..units).map(|_| None).collect();
        Reducer {
            operation,
            size,
            bytes_per_element,
            temporary,
            full,
            open: Vec::new(),
            filling: Vec::new(),
            in_flight: Vec::new(),
        }
    }

    /// A place for the full gradients of `unit`, for backward to write to: allocated unless a persistent one exists
    /// or an earlier layer of this backward has it already.
    pub(crate) fn acquire(&mut self, books: &mut Books, partition: &Partition, unit: usize) {
        if self.temporary && self.full[unit].is_none() {
            let bytes = partition.units[unit].padded * self.bytes_per_element;
            self.full[unit] = Some(books.allocate(Class::CommunicationBuckets, bytes));
        }
    }

    /// `unit`'s gradients are complete. Closes the bucket if it is full or this is the pass's `last` unit.
    pub(crate) fn reduce(
        &mut self,
        books: &mut Books,
        partition: &Partition,
        tally: &mut Tally,
        unit: usize,
        last: bool,
    ) {
        self.open.push(partition.units[unit].padded);
        self.filling.extend(self.full[unit].take());
        if last || self.open.iter().sum::<u64>() >= self.size {
            self.wait(books);
            tally.collective(self.operation, &std::mem::take(&mut self.open), self.bytes_per_element);
            self.in_flight = std::mem::take(&mut self.filling);
        }
    }

    /// Waits for the bucket in flight, and frees its full gradients.
    pub(crate) fn wait(&mut self, books: &mut Books) {
        books.free_all(std::mem::take(&mut self.in_flight));
    }
}
