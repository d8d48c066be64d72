//! Units queued for one kind of collective, and the collective in flight.
//!
//! A bucket closes when it holds enough elements, or with the last unit of a pass. At most one
//! closed bucket is in flight: closing the next one first waits for it, so memory is returned at
//! points that the program fixes, never at points that timing fixes. Without overlap, closing a
//! bucket waits for it at once. A unit is never split.
//!
//! Buffers travel from where they are, unless they are to be copied or their element type is not
//! the one that travels: then they are converted as they are queued, into buffers of class
//! [`Class::CommunicationBuckets`]. A buffer of that class is freed by its conversion. Any other is
//! held until the result is converted back into it.
//!
//! Sums are rounded to the type that travels. Parts of a larger sum would be rounded twice: buckets
//! of partial sums return them in f32, before rounding.

use crate::Result;
use crate::partition::UnitId;
use crate::rank::Rank;
use collectives::{Bucket, Group, Pending};
use device::{Buffer, Class, DType};
use events::event::NO_UNIT;

/// The collective that a bucket is for.
pub type Issue = fn(&Group, Bucket) -> std::result::Result<Pending, collectives::CollectiveError>;

/// The group that a rank issues it in.
pub type Among = fn(&Rank) -> &Group;

/// How units are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketOptions {
    /// Elements, padding included, with which a bucket closes.
    pub capacity: usize,
    /// The type of elements that travel.
    pub wire: DType,
    /// Whether buffers of that type travel as copies too.
    pub copied: bool,
    /// Whether the rank continues while a bucket is on its way.
    pub overlap: bool,
    /// The unit that ends a pass.
    pub last: UnitId,
}

/// A queue of units on their way through one kind of collective.
pub struct Buckets {
    issue: Issue,
    among: Among,
    options: BucketOptions,
    /// Whether a unit's result is the sum of the rank's slice alone, before rounding.
    partial: bool,
    filling: Vec<(Origin, Buffer)>,
    in_flight: Option<Flight>,
}

/// A closed bucket.
struct Flight {
    origins: Vec<Origin>,
    pending: Pending,
    /// Buffers for the sums of a group that has rounded them already.
    sums: Vec<Buffer>,
}

/// Where a buffer on its way came from.
struct Origin {
    unit: UnitId,
    /// What the result is converted back into, if anything.
    held: Option<Buffer>,
}

impl Buckets {
    /// Buckets that go through `issue`, among the ranks that share one copy of the model states.
    pub fn new(issue: Issue, options: BucketOptions) -> Self {
        Buckets {
            issue,
            among: Rank::shard_group,
            options,
            partial: false,
            filling: Vec::new(),
            in_flight: None,
        }
    }

    /// These buckets, reduce-scattered for sums which are parts of larger ones. If the type that
    /// travels is narrower than f32, what comes back of a unit is this rank's slice in f32 alone,
    /// of class [`Class::CommunicationBuckets`]. A group that does not
    /// [sum exactly](Group::sums_exactly) has rounded it; any other has not.
    pub fn of_partial_sums(self) -> Self {
        Buckets { partial: self.options.wire != DType::F32, ..self }
    }

    /// These buckets, issued in another group.
    pub fn among(self, among: Among) -> Self {
        Buckets { among, ..self }
    }

    /// Queues `unit`. Returns the units that have come back from a collective by then, with their
    /// buffers.
    ///
    /// # Errors
    /// If a collective fails, or there is no memory for a conversion.
    pub fn push(&mut self, rank: &Rank, unit: UnitId, buffer: Buffer) -> Result<Vec<(UnitId, Buffer)>> {
        let (held, buffer) = self.convert(rank, buffer)?;
        self.filling.push((Origin { unit, held }, buffer));
        let filled: usize = self.filling.iter().map(|(_, buffer)| buffer.len()).sum();
        if filled < self.options.capacity && unit != self.options.last {
            return Ok(Vec::new());
        }
        let mut done = self.finish(rank)?;
        let (origins, buffers): (Vec<Origin>, Vec<Buffer>) = self.filling.drain(..).unzip();
        let units: Vec<UnitId> = origins.iter().map(|origin| origin.unit).collect();
        let (pending, sums) = self.start(rank, bucket(buffers, &units))?;
        self.in_flight = Some(Flight { origins, pending, sums });
        if !self.options.overlap {
            done.extend(self.finish(rank)?);
        }
        Ok(done)
    }

