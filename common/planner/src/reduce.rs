//! Gradients: units fill buckets, and a bucket is reduced as one while backward goes on.
//!
//! Gradients that travel as copies, or in another element type, are converted as their unit joins the bucket.

use crate::books::{Books, Held};
use crate::job::Job;
use crate::partition::Partition;
use crate::traffic::{Among, Tally};
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
    among: Among,
    operation: Operation,
    size: u64,
    bytes_per_element: u64,
    /// Whether full gradients live only until they are reduced.
    temporary: bool,
    /// Bytes per element on the wire, if gradients are converted or copied on their way there.
    converted: Option<u64>,
    /// Whether backward goes on while a bucket is reduced.
    overlap: bool,
    full: Vec<Option<Held>>,
    /// The open bucket's units, in elements, and their full gradients.
    open: Vec<u64>,
    filling: Vec<Held>,
    in_flight: Vec<Held>,
}

impl Reducer {
    /// Nothing in flight.
    pub(crate) fn new(job: &Job, partition: &Partition, (among, operation): (Among, Operation)) -> Self {
        Reducer {
            among,
            operation,
            size: job.reduce_bucket.unwrap_or(partition.largest()),
            bytes_per_element: job.recipe.gradients,
            temporary: job.stage.sharded().gradients,
            converted: job.converted_gradients,
            overlap: job.overlap,
            full: partition.units.iter().map(|_| None).collect(),
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

    /// `elements` gradients of `unit` are complete. Closes the bucket if it is full or this is the pass's `last` unit.
    pub(crate) fn reduce(
        &mut self,
        books: &mut Books,
        tally: &mut Tally,
        (unit, elements): (usize, u64),
        last: bool,
    ) {
        self.open.push(elements);
        // A conversion reads the full gradients, and frees them if they are temporary.
        let converted =
            self.converted.map(|bytes| books.allocate(Class::CommunicationBuckets, elements * bytes));
        let full = self.full[unit].take();
        match converted {
            None => self.filling.extend(full),
            Some(converted) => {
                books.free_all(full);
                self.filling.push(converted);
            }
        }
        if last || self.open.iter().sum::<u64>() >= self.size {
            self.wait(books);
            let bytes = self.converted.unwrap_or(self.bytes_per_element);
            tally.collective(self.among, self.operation, &std::mem::take(&mut self.open), bytes);
            self.in_flight = std::mem::take(&mut self.filling);
        }
        if !self.overlap {
            self.wait(books);
        }
    }

    /// Waits for the bucket in flight, and frees its full gradients.
    pub(crate) fn wait(&mut self, books: &mut Books) {
        books.free_all(std::mem::take(&mut self.in_flight));
    }
}
