//! Units queued for one collective, and collectives in flight.
//!
//! A bucket closes when it holds enough elements, or with the last unit of a pass. At most one closed bucket is in
//! flight: closing the next one first waits for it, so memory is returned at points that the program fixes, never at
//! points that timing fixes. Without overlap, closing a bucket waits for it at once. A unit is never split.
//!
//! Buffers travel from where they are, unless they are to be copied or their element type is not the one that travels:
//! then they are converted as they are queued, into buffers of class [`Class::CommunicationBuckets`]. A buffer of that
//! class is freed by its conversion; any other is held meanwhile, and the result is converted back into it.

use crate::Result;
use crate::partition::UnitId;
use crate::rank::Rank;
use collectives::{Bucket, Group, Pending};
use device::{Buffer, Class, DType, View};
use events::event::NO_UNIT;

/// The collective that a bucket is for.
pub type Issue = fn(&Group, Bucket) -> std::result::Result<Pending, collectives::CollectiveError>;

/// Among whom.
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
    /// Whether the rank goes on while a bucket is on its way.
    pub overlap: bool,
    /// The unit that ends a pass.
    pub last: UnitId,
}

/// A queue of units on their way through one kind of collective.
pub struct Buckets {
    issue: Issue,
    among: Among,
    options: BucketOptions,
    filling: Vec<(Origin, Buffer)>,
    in_flight: Option<(Vec<Origin>, Pending)>,
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
        Buckets { issue, among: Rank::shard_group, options, filling: Vec::new(), in_flight: None }
    }

    /// The same among others.
    pub fn among(self, among: Among) -> Self {
        Buckets { among, ..self }
    }

    /// Queues `unit`. Returns the units that came back from a collective meanwhile, with their buffers.
    ///
    /// # Errors
    /// If a collective fails, or there is no memory for a conversion.
    pub fn push(&mut self, rank: &Rank, unit: UnitId, buffer: Buffer) -> Result<Vec<(UnitId, Buffer)>> {
        let (held, buffer) = self.convert(rank, buffer)?;
        self.queue(rank, Origin { unit, held }, buffer)
    }

    /// The same with `more` added to the buffer first: in the wider of the buffer's type and the one that travels.
    ///
    /// # Errors
    /// As [`Buckets::push`].
    pub fn push_sum(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        mut buffer: Buffer,
        more: View<'_>,
    ) -> Result<Vec<(UnitId, Buffer)>> {
        if buffer.dtype().size() >= self.options.wire.size() {
            rank.kernels().add(buffer.view_mut(), more)?;
            return self.push(rank, unit, buffer);
        }
        let (held, mut buffer) = self.convert(rank, buffer)?;
        rank.kernels().add(buffer.view_mut(), more)?;
        self.queue(rank, Origin { unit, held }, buffer)
    }

    /// Queues what travels.
    fn queue(&mut self, rank: &Rank, origin: Origin, buffer: Buffer) -> Result<Vec<(UnitId, Buffer)>> {
        let unit = origin.unit;
        self.filling.push((origin, buffer));
        let filled: usize = self.filling.iter().map(|(_, buffer)| buffer.len()).sum();
        if filled < self.options.capacity && unit != self.options.last {
            return Ok(Vec::new());
        }
        let mut done = self.finish(rank)?;
        let (origins, buffers): (Vec<Origin>, Vec<Buffer>) = self.filling.drain(..).unzip();
        let units: Vec<UnitId> = origins.iter().map(|origin| origin.unit).collect();
        self.in_flight = Some((origins, (self.issue)((self.among)(rank), bucket(buffers, &units))?));
        if !self.options.overlap {
            done.extend(self.finish(rank)?);
        }
        Ok(done)
    }

    /// Waits for the bucket in flight and returns its units with their buffers.
    ///
    /// # Errors
    /// If the collective fails.
    pub fn finish(&mut self, rank: &Rank) -> Result<Vec<(UnitId, Buffer)>> {
        let Some((origins, pending)) = self.in_flight.take() else { return Ok(Vec::new()) };
        let mut done = Vec::new();
        for (Origin { unit, held }, result) in origins.into_iter().zip(pending.wait()?) {
            done.push((unit, convert_back(rank, held, result)?));
        }
        Ok(done)
    }

    /// What is held meanwhile, and what travels.
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

fn convert_back(rank: &Rank, held: Option<Buffer>, result: Buffer) -> Result<Buffer> {
    let Some(mut held) = held else { return Ok(result) };
    rank.kernels().copy(held.view_mut(), result.view())?;
    Ok(held)
}

/// A bucket of `buffers` that hold `units`, for [`Group`]'s collectives.
pub fn bucket(buffers: Vec<Buffer>, units: &[UnitId]) -> Bucket {
    let first_unit = units.iter().min().map_or(NO_UNIT, |&unit| unit as u16);
    Bucket { buffers, first_unit, units: units.len() as u16 }
}
