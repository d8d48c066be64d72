//! Units queued for one kind of collective, and the collectives in flight.
//!
//! A bucket closes when it holds enough elements, or with the last unit of a pass. Closing one
//! waits for the oldest in flight if there are [as many as may be](BucketOptions::in_flight), so
//! memory is freed at fixed points of the program, whatever the timing. A unit is never split.
//!
//! A collective uses a unit's buffer in place, unless the buffer must be copied or its element type
//! differs from the type that travels: then it is converted into a buffer of class
//! [`Class::CommunicationBuckets`] when it is queued. The conversion frees a buffer of that class.
//! Any other buffer is kept until the result is converted back into it.
//!
//! Sums are rounded to the type that travels. Parts of a larger sum would be rounded twice: buckets
//! of partial sums return them in f32, before rounding.

use crate::Result;
use crate::partition::UnitId;
use crate::rank::Rank;
use collectives::{Bucket, Group, Pending};
use device::{Buffer, Class, DType};
use std::collections::VecDeque;

/// Issues the collective of a bucket.
pub type Issue = fn(&Group, Bucket) -> std::result::Result<Pending, collectives::CollectiveError>;

/// Returns the group in which a rank issues the collective.
pub type GroupSelector = fn(&Rank) -> &Group;

/// How units are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketOptions {
    /// A bucket closes once it holds this many elements, padding included.
    pub capacity: usize,
    /// The element type that travels.
    pub wire: DType,
    /// True if a buffer is copied even if it already has the wire type.
    pub always_copies: bool,
    /// The most closed buckets that are in flight while the rank continues; 0 without overlap.
    pub in_flight: usize,
    /// The unit that ends a pass.
    pub last: UnitId,
}

/// A queue of units for one kind of collective.
pub struct Buckets {
    issue: Issue,
    among: GroupSelector,
    options: BucketOptions,
    /// True if a unit's result is this rank's slice of the sum alone, in f32: rounded already if
    /// the group does not [sum exactly](Group::sums_exactly).
    returns_f32_slice: bool,
    filling: Vec<(Origin, Buffer)>,
    /// Closed buckets, the oldest first.
    in_flight: VecDeque<Flight>,
}

/// A closed bucket.
struct Flight {
    origins: Vec<Origin>,
    pending: Pending,
    results: Results,
}

/// Where a bucket's results are once its collective is done.
enum Results {
    /// In the buffers that travelled.
    InPlace,
    /// After the buffers that travelled: per unit, this rank's slice of the sum in f32, which the
    /// group has not rounded.
    Appended,
    /// In the buffers that travelled, rounded by the group. This rank's slices are copied to these
    /// buffers, which are f32.
    Rounded(Vec<Buffer>),
}

/// The origin of a buffer in flight.
struct Origin {
    unit: UnitId,
    /// The buffer that the result is converted back into; `None` if the buffer travels itself, or
    /// was freed by its conversion.
    held: Option<Buffer>,
}

impl Buckets {
    /// Returns buckets whose collective `issue` issues, among the ranks that share one copy of the
    /// model states.
    pub fn new(issue: Issue, options: BucketOptions) -> Self {
        Buckets {
            issue,
            among: Rank::shard_group,
            options,
            returns_f32_slice: false,
            filling: Vec::new(),
            in_flight: VecDeque::new(),
        }
    }

    /// Returns these buckets, reduce-scattered for sums which are parts of larger ones. If the type
    /// that travels is narrower than f32, the result of a unit is this rank's slice alone, in f32,
    /// of class [`Class::CommunicationBuckets`]. A group that does not [sum
    /// exactly](Group::sums_exactly) has rounded it; any other has not.
    pub fn of_partial_sums(self) -> Self {
        Buckets { returns_f32_slice: self.options.wire != DType::F32, ..self }
    }

    /// Returns these buckets, issued in another group.
    pub fn among(self, among: GroupSelector) -> Self {
        Buckets { among, ..self }
    }

