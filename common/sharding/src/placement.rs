//! Where model states are stored (Ren et al., "ZeRO-Offload", 2021; Rajbhandari et al.,
//! "ZeRO-Infinity", 2021).

use device::Place;

/// Where a rank's model states are stored, and the number of buffers for their transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadPlacement {
    /// Master weights, momentum and variance. Beyond the device there are master weights in any
    /// precision, and the CPU computes the update.
    pub optimizer: Place,
    /// Shards of parameters; persistent units stay on the device.
    pub parameters: Place,
    /// Number of staging buffers of each kind; `None` for the default.
    pub buffers: Option<usize>,
    /// Maximum number of elements that are updated at a time.
    pub sub_group_size: usize,
}

impl OffloadPlacement {
    /// Everything on the device, updated whole units at a time.
    pub const DEVICE: OffloadPlacement = OffloadPlacement {
        optimizer: Place::Device,
        parameters: Place::Device,
        buffers: None,
        sub_group_size: usize::MAX,
    };

    /// Returns the number of fetch buffers: by default 3, for one shard being gathered and two
    /// arriving.
    pub fn fetch_buffers(&self) -> usize {
        self.buffers.unwrap_or(3)
    }

    /// Returns the number of slots for an update of `pieces` pieces: by default 3, for one piece
    /// arriving, one being updated and one leaving.
    ///
    /// If states are stored on disk, the default is 3 fewer than pieces, but at least 3 and at most
    /// 6: the states of one piece per slot are read in one backward and written in the next, so
    /// that more slots leave less to move while forward computes.
    pub fn update_buffers(&self, pieces: usize) -> usize {
        let default = if self.optimizer == Place::Disk { pieces.saturating_sub(3).clamp(3, 6) } else { 3 };
        self.buffers.unwrap_or(default).min(pieces)
    }
}
