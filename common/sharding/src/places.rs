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
    /// Staging buffers of each kind; none for as many as is usual.
    pub buffers: Option<usize>,
    /// Most elements that are updated at a time.
    pub piece: usize,
}

impl Places {
    /// Everything on the device, updated whole units at a time.
    pub const DEVICE: Places =
        Places { optimizer: Place::Device, parameters: Place::Device, buffers: None, piece: usize::MAX };

    /// Returns how many shards of parameters are on their way to the device at a time: usually one is
    /// gathered, and two arrive.
    pub fn fetch_buffers(&self) -> usize {
        self.buffers.unwrap_or(3)
    }

    /// Returns how many of an update's `pieces` are on their way at a time: usually one arrives, one is
    /// updated, and one leaves. If states rest on disk, those of as many pieces are read in one
    /// backward and written in the next; the more there are, the less is left to move while forward
    /// computes. There are then usually 3 fewer than pieces, but at least 3 and at most 6.
    pub fn update_buffers(&self, pieces: usize) -> usize {
        let usual = if self.optimizer == Place::Disk { pieces.saturating_sub(3).clamp(3, 6) } else { 3 };
        self.buffers.unwrap_or(usual).min(pieces)
    }
}
