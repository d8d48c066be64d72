//! Shards that several ranks own alike, as hybrid sharding has them.
//!
//! Ranks that share one copy of the model states sum their gradients first; that sum is a part of the world's. With the
//! step's last micro-batch the shard goes on to the ranks that own the same shard of other copies, while backward goes on.
//! What goes on is f32, whatever type gradients are reduced in: so the sum over all ranks is rounded once, as it is where all
//! ranks share one copy.

use crate::Result;
use crate::buckets::{BucketOptions, Buckets};
use crate::partition::UnitId;
use crate::rank::Rank;
use collectives::Group;
use device::{Buffer, DType};
use std::ops::Range;

/// Sums the gradient shards of all replicas: an all-reduce among the ranks that own the same shard, once per step.
pub struct ReplicaSum {
    buckets: Buckets,
    /// Whether sums over one copy come as f32 slices, before rounding.
    partial: bool,
    /// Micro-batches per step.
    micro_batches: usize,
    /// Per unit: micro-batches of this step whose gradients have been added.
    added: Vec<usize>,
}

/// Those who own the same shard; asked only where there are several.
fn replicas(rank: &Rank) -> &Group {
    rank.replicas().unwrap_or(&rank.group)
}

impl ReplicaSum {
    /// Of `units` units through buckets like these, in steps of so many micro-batches.
    pub fn new(options: BucketOptions, units: usize, micro_batches: usize) -> Self {
        let buckets = Buckets::new(Group::all_reduce, options).among(replicas);
        let partial = options.wire != DType::F32;
        let buckets = if partial { buckets.in_f32() } else { buckets };
        ReplicaSum { buckets, partial, micro_batches, added: vec![0; units] }
    }

    /// Gradients over one copy on their way through buckets like these, as [`ReplicaSum::add`] takes them.
    pub fn within(options: BucketOptions) -> Buckets {
        match options.wire {
            DType::F32 => Buckets::new(Group::reduce_scatter, options),
            _ => Buckets::of_partial_sums(options),
        }
    }

    /// Adds a micro-batch's `gradients` over one copy of the model states to `unit`'s `shard`, and after the last
    /// micro-batch queues the sum. `own` is the rank's slice of what is full; partial sums are nothing but that slice.
    /// Returns the shards that stay, or have come back from the all-reduce meanwhile.
    ///
    /// # Errors
    /// If a collective fails, or there is no memory for a conversion.
    pub fn add(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        mut shard: Buffer,
        (mut gradients, own): (Buffer, Range<usize>),
    ) -> Result<Vec<(UnitId, Buffer)>> {
        let own = if self.partial { 0..shard.len() } else { own };
        self.added[unit] += 1;
        if self.added[unit] < self.micro_batches {
            rank.kernels().add(shard.view_mut(), gradients.slice(own))?;
            return Ok(vec![(unit, shard)]);
        }
        self.added[unit] = 0;
        if self.partial {
            rank.kernels().add(gradients.view_mut(), shard.view())?;
            return self.buckets.push_for(rank, unit, shard, gradients);
        }
        self.buckets.push_sum(rank, unit, shard, gradients.slice(own))
    }

    /// Waits for the all-reduce in flight and returns its shards.
    ///
    /// # Errors
    /// If it fails.
    pub fn finish(&mut self, rank: &Rank) -> Result<Vec<(UnitId, Buffer)>> {
        self.buckets.finish(rank)
    }
}
