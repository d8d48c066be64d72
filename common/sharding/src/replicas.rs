//! Gradient shards of which several ranks own a copy: hybrid sharding's replicas.
//!
//! Ranks that share one copy of the model states sum their gradients first; that sum is a part of
//! the world's. With the step's last micro-batch the shard travels on, in f32, to the ranks that
//! own the same shard of other copies, while backward continues. The world's sum is therefore
//! rounded once, as it is where all ranks share one copy.

use crate::Result;
use crate::buckets::{BucketOptions, Buckets};
use crate::partition::UnitId;
use crate::rank::Rank;
use collectives::Group;
use device::{Buffer, Class, DType};
use std::ops::Range;

/// Sums the gradient shards of all replicas: an all-reduce among the ranks that own the same shard,
/// once per step.
pub struct ReplicaSum {
    buckets: Buckets,
    /// The wire type, if narrower than f32. Each copy's sum then arrives as an f32 slice, and only
    /// the sum over copies is rounded to this type.
    narrow: Option<DType>,
    /// True if a sum is rounded in a buffer of its own even if its shard has the rounded type.
    rounds_in_buffer: bool,
    /// Micro-batches per step.
    micro_batches: usize,
    /// Per unit: number of this step's micro-batches whose gradients have been added.
    added: Vec<usize>,
    /// Per unit: the shard that a sum in a separate buffer is written back to.
    held: Vec<Option<Buffer>>,
}

/// Returns the ranks that own the same shard.
fn replicas(rank: &Rank) -> &Group {
    rank.replicas().expect("only hybrid sharding, which has replicas, sums over them")
}

impl ReplicaSum {
    /// Returns sums of `units` shards of element type `gradients` through buckets with these
    /// options, in steps of `micro_batches` micro-batches.
    pub fn new(options: BucketOptions, gradients: DType, units: usize, micro_batches: usize) -> Self {
        let narrow = Some(options.wire).filter(|&wire| wire != DType::F32);
        let in_place = narrow.is_none() && gradients == DType::F32;
        let exact =
            BucketOptions { wire: DType::F32, always_copies: options.always_copies && in_place, ..options };
        ReplicaSum {
            buckets: Buckets::new(Group::all_reduce, exact).among(replicas),
            narrow,
            rounds_in_buffer: options.always_copies,
            micro_batches,
            added: vec![0; units],
            held: (0..units).map(|_| None).collect(),
        }
    }

    /// Adds a micro-batch's `gradients`, [partial sums](Buckets::of_partial_sums) over one copy of
    /// the model states to `unit`'s `shard`, and after the last micro-batch queues the sum. `own`
    /// is the rank's slice of full gradients; sums before rounding are that slice alone. Returns
    /// the shards that are not queued, and those whose all-reduce has finished.
    ///
    /// # Errors
    /// If a collective fails, or there is no memory for a conversion.
    ///
    /// # Panics
    /// Unless sharding is hybrid: there are then no replicas.
    pub fn add(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        mut shard: Buffer,
        (mut gradients, own): (Buffer, Range<usize>),
    ) -> Result<Vec<(UnitId, Buffer)>> {
        let kernels = rank.kernels();
        let own = if self.narrow.is_some() { 0..shard.len() } else { own };
        self.added[unit] += 1;
        if self.added[unit] < self.micro_batches {
            kernels.add(shard.view_mut(), gradients.slice(own))?;
            return Ok(vec![(unit, shard)]);
        }
        self.added[unit] = 0;
        let sum = if self.narrow.is_some() {
            kernels.add(gradients.view_mut(), shard.view())?;
            self.held[unit] = Some(shard);
            gradients
        } else if shard.dtype() == DType::F32 {
            kernels.add(shard.view_mut(), gradients.slice(own))?;
            shard
        } else {
            let mut sum = rank.device.allocate(Class::CommunicationBuckets, DType::F32, shard.len())?;
            kernels.copy(sum.view_mut(), shard.view())?;
            kernels.add(sum.view_mut(), gradients.slice(own))?;
            self.held[unit] = Some(shard);
            sum
        };
        let summed = self.buckets.push(rank, unit, sum)?;
        self.written_back(rank, summed)
    }

    /// Waits for the all-reduce in flight and returns its shards.
    ///
    /// # Errors
    /// If the all-reduce fails, or there is no memory to round its result.
    pub fn finish(&mut self, rank: &Rank) -> Result<Vec<(UnitId, Buffer)>> {
        let summed = self.buckets.finish(rank)?;
        self.written_back(rank, summed)
    }

    /// Aborts the step without an update: discards sums that are queued or in flight, as
    /// [`Buckets::abort`] does.
    pub fn abort(&mut self) {
        self.buckets.abort();
        self.added.fill(0);
        self.held.fill_with(|| None);
    }

    /// Returns the shards of `summed`: rounds each sum in a separate buffer and writes it to its
    /// shard. The next bucket is in flight by then, so the planner counts its buffers, too.
    fn written_back(&mut self, rank: &Rank, summed: Vec<(UnitId, Buffer)>) -> Result<Vec<(UnitId, Buffer)>> {
        let shard = |(unit, sum): (UnitId, Buffer)| match self.held[unit].take() {
            Some(shard) => Ok((unit, round_into(rank, shard, sum, self.narrow, self.rounds_in_buffer)?)),
            None => Ok((unit, sum)),
        };
        summed.into_iter().map(shard).collect()
    }
}

/// Rounds `sum` to `narrow` and writes it to `shard`. Rounding needs a buffer of its own, unless
/// the shard has that type and gradients are reduced in place.
fn round_into(
    rank: &Rank,
    mut shard: Buffer,
    mut sum: Buffer,
    narrow: Option<DType>,
    rounds_in_buffer: bool,
) -> Result<Buffer> {
    if let Some(dtype) = narrow.filter(|&dtype| dtype != shard.dtype() || rounds_in_buffer) {
        let mut rounded = rank.device.allocate(Class::CommunicationBuckets, dtype, sum.len())?;
        rank.kernels().copy(rounded.view_mut(), sum.view())?;
        sum = rounded;
    }
    rank.kernels().copy(shard.view_mut(), sum.view())?;
    Ok(shard)
}
