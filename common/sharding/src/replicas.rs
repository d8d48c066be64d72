//! Shards that several ranks own alike, as hybrid sharding has them.
//!
//! Ranks that share one copy of the model states sum their gradients first; that sum is a part of the world's. With the
//! step's last micro-batch the shard goes on to the ranks that own the same shard of other copies, while backward goes on.
//! What goes on has the type that gradients are reduced in: with f32 there, the sum over all ranks is rounded once, to the
//! gradients' type.

use crate::Result;
use crate::buckets::{BucketOptions, Buckets};
use crate::partition::UnitId;
use crate::rank::Rank;
use collectives::Group;
use device::{Buffer, View};

/// Sums the gradient shards of all replicas: an all-reduce among the ranks that own the same shard, once per step.
pub struct ReplicaSum {
    buckets: Buckets,
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
        ReplicaSum { buckets, micro_batches, added: vec![0; units] }
    }

    /// Adds the `sum` of a micro-batch's gradients over one copy of the model states to `unit`'s `shard`, and after the
    /// last micro-batch queues the shard. Returns the shards that stay, or have come back from the all-reduce meanwhile.
    ///
    /// # Errors
    /// If a collective fails, or there is no memory for a conversion.
    pub fn add(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        mut shard: Buffer,
        sum: View<'_>,
    ) -> Result<Vec<(UnitId, Buffer)>> {
        self.added[unit] += 1;
        if self.added[unit] < self.micro_batches {
            rank.kernels().add(shard.view_mut(), sum)?;
            return Ok(vec![(unit, shard)]);
        }
        self.added[unit] = 0;
        self.buckets.push_sum(rank, unit, shard, sum)
    }

    /// Waits for the all-reduce in flight and returns its shards.
    ///
    /// # Errors
    /// If it fails.
    pub fn finish(&mut self, rank: &Rank) -> Result<Vec<(UnitId, Buffer)>> {
        self.buckets.finish(rank)
    }
}
