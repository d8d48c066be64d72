//! One rank: a device and a place in a process group.

use crate::mesh::Mesh;
use collectives::Group;
use device::{Device, Kernels};
use events::Emitter;
use offload::Transfers;

/// A rank, as its own thread sees it. Its peers may be threads or processes.
pub struct Rank {
    /// Its device.
    pub device: Device,
    /// Its ends of groups within the world. This field precedes `group`, so that the rank leaves
    /// these groups first.
    pub mesh: Mesh,
    /// Its end of the world's process group.
    pub group: Group,
    /// Its transfers between device, main memory and disk.
    pub transfers: Transfers,
    /// Emits this rank's events.
    pub emitter: Emitter,
}

impl Rank {
    /// Returns the number of this rank, from 0.
    pub fn number(&self) -> usize {
        self.group.rank() as usize
    }

    /// Returns the number of ranks.
    pub fn world_size(&self) -> usize {
        self.group.size() as usize
    }

    /// Returns the ranks that share one copy of the model states: all ranks, unless sharding is
    /// hybrid.
    pub fn shard_group(&self) -> &Group {
        self.mesh.shards().unwrap_or(&self.group)
    }

    /// Returns the number of the shard that this rank owns, from 0.
    pub fn shard(&self) -> usize {
        self.shard_group().rank() as usize
    }

    /// Returns the ranks that own the same shard of other copies; `None` unless sharding is hybrid.
    pub fn replicas(&self) -> Option<&Group> {
        self.mesh.replicas()
    }

    /// Returns the neighbours that share a second copy of the parameters; `None` without such a
    /// copy.
    pub fn secondary_group(&self) -> Option<&Group> {
        self.mesh.secondary()
    }

    /// Returns the kernels of this rank's device.
    pub fn kernels(&self) -> &dyn Kernels {
        self.device.kernels()
    }
}

#[cfg(test)]
impl Rank {
    /// Returns a rank of `group`, which computes on the CPU with one thread.
    pub(crate) fn for_tests(group: Group) -> Self {
        let emitter = Emitter::silent(group.rank());
        let device = Device::cpu(device::Ledger::new(emitter.clone(), None), 1);
        let transfers = Transfers::new(device.clone(), emitter.clone(), offload::Options::default()).unwrap();
        Rank { device, mesh: Mesh::default(), group, transfers, emitter }
    }
}
