//! Secondary shards: ZeRO++'s hierarchical partitioning, hpZ (Wang et al., "ZeRO++", 2023, section
//! 3.2).
//!
//! Model states are sharded over all ranks. In addition a few neighbours share a copy of the
//! parameters that forward gathered. Backward gathers from that copy, and so sends nothing beyond
//! the neighbours. The cost is memory: a slice of every gathered unit, sharded over the neighbours
//! alone.

use device::{Buffer, Class, DType};
use sharding::{Error, FullParameters, Partition, Rank, Result, UnitId};

/// This rank's slices of the second copy, one per unit that is gathered; `None` for persistent
/// units.
pub struct SecondaryShards {
    shards: Vec<Option<Buffer>>,
}

fn missing(unit: UnitId) -> Error {
    Error::Missing { unit, what: "secondary shards" }
}

impl SecondaryShards {
    /// Allocates the slices, with elements of type `dtype`; `None` if this run has no second copy.
    ///
    /// # Errors
    /// If the rank is out of memory.
    pub fn new(rank: &Rank, partition: &Partition, dtype: DType) -> Result<Option<Self>> {
        let Some(neighbours) = rank.secondary_group() else { return Ok(None) };
        let ranks = neighbours.size() as usize;
        let room = |padded: usize| rank.device.allocate(Class::Parameters, dtype, padded / ranks);
        let gathered = partition.units.iter().map(|unit| (!unit.persistent).then_some(unit.padded));
        let shards = gathered.map(|padded| padded.map(room).transpose()).collect::<device::Result<_>>()?;
        Ok(Some(SecondaryShards { shards }))
    }

    /// Stores this rank's slice of `full`, which was gathered over all ranks.
    ///
    /// # Errors
    /// If a kernel fails, or the unit is never gathered.
    pub fn keep(&mut self, rank: &Rank, full: &FullParameters) -> Result<()> {
        let shard = self.shards[full.unit].as_mut().ok_or(missing(full.unit))?;
        let len = shard.len();
        let slice = rank.secondary_group().map_or(0..len, |neighbours| neighbours.own_slice(len));
        Ok(rank.kernels().copy(shard.view_mut(), full.buffer.slice(slice))?)
    }

    /// Returns this rank's slice of `unit`, as last stored.
    ///
    /// # Errors
    /// If the unit is never gathered.
    pub fn shard(&self, unit: UnitId) -> Result<&Buffer> {
        self.shards[unit].as_ref().ok_or(missing(unit))
    }
}
