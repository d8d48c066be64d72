//! Where model states and activations are stored: the settings that [`crate::Job`] carries.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use events::Place;
use serde::{Deserialize, Serialize};

/// Bytes available on a rank's device, in main memory and on disk, in [`Place::ALL`]'s order;
/// `None` for unlimited.
pub type Limits = [Option<u64>; Place::ALL.len()];

/// Default number of elements that an offloaded update processes at a time.
pub const SUB_GROUP: u64 = 4 << 20;

/// Maximum number of staging buffers of each kind that flags and files may ask for.
pub const MOST_BUFFERS: u64 = 16;

/// Maximum number of elements of a buffer through which a checkpoint is written piece by piece.
pub const STREAM_BUFFER: u64 = 1 << 20;

/// Number of stream buffers of a rank.
pub const STREAM_BUFFERS: u64 = 6;

/// Minimum number of pieces in which a rank's part of a checkpoint is written.
pub const MIN_STREAM_PIECES: u64 = 32;

/// Where a rank's model states and activations are stored (Ren et al., "ZeRO-Offload", 2021;
/// Rajbhandari et al., "ZeRO-Infinity", 2021), and the buffers through which they are transferred
/// to the device. By default all are kept on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Master weights, momentum and variance. If they are offloaded, there are master weights in
    /// any precision.
    pub optimizer: Place,
    /// ZeRO-3: shards of parameters.
    pub parameters: Place,
    /// The inputs of blocks, if blocks keep only their input for backward.
    pub activations: Place,
    /// Number of staging buffers of each kind. `None` for the default: 3, and for an update whose
    /// states are stored on disk the number of its pieces minus 3, at least 3 and at most 6. There
    /// are never more buffers than pieces or shards.
    pub buffers: Option<u64>,
    /// Maximum number of elements that are updated at a time: `piece` in reports. `None` for the
    /// default: [`SUB_GROUP`] if anything is offloaded, else no limit.
    #[serde(rename = "piece")]
    pub sub_group_size: Option<u64>,
    /// Whether the run gathers weights in main memory, to hash or save them.
    pub gathers_states: bool,
    /// How the run saves checkpoints.
    pub saving: Saving,
}

/// How a rank saves its part of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saving {
    /// The run saves no checkpoints.
    #[default]
    Never,
    /// The rank copies its part to main memory, into a buffer allocated at setup, and continues to
    /// train while the copy is written.
    Copying,
    /// The rank writes its part piece by piece, through buffers allocated at setup, and continues
    /// to train when all pieces are written.
    Streaming,
}

impl Placement {
    /// True if anything is offloaded.
    pub fn any(&self) -> bool {
        self.any_states() || self.activations != Place::Device
    }

    /// True if optimizer states or parameters are offloaded.
    pub fn any_states(&self) -> bool {
        self.optimizer != Place::Device || self.parameters != Place::Device
    }

    /// True if optimizer states or parameters are stored on disk.
    pub fn states_on_disk(&self) -> bool {
        [self.optimizer, self.parameters].contains(&Place::Disk)
    }

    /// True if anything is stored on disk.
    pub fn uses_disk(&self) -> bool {
        [self.optimizer, self.parameters, self.activations].contains(&Place::Disk)
    }

    /// Returns the number of an update's `pieces` that are in flight at a time.
    pub fn update_buffers(&self, pieces: u64) -> u64 {
        let most = if self.optimizer == Place::Disk { 6 } else { 3 };
        self.buffers.unwrap_or(pieces.saturating_sub(3).clamp(3, most)).min(pieces)
    }

    /// Returns the number of shards of parameters that are in flight to the device at a time.
    pub fn fetch_buffers(&self) -> u64 {
        self.buffers.unwrap_or(3)
    }

    /// Returns the maximum number of elements that are updated at a time.
    pub fn sub_group_size(&self) -> u64 {
        self.sub_group_size.unwrap_or(if self.any_states() { SUB_GROUP } else { u64::MAX })
    }
}

/// The flag of a kind of state that can be offloaded, and its field in a placement.
pub type Movable = (&'static str, fn(&mut Placement) -> &mut Place);

/// All kinds of state that can be offloaded.
pub const MOVABLE: [Movable; 3] = [
    ("--offload-optimizer", |placement| &mut placement.optimizer),
    ("--offload-parameters", |placement| &mut placement.parameters),
    ("--offload-activations", |placement| &mut placement.activations),
];

/// The flags' word for states that stay on the device.
pub const NOWHERE: &str = "none";
const WORDS: [(&str, Place); 3] = [(NOWHERE, Place::Device), ("cpu", Place::Host), ("disk", Place::Disk)];

/// Returns the flags' word for `place`.
pub fn place_word(place: Place) -> &'static str {
    WORDS.iter().find(|(_, named)| *named == place).map_or(NOWHERE, |(word, _)| word)
}

/// Returns the parser of the flags' words.
pub fn place_parser() -> impl TypedValueParser<Value = Place> {
    let words = PossibleValuesParser::new(WORDS.map(|(word, _)| word));
    words
        .map(|word| WORDS.iter().find(|(named, _)| *named == word).map_or(Place::Device, |(_, place)| *place))
}
