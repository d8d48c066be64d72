//! One worker: a device and a place in a process group.

use collectives::Group;
use device::{Device, Kernels};
use events::Emitter;

/// A rank, as its own thread sees it. Whether its peers are threads or processes cannot be told from here.
pub struct Rank {
    /// Its device.
    pub device: Device,
    /// Its end of the world's process group.
    pub group: Group,
    /// Its voice.
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

    /// The kernels of this rank's device.
    pub fn kernels(&self) -> &dyn Kernels {
        self.device.kernels()
    }
}
