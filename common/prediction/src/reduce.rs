//! The reduction of gradients: units fill buckets, and one collective reduces a bucket while
//! backward continues.
//!
//! If gradients are reduced as copies or in another element type, a unit's gradients are converted
//! when it joins the bucket. If several groups hold copies of the model states, a group's sums are
//! not rounded to 16 bits: they are produced in f32, in separate buffers, and summed over the
//! groups in f32.

use crate::job::Job;
use crate::ledger::Allocation;
use crate::partition::Partition;
use crate::rank::{InFlight, SymbolicRank};
use crate::recipe::F32;
use crate::traffic::Among;
use events::{Class, Operation};

/// The gradients of a unit that backward has completed.
#[derive(Clone, Copy)]
pub(crate) struct UnitGradients {
    pub(crate) unit: usize,
    pub(crate) elements: u64,
    /// Whether this is backward's last unit.
    pub(crate) ends_pass: bool,
    /// Whether this backward is the step's last.
    pub(crate) ends_step: bool,
}

/// The units of one bucket, each with the buffer that holds its full gradients, copies or partial
/// sums; `None` if no buffer was allocated for them.
pub(crate) type Bucket = Vec<(UnitGradients, Option<Allocation>)>;

/// The reduction of gradients on one rank.
pub(crate) struct Reducer {
    among: Among,
    operation: Operation,
    size: u64,
    bytes_per_element: u64,
    /// Whether full gradients live only until their reduction ends.
    temporary: bool,
    /// Bytes per element in the collective; `None` if gradients are not converted or copied for it.
    converted: Option<u64>,
    /// Number of slices per unit if the result of a unit is the partial sum of one slice in f32;
    /// else `None`.
    partial: Option<u64>,
    /// Bytes per element of the buffer in which each result is rounded; `None` if results are not
    /// rounded.
    rounded: Option<u64>,
    /// Whether backward continues while a bucket is reduced.
    overlap: bool,
    full: Vec<Option<Allocation>>,
    filling: Bucket,
    in_flight: Bucket,
    /// The collective of the bucket in flight.
    issued: Option<InFlight>,
    /// Buffers for the partial sums of the bucket in flight.
    sums: Vec<Allocation>,
}

impl Reducer {
    /// Returns a reduction with nothing in flight.
    pub(crate) fn new(job: &Job, partition: &Partition, (among, operation): (Among, Operation)) -> Self {
        let travels = job.wire_copy_bytes().unwrap_or(job.recipe.gradients);
        let partial = job.strategy.forms_groups() && travels < F32;
        Reducer {
            among,
            operation,
            size: job.reduce_bucket.unwrap_or(partition.largest()),
            bytes_per_element: job.recipe.gradients,
            temporary: job.stage.sharded().gradients,
            converted: job.wire_copy_bytes(),
            partial: partial.then(|| job.shards()),
            rounded: None,
            overlap: job.overlap,
            full: partition.units.iter().map(|_| None).collect(),
            filling: Vec::new(),
            in_flight: Vec::new(),
            issued: None,
            sums: Vec::new(),
        }
    }

    /// Turns this reduction of full units into a reduction of their `shards` shards: the shards of
    /// a bucket form a bucket. Partial sums are reduced in f32, and their sum is rounded to the
    /// type in which other gradients are reduced.
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

    /// Allocates a buffer for the full gradients of `unit`, to which backward writes. Does nothing
    /// if a persistent buffer exists, or if an earlier layer of this backward has allocated it.
    pub(crate) fn acquire(&mut self, rank: &mut SymbolicRank, partition: &Partition, unit: usize) {
        if self.temporary && self.full[unit].is_none() {
            let bytes = partition.units[unit].padded * self.bytes_per_element;
            self.full[unit] = Some(rank.allocate(Class::CommunicationBuckets, bytes));
        }
    }

    /// Adds the complete gradients of `part` to the open bucket. If it is full, or the pass ends,
    /// reduces it; returns the buckets whose reduction has ended.
    pub(crate) fn reduce(&mut self, rank: &mut SymbolicRank, part: UnitGradients) -> Bucket {
        let full = self.full[part.unit].take();
        self.queue(rank, part, full)
    }

    /// Adds `part`, whose gradients are in `full`, to the open bucket: see [`Reducer::reduce`].
    pub(crate) fn queue(
        &mut self,
        rank: &mut SymbolicRank,
        part: UnitGradients,
        full: Option<Allocation>,
    ) -> Bucket {
        // The conversion reads the full gradients; temporary ones are freed after it.
        let travels = match self.converted {
            None => full,
            Some(bytes) => {
                let converted = rank.allocate(Class::CommunicationBuckets, part.elements * bytes);
                rank.free_all(full);
                Some(converted)
            }
        };
        self.filling.push((part, travels));
        let open: Vec<(usize, u64)> =
            self.filling.iter().map(|(part, _)| (part.unit, part.elements)).collect();
        if !part.ends_pass && open.iter().map(|(_, elements)| elements).sum::<u64>() < self.size {
            return Vec::new();
        }
        let mut back = self.wait(rank);
        let bytes = self.converted.unwrap_or(self.bytes_per_element);
        if let Some(slices) = self.partial {
            let place = |(_, elements)| rank.allocate(Class::CommunicationBuckets, elements / slices * F32);
            self.sums = open.iter().copied().map(place).collect();
        }
        self.issued = Some(rank.issue((self.among, self.operation), &open, bytes, &[]));
        self.in_flight = std::mem::take(&mut self.filling);
        if !self.overlap {
            back.extend(self.wait(rank));
        }
        back
    }

    /// Waits for the bucket in flight and returns it. Partial sums replace the buffers that were
    /// reduced; results that are rounded are rounded one by one.
    pub(crate) fn wait(&mut self, rank: &mut SymbolicRank) -> Bucket {
        if let Some(issued) = self.issued.take() {
            rank.wait(issued);
        }
        let mut back = std::mem::take(&mut self.in_flight);
        if self.partial.is_some() {
            let sums = std::mem::take(&mut self.sums);
            let reduced = back.iter_mut().zip(sums).map(|((_, held), sum)| held.replace(sum));
            let reduced: Vec<Allocation> = reduced.flatten().collect();
            rank.free_all(reduced);
        }
        if let Some(bytes) = self.rounded {
            for (part, held) in &mut back {
                let rounded = rank.allocate(Class::CommunicationBuckets, part.elements * bytes);
                rank.free_all(held.replace(rounded));
                rank.free_all(held.take());
            }
        }
        back
    }

    /// True if results are partial sums.
    pub(crate) fn sums_partly(&self) -> bool {
        self.partial.is_some()
    }
}
