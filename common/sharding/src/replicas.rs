//! Shards that several ranks own alike, as hybrid sharding has them.

use crate::buckets::{BucketOptions, Buckets};
use crate::rank::Rank;
use crate::{Error, Result};
use collectives::Group;
use device::Buffer;

/// Sums the gradient shards of all replicas: an all-reduce among the ranks that own the same shard.
pub struct ReplicaSum {
    buckets: Buckets,
}

/// Those who own the same shard; asked only where there are several.
fn replicas(rank: &Rank) -> &Group {
    rank.replicas().unwrap_or(&rank.group)
}

impl ReplicaSum {
    /// Through buckets like these.
    pub fn new(options: BucketOptions) -> Self {
        ReplicaSum { buckets: Buckets::new(Group::all_reduce, options).among(replicas) }
    }

    /// Replaces `shards`, one per unit, by their sums. Does nothing where there is one copy of the model states.
    ///
    /// # Errors
    /// If a collective fails, or there is no memory for a conversion.
    pub fn sum(&mut self, rank: &Rank, shards: &mut Vec<Buffer>) -> Result<()> {
        if rank.replicas().is_none() {
            return Ok(());
        }
        let units = shards.len();
        let mut summed = Vec::with_capacity(units);
        for (unit, shard) in std::mem::take(shards).into_iter().enumerate() {
            summed.extend(self.buckets.push(rank, unit, shard)?);
        }
        summed.extend(self.buckets.finish(rank)?);
        // Buckets come back in the order in which they were closed.
        shards.extend(summed.into_iter().map(|(_, shard)| shard));
        if shards.len() < units {
            Err(Error::Missing { unit: shards.len(), what: "gradient shards" })
        } else {
            Ok(())
        }
    }
}
