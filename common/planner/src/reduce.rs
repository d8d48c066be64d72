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

/// A unit's gradients on their way.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) unit: usize,
    pub(crate) elements: u64,
    /// Whether this is backward's last unit.
    pub(crate) ends_pass: bool,
    /// Whether this backward is the step's last.
    pub(crate) ends_step: bool,
}

/// What one bucket takes along, and the full gradients or copies that are held meanwhile.
pub(crate) type Bucket = Vec<(Part, Option<Held>)>;

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
    filling: Bucket,
    in_flight: Bucket,
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
            filling: Vec::new(),
            in_flight: Vec::new(),
        }
    }

    /// The same for shards, of which there are `shards`: those of a bucket are a bucket again.
    pub(crate) fn of_shards(self, shards: u64) -> Self {
        Reducer { size: self.size.div_ceil(shards), ..self }
    }

    /// A place for the full gradients of `unit`, for backward to write to: allocated unless a persistent one exists
    /// or an earlier layer of this backward has it already.
    pub(crate) fn acquire(&mut self, books: &mut Books, partition: &Partition, unit: usize) {
        if self.temporary && self.full[unit].is_none() {
            let bytes = partition.units[unit].padded * self.bytes_per_element;
            self.full[unit] = Some(books.allocate(Class::CommunicationBuckets, bytes));
        }
    }

    /// The gradients of `part` are complete. Closes the bucket if it is full or the pass ends; what came back meanwhile.
    pub(crate) fn reduce(&mut self, books: &mut Books, tally: &mut Tally, part: Part) -> Bucket {
        let full = self.full[part.unit].take();
        // A conversion reads the full gradients, and frees them if they are temporary.
        let travels = match self.converted {
            None => full,
            Some(bytes) => {
                let converted = books.allocate(Class::CommunicationBuckets, part.elements * bytes);
                books.free_all(full);
                Some(converted)
            }
        };
        self.filling.push((part, travels));
        let open: Vec<u64> = self.filling.iter().map(|(part, _)| part.elements).collect();
        if !part.ends_pass && open.iter().sum::<u64>() < self.size {
            return Vec::new();
        }
        let mut back = self.wait();
        let bytes = self.converted.unwrap_or(self.bytes_per_element);
        tally.collective(self.among, self.operation, &open, bytes);
        self.in_flight = std::mem::take(&mut self.filling);
        if !self.overlap {
            back.extend(self.wait());
        }
        back
    }

    /// Waits for the bucket in flight.
    pub(crate) fn wait(&mut self) -> Bucket {
        std::mem::take(&mut self.in_flight)
    }
}