    /// Queues `unit`. Returns the units whose collective has finished by now, with their buffers.
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
        let mut done = Vec::new();
        while self.in_flight.len() >= self.options.in_flight.max(1) {
            done.extend(self.finish_oldest(rank)?);
        }
        let (origins, buffers): (Vec<Origin>, Vec<Buffer>) = self.filling.drain(..).unzip();
        let units: Vec<UnitId> = origins.iter().map(|origin| origin.unit).collect();
        let (pending, results) = self.start(rank, bucket(buffers, &units))?;
        self.in_flight.push_back(Flight { origins, pending, results });
        if self.options.in_flight == 0 {
            done.extend(self.finish(rank)?);
        }
        Ok(done)
    }

    /// Issues a bucket's collective. Returns it, and where its results will be.
    fn start(&self, rank: &Rank, bucket: Bucket) -> Result<(Pending, Results)> {
        let group = (self.among)(rank);
        if !self.returns_f32_slice {
            return Ok(((self.issue)(group, bucket)?, Results::InPlace));
        }
        let (class, slice) =
            (Class::CommunicationBuckets, |full: &Buffer| full.len() / group.size() as usize);
        let places = bucket.buffers.iter().map(|full| rank.device.allocate(class, DType::F32, slice(full)));
        let sums = places.collect::<device::Result<Vec<_>>>()?;
        if group.sums_exactly() {
            return Ok((group.reduce_scatter_exact(bucket, sums)?, Results::Appended));
        }
        Ok(((self.issue)(group, bucket)?, Results::Rounded(sums)))
    }

    /// Waits for all buckets in flight. Returns their units with their buffers.
    ///
    /// # Errors
    /// If a collective fails, or there is no memory to round its result.
    pub fn finish(&mut self, rank: &Rank) -> Result<Vec<(UnitId, Buffer)>> {
        let mut done = Vec::new();
        while !self.in_flight.is_empty() {
            done.extend(self.finish_oldest(rank)?);
        }
        Ok(done)
    }

    /// True if `unit` is in flight.
    pub fn is_in_flight(&self, unit: UnitId) -> bool {
        self.in_flight.iter().flat_map(|flight| &flight.origins).any(|origin| origin.unit == unit)
    }

    /// Waits for the bucket that was closed first. Returns its units with their buffers; none if
    /// nothing is in flight.
    ///
    /// # Errors
    /// As [`Buckets::finish`].
    pub fn finish_oldest(&mut self, rank: &Rank) -> Result<Vec<(UnitId, Buffer)>> {
        let Some(Flight { origins, pending, results }) = self.in_flight.pop_front() else {
            return Ok(Vec::new());
        };
        let results = self.results(rank, pending.wait()?, results)?;
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

    /// Aborts the step without an update: frees the units that are queued or in flight. The group
    /// is [winding down](Group::wind_down).
    pub fn abort(&mut self) {
        self.filling.clear();
        self.in_flight.clear();
    }

    /// Returns the results of a collective that gave back `buffers`, one per unit.
    fn results(&self, rank: &Rank, mut buffers: Vec<Buffer>, results: Results) -> Result<Vec<Buffer>> {
        let mut sums = match results {
            Results::InPlace => return Ok(buffers),
            Results::Appended => return Ok(buffers.split_off(buffers.len() / 2)),
            Results::Rounded(sums) => sums,
        };
        let group = (self.among)(rank);
        for (sum, full) in sums.iter_mut().zip(&buffers) {
            let own = group.own_slice(sum.len());
            rank.kernels().copy(sum.view_mut(), full.slice(own))?;
        }
        Ok(sums)
    }

    /// Returns the buffer to hold until the result is back, or `None`, and the buffer that travels.
    fn convert(&self, rank: &Rank, buffer: Buffer) -> Result<(Option<Buffer>, Buffer)> {
        let BucketOptions { wire, always_copies, .. } = self.options;
        if buffer.dtype() == wire && !always_copies {
            return Ok((None, buffer));
        }
        let mut converted = rank.device.allocate(Class::CommunicationBuckets, wire, buffer.len())?;
        rank.kernels().copy(converted.view_mut(), buffer.view())?;
        let held = Some(buffer).filter(|buffer| buffer.class() != Class::CommunicationBuckets);
        Ok((held, converted))
    }
}

/// Returns a bucket of `buffers` that hold `units`, for [`Group`]'s collectives.
pub fn bucket(buffers: Vec<Buffer>, units: &[UnitId]) -> Bucket {
    Bucket { buffers, units: units.iter().map(|&unit| unit as u16).collect() }
}
