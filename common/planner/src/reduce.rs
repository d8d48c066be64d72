//! Gradients: units fill buckets, and a bucket is reduced as one while backward goes on.
//!
//! Gradients that travel as copies, or in another element type, are converted as their unit joins the bucket. Sums over one
//! of several copies of the model states are not rounded to 16 bits: they come out in f32, beside what is reduced, and go on
//! so to be summed over copies.

use crate::job::Job;
use crate::ledger::{Allocation, SymbolicLedger};
use crate::partition::Partition;
use crate::strategy::Strategy;
use crate::traffic::{Among, ByteCounter};
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
pub(crate) struct UnitGradients {
    pub(crate) unit: usize,
    pub(crate) elements: u64,
    /// Whether this is backward's last unit.
    pub(crate) ends_pass: bool,
    /// Whether this backward is the step's last.
    pub(crate) ends_step: bool,
}

/// Bytes per element of a sum that is not rounded.
pub(crate) const F32: u64 = 4;

/// What one bucket takes along, and the full gradients, copies or partial sums that are held meanwhile.
pub(crate) type Bucket = Vec<(UnitGradients, Option<Allocation>)>;

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
    /// Slices per unit, if what comes out of a unit is its sum over one slice in f32.
    partial: Option<u64>,
    /// Bytes per element of a buffer in which each result is rounded before it is converted back, if there is one.
    rounded: Option<u64>,
    /// Whether backward goes on while a bucket is reduced.
    overlap: bool,
    full: Vec<Option<Allocation>>,
    filling: Bucket,
    in_flight: Bucket,
    /// Places for the partial sums of what is in flight.
    sums: Vec<Allocation>,
}

impl Reducer {
    /// Nothing in flight.
    pub(crate) fn new(job: &Job, partition: &Partition, (among, operation): (Among, Operation)) -> Self {
        let travels = job.made_for_the_wire().unwrap_or(job.recipe.gradients);
        let partial = job.strategy == Strategy::HybridShard && travels < F32;
        Reducer {
            among,
            operation,
            size: job.reduce_bucket.unwrap_or(partition.largest()),
            bytes_per_element: job.recipe.gradients,
            temporary: job.stage.sharded().gradients,
            converted: job.made_for_the_wire(),
            partial: partial.then(|| job.shards()),
            rounded: None,
            overlap: job.overlap,
            full: partition.units.iter().map(|_| None).collect(),
            filling: Vec::new(),
            in_flight: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// The same for shards, of which there are `shards`: those of a bucket are a bucket again. Partial sums travel as they
    /// are, and their sum is rounded to what others travel in.
    pub(crate) fn of_shards(self, shards: u64) -> Self {
        let size = self.size.div_ceil(shards);
        match self.partial {
            None => Reducer { size, ..self },
            Some(_) => {
                let rounded = self.converted;
                Reducer { size, bytes_per_element: F32, converted: None, partial: None, rounded, ..self }
            }
        }
    }

    /// A place for the full gradients of `unit`, for backward to write to: allocated unless a persistent one exists
    /// or an earlier layer of this backward has it already.
    pub(crate) fn acquire(&mut self, ledger: &mut SymbolicLedger, partition: &Partition, unit: usize) {
        if self.temporary && self.full[unit].is_none() {
            let bytes = partition.units[unit].padded * self.bytes_per_element;
            self.full[unit] = Some(ledger.allocate(Class::CommunicationBuckets, bytes));
        }
    }

    /// The gradients of `part` are complete. Closes the bucket if it is full or the pass ends; what came back meanwhile.
    pub(crate) fn reduce(
        &mut self,
        ledger: &mut SymbolicLedger,
        counter: &mut ByteCounter,
        part: UnitGradients,
    ) -> Bucket {
        let full = self.full[part.unit].take();
        self.queue(ledger, counter, part, full)
    }

    /// The same with what is held of `part` until it is reduced.
    pub(crate) fn queue(
        &mut self,
        ledger: &mut SymbolicLedger,
        counter: &mut ByteCounter,
        part: UnitGradients,
        full: Option<Allocation>,
    ) -> Bucket {
        // A conversion reads the full gradients, and frees them if they are temporary.
        let travels = match self.converted {
            None => full,
            Some(bytes) => {
                let converted = ledger.allocate(Class::CommunicationBuckets, part.elements * bytes);
                ledger.free_all(full);
                Some(converted)
            }
        };
        self.filling.push((part, travels));
        let open: Vec<u64> = self.filling.iter().map(|(part, _)| part.elements).collect();
        if !part.ends_pass && open.iter().sum::<u64>() < self.size {
            return Vec::new();
        }
        let mut back = self.wait(ledger);
        let bytes = self.converted.unwrap_or(self.bytes_per_element);
        counter.collective(self.among, self.operation, &open, bytes);
        if let Some(slices) = self.partial {
            let place = |elements| ledger.allocate(Class::CommunicationBuckets, elements / slices * F32);
            self.sums = open.into_iter().map(place).collect();
        }
        self.in_flight = std::mem::take(&mut self.filling);
        if !self.overlap {
            back.extend(self.wait(ledger));
        }
        back
    }

    /// Waits for the bucket in flight. Of partial sums, what was reduced is freed; results that are to be rounded are so one
    /// after the other.
    pub(crate) fn wait(&mut self, ledger: &mut SymbolicLedger) -> Bucket {
        let mut back = std::mem::take(&mut self.in_flight);
        if self.partial.is_some() {
            let sums = std::mem::take(&mut self.sums);
            let reduced = back.iter_mut().zip(sums).map(|((_, held), sum)| held.replace(sum));
            let reduced: Vec<Allocation> = reduced.flatten().collect();
            ledger.free_all(reduced);
        }
        if let Some(bytes) = self.rounded {
            for (part, held) in &mut back {
                let rounded = ledger.allocate(Class::CommunicationBuckets, part.elements * bytes);
                ledger.free_all(held.replace(rounded));
                ledger.free_all(held.take());
            }
        }
        back
    }

    /// Whether what comes out is partial sums.
    pub(crate) fn sums_partly(&self) -> bool {
        self.partial.is_some()
    }
}
