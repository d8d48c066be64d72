//! One worker: a device and a place in a process group.

use crate::mesh::Mesh;
use collectives::Group;
use device::{Device, Kernels};
use events::Emitter;
use offload::Transfers;

/// A rank, as its own thread sees it. Whether its peers are threads or processes cannot be told
/// from here.
pub struct Rank {
    /// Its device.
    pub device: Device,
    /// Its ends of groups within the world. Before the world's, so that it leaves these first.
    pub mesh: Mesh,
    /// Its end of the world's process group.
    pub group: Group,
    /// What it moves between its device, main memory and disk.
    pub transfers: Transfers,
    /// Emits this rank's events.
    pub emitter: Emitter,
}

impl Rank {
    /// Number of this rank, from 0.
    pub fn number(&self) -> usize {
        self.group.rank() as usize
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.group.size() as usize
    }

    /// The ranks that share one copy of the model states: all of them, unless sharding is hybrid.
    pub fn shard_group(&self) -> &Group {
        self.mesh.shards.as_ref().unwrap_or(&self.group)
    }

    /// Number of the shard that this rank owns, from 0.
    pub fn shard(&self) -> usize {
        self.shard_group().rank() as usize
    }

    /// The ranks that own the same shard of other copies, if sharding is hybrid.
    pub fn replicas(&self) -> Option<&Group> {
        self.mesh.replicas.as_ref()
    }

    /// The neighbours that share a second copy of the parameters, if there is one.
    pub fn secondary_group(&self) -> Option<&Group> {
        self.mesh.secondary.as_ref()
    }

    /// The kernels of this rank's device.
    pub fn kernels(&self) -> &dyn Kernels {
        self.device.kernels()
    }
}

#[cfg(test)]
impl Rank {
    /// A rank of `group`, which computes on the CPU with one thread.
    pub(crate) fn for_tests(group: Group) -> Self {
        let emitter = Emitter::silent(group.rank());
        let device = Device::cpu(device::Ledger::new(emitter.clone(), None), 1);
        let transfers = Transfers::new(device.clone(), emitter.clone(), offload::Options::default()).unwrap();
        Rank { device, mesh: Mesh::default(), group, transfers, emitter }
    }
}
