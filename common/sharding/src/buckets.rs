//! Units queued for one collective, and collectives in flight.
//!
//! A bucket closes when it holds enough elements, or with the last unit of a pass. At most one closed bucket is in
//! flight: closing the next one first waits for it, so memory is returned at points that the program fixes, never at
//! points that timing fixes. A unit is never split.

use crate::Result;
use crate::partition::UnitId;
use crate::rank::Rank;
use collectives::{Bucket, Group, Pending};
use device::Buffer;
use events::event::NO_UNIT;

/// The collective that a bucket is for.
pub type Issue = fn(&Group, Bucket) -> std::result::Result<Pending, collectives::CollectiveError>;

/// A queue of units on their way through one kind of collective.
pub struct Buckets {
    issue: Issue,
    capacity: usize,
    last: UnitId,
    filling: Vec<(UnitId, Buffer)>,
    in_flight: Option<(Vec<UnitId>, Pending)>,
}

impl Buckets {
    /// Buckets of at least `capacity` elements that go through `issue`; `last` is the unit that ends a pass.
    pub fn new(issue: Issue, capacity: usize, last: UnitId) -> Self {
        Buckets { issue, capacity, last, filling: Vec::new(), in_flight: None }
    }

    /// Queues `unit`. Returns the units that came back from a collective to make room, with their buffers.
    ///
    /// # Errors
    /// If a collective fails.
    pub fn push(&mut self, rank: &Rank, unit: UnitId, buffer: Buffer) -> Result<Vec<(UnitId, Buffer)>> {
        self.filling.push((unit, buffer));
        let filled: usize = self.filling.iter().map(|(_, buffer)| buffer.len()).sum();
        if filled < self.capacity && unit != self.last {
            return Ok(Vec::new());
        }
        let done = self.finish()?;
        let (units, buffers): (Vec<UnitId>, Vec<Buffer>) = self.filling.drain(..).unzip();
        let bucket = bucket(buffers, &units);
        self.in_flight = Some((units, (self.issue)(&rank.group, bucket)?));
        Ok(done)
    }

    /// Waits for the bucket in flight and returns its units with their buffers.
    ///
    /// # Errors
    /// If the collective fails.
    pub fn finish(&mut self) -> Result<Vec<(UnitId, Buffer)>> {
        let Some((units, pending)) = self.in_flight.take() else { return Ok(Vec::new()) };
        Ok(units.into_iter().zip(pending.wait()?).collect())
    }
}

/// A bucket of `buffers` that hold `units`, for [`Group`]'s collectives.
pub fn bucket(buffers: Vec<Buffer>, units: &[UnitId]) -> Bucket {
    let first_unit = units.iter().min().map_or(NO_UNIT, |&unit| unit as u16);
    Bucket { buffers, first_unit, units: units.len() as u16 }
}