    /// Issues a bucket's collective. Returns it with the buffers for sums that
    /// [`Buckets::partial_sums`] still has to fill.
    fn start(&self, rank: &Rank, bucket: Bucket) -> Result<(Pending, Vec<Buffer>)> {
        let group = (self.among)(rank);
        if !self.partial {
            return Ok(((self.issue)(group, bucket)?, Vec::new()));
        }
        let (class, slice) =
            (Class::CommunicationBuckets, |full: &Buffer| full.len() / group.size() as usize);
        let places = bucket.buffers.iter().map(|full| rank.device.allocate(class, DType::F32, slice(full)));
        let sums = places.collect::<device::Result<Vec<_>>>()?;
        if group.sums_exactly() {
            return Ok((group.reduce_scatter_exact(bucket, sums)?, Vec::new()));
        }
        Ok(((self.issue)(group, bucket)?, sums))
    }

    /// Waits for the bucket in flight and returns its units with their buffers.
    ///
    /// # Errors
    /// If the collective fails, or there is no memory to round its result.
    pub fn finish(&mut self, rank: &Rank) -> Result<Vec<(UnitId, Buffer)>> {
        let Some(Flight { origins, pending, sums }) = self.in_flight.take() else { return Ok(Vec::new()) };
        let mut results = pending.wait()?;
        if self.partial {
            results = self.partial_sums(rank, results, sums)?;
        }
        let mut done = Vec::new();
        for (Origin { unit, held }, result) in origins.into_iter().zip(results) {
            let Some(mut held) = held else {
                done.push((unit, result));
                continue;
            };
            rank.kernels().copy(held.view_mut(), result.view())?;
            done.push((unit, held));
        }
        Ok(done)
    }

    /// Frees the units that are queued or on their way, in a group that is [winding
    /// down](Group::wind_down): no update follows.
    pub fn abort(&mut self) {
        self.filling.clear();
        self.in_flight = None;
    }

    /// Returns the sums of this rank's slices in f32. A group that sums exactly appends them to
    /// `buffers`; else they are copied out of `buffers` into `sums`.
    fn partial_sums(
        &self,
        rank: &Rank,
        mut buffers: Vec<Buffer>,
        mut sums: Vec<Buffer>,
    ) -> Result<Vec<Buffer>> {
        if sums.is_empty() {
            return Ok(buffers.split_off(buffers.len() / 2));
        }
        let place = (self.among)(rank).rank() as usize;
        for (sum, full) in sums.iter_mut().zip(&buffers) {
            let own = place * sum.len()..(place + 1) * sum.len();
            rank.kernels().copy(sum.view_mut(), full.slice(own))?;
        }
        Ok(sums)
    }

    /// Returns the buffer to hold until the result is back, if any, and the buffer that travels.
    fn convert(&self, rank: &Rank, buffer: Buffer) -> Result<(Option<Buffer>, Buffer)> {
        let BucketOptions { wire, copied, .. } = self.options;
        if buffer.dtype() == wire && !copied {
            return Ok((None, buffer));
        }
        let mut converted = rank.device.allocate(Class::CommunicationBuckets, wire, buffer.len())?;
        rank.kernels().copy(converted.view_mut(), buffer.view())?;
        let held = Some(buffer).filter(|buffer| buffer.class() != Class::CommunicationBuckets);
        Ok((held, converted))
    }
}

/// A bucket of `buffers` that hold `units`, for [`Group`]'s collectives.
pub fn bucket(buffers: Vec<Buffer>, units: &[UnitId]) -> Bucket {
    let first_unit = units.iter().min().map_or(NO_UNIT, |&unit| unit as u16);
    Bucket { buffers, first_unit, units: units.len() as u16 }
}
