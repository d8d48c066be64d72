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
    pub fn shard_group(self) -> Option<usize> {
        if let MeshShape::Hybrid(size) = self { Some(size) } else { None }
    }

    /// Returns the number of ranks that share a second copy of the parameters; `None` without one.
    pub fn secondary(self) -> Option<usize> {
        if let MeshShape::Secondary(size) = self { Some(size) } else { None }
    }
}

/// One rank's ends of these groups.
#[derive(Default)]
pub struct Mesh {
    /// The ranks that share one copy of the model states; `None` if all do.
    pub(crate) shards: Option<Group>,
    /// The ranks that own the same shard of other copies; `None` if there is one copy.
    pub(crate) replicas: Option<Group>,
    /// The neighbours that share a second copy of the parameters; `None` without one.
    pub(crate) secondary: Option<Group>,
}

impl Mesh {
    /// Splits `world`. Every rank must call it with the same shape.
    ///
    /// # Errors
    /// The group's failure.
    pub fn new(world: &Group, shape: MeshShape) -> Result<Self> {
        let rank = world.rank() as usize;
        let split = |color: Option<usize>| color.map(|color| world.split(color as u64)).transpose();
        Ok(Mesh {
            shards: split(shape.shard_group().map(|size| rank / size))?,
            replicas: split(shape.shard_group().map(|size| rank % size))?,
            secondary: split(shape.secondary().map(|size| rank / size))?,
        })
    }

    /// Returns the group of neighbours; `None` if the ranks form no groups.
    pub fn neighbours(&self) -> Option<&Group> {
        self.shards.as_ref().or(self.secondary.as_ref())
    }
}
