//! Process groups within the world's: neighbours, and peers that have the same place among theirs.
//!
//! Ranks 0 to 7 in groups of 4: {0, 1, 2, 3} and {4, 5, 6, 7} are neighbours, as on two machines of
//! four devices; {0, 4}, {1, 5}, {2, 6} and {3, 7} are peers across. A group's size divides the
//! world's.

use crate::Result;
use collectives::Group;

/// The groups that a run needs in addition to the world's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeshShape {
    /// None: model states are sharded over all ranks.
    #[default]
    World,
    /// Model states are sharded over this number of neighbours and replicated across (FSDP's hybrid
    /// sharding, MiCS).
    Hybrid(usize),
    /// Model states are sharded over all ranks, and this number of neighbours share a second copy
    /// of the parameters (ZeRO++'s hpZ).
    Secondary(usize),
}

impl MeshShape {
    /// Returns the number of ranks that share one copy of the model states; `None` if all do.
    pub fn shard_group_size(self) -> Option<usize> {
        if let MeshShape::Hybrid(size) = self { Some(size) } else { None }
    }

    /// Returns the number of ranks that share a second copy of the parameters; `None` without one.
    pub fn secondary_group_size(self) -> Option<usize> {
        if let MeshShape::Secondary(size) = self { Some(size) } else { None }
    }
}

/// One rank's ends of these groups.
#[derive(Default)]
pub enum Mesh {
    /// None: model states are sharded over all ranks.
    #[default]
    World,
    /// Model states are sharded over neighbours and replicated across.
    Hybrid {
        /// The ranks that share one copy of the model states.
        shards: Group,
        /// The ranks that own the same shard of other copies.
        replicas: Group,
    },
    /// Model states are sharded over all ranks, and these neighbours share a second copy of the
    /// parameters.
    Secondary(Group),
}

impl Mesh {
    /// Splits `world`. Every rank must call it with the same shape.
    ///
    /// # Errors
    /// The group's failure.
    pub fn new(world: &Group, shape: MeshShape) -> Result<Self> {
        let rank = world.rank() as usize;
        let split = |color: usize| world.split(color as u64);
        Ok(match shape {
            MeshShape::World => Mesh::World,
            MeshShape::Hybrid(size) => {
                Mesh::Hybrid { shards: split(rank / size)?, replicas: split(rank % size)? }
            }
            MeshShape::Secondary(size) => Mesh::Secondary(split(rank / size)?),
        })
    }

    /// Returns the ranks that share one copy of the model states; `None` if all do.
    pub fn shards(&self) -> Option<&Group> {
        if let Mesh::Hybrid { shards, .. } = self { Some(shards) } else { None }
    }

    /// Returns the ranks that own the same shard of other copies; `None` if there is one copy.
    pub fn replicas(&self) -> Option<&Group> {
        if let Mesh::Hybrid { replicas, .. } = self { Some(replicas) } else { None }
    }

    /// Returns the neighbours that share a second copy of the parameters; `None` without one.
    pub fn secondary(&self) -> Option<&Group> {
        if let Mesh::Secondary(neighbours) = self { Some(neighbours) } else { None }
    }

    /// Returns the group of neighbours; `None` if the ranks form no groups.
    pub fn neighbours(&self) -> Option<&Group> {
        self.shards().or(self.secondary())
    }
}
