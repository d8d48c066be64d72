//! Where model states and activations rest: the settings that [`crate::Job`] carries.

use events::Place;
use serde::{Deserialize, Serialize};

/// Elements that an offloaded update takes at a time unless the run says otherwise.
pub const PIECE: u64 = 4 << 20;

/// Where a rank's model states and activations rest (Ren et al., "ZeRO-Offload", 2021; Rajbhandari et al.,
/// "ZeRO-Infinity", 2021), and the buffers through which they visit the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Master weights, momentum and variance. Away from the device there are master weights in any precision.
    pub optimizer: Place,
    /// ZeRO-3: shards of parameters.
    pub parameters: Place,
    /// What blocks keep for backward, if that is their input alone.
    pub activations: Place,
    /// Staging buffers of each kind.
    pub buffers: u64,
    /// Most elements that are updated at a time; [`PIECE`] if not given and something rests elsewhere.
    pub piece: Option<u64>,
    /// Whether the run gathers training states in main memory, to hash or save them.
    pub gathers_states: bool,
}

impl Default for Placement {
    /// Everything on the device.
    fn default() -> Self {
        Placement {
            optimizer: Place::Device,
            parameters: Place::Device,
            activations: Place::Device,
            buffers: 3,
            piece: None,
            gathers_states: false,
        }
    }
}

impl Placement {
    /// Returns the most elements that are updated at a time.
    pub fn piece(&self) -> u64 {
        let away = self.optimizer != Place::Device || self.parameters != Place::Device;
        self.piece.unwrap_or(if away { PIECE } else { u64::MAX })
    }
}
