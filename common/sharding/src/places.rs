//! Where model states rest (Ren et al., "ZeRO-Offload", 2021; Rajbhandari et al., "ZeRO-Infinity",
//! 2021).

use device::Place;

/// Where a rank's model states rest, and the buffers through which they travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Master weights, momentum and variance. Away from the device there are master weights in any
    /// precision, and the CPU makes the update.
    pub optimizer: Place,
    /// Shards of parameters; persistent units stay on the device.
    pub parameters: Place,
    /// Staging buffers of each kind.
    pub buffers: usize,
    /// Most elements that are updated at a time.
    pub piece: usize,
}

impl Places {
    /// Everything on the device, updated whole units at a time.
    pub const DEVICE: Places =
        Places { optimizer: Place::Device, parameters: Place::Device, buffers: 1, piece: usize::MAX };

    /// True if optimizer states or parameters rest beyond the device.
    pub fn are_away(&self) -> bool {
        self.optimizer != Place::Device || self.parameters != Place::Device
    }
}
