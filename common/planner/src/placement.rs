//! Where model states and activations rest: the settings that [`crate::Job`] carries.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use events::Place;
use serde::{Deserialize, Serialize};

/// Bytes of a rank's device, main memory and disk, in [`Place::ALL`]'s order; `None`: unlimited.
pub type Limits = [Option<u64>; Place::ALL.len()];

/// Elements that an offloaded update takes at a time unless the run says otherwise.
pub const PIECE: u64 = 4 << 20;

/// Most staging buffers of each kind that flags and files may ask for.
pub const MOST_BUFFERS: u64 = 16;

/// Most elements of a buffer through which a checkpoint is written piece by piece.
pub const STREAM_BUFFER: u64 = 1 << 20;

/// Stream buffers of a rank.
pub const STREAM_BUFFERS: u64 = 6;

/// Pieces in which a rank's part of a checkpoint is written at least.
pub const MIN_STREAM_PIECES: u64 = 32;

/// Where a rank's model states and activations rest (Ren et al., "ZeRO-Offload", 2021; Rajbhandari
/// et al., "ZeRO-Infinity", 2021), and the buffers through which they visit the device. All rest on
/// the device by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Master weights, momentum and variance. Away from the device there are master weights in any
    /// precision.
    pub optimizer: Place,
    /// ZeRO-3: shards of parameters.
    pub parameters: Place,
    /// What blocks keep for backward, if that is their input alone.
    pub activations: Place,
    /// Staging buffers of each kind; none for as many as is usual: 3, and for an update whose states
    /// rest on disk the number of its pieces minus 3, at least 3 and at most 6. There are never more
    /// than pieces or shards.
    pub buffers: Option<u64>,
    /// Most elements that are updated at a time; [`PIECE`] if not given and something rests
    /// elsewhere.
    pub piece: Option<u64>,
    /// Whether the run gathers weights in main memory, to hash or save them.
    pub gathers_states: bool,
    /// How it saves checkpoints.
    pub saving: Saving,
}

/// How a rank saves its part of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saving {
    /// It saves none.
    #[default]
    Never,
    /// It copies its part to main memory, in room that it has taken for that at setup, and trains
    /// on while that is written.
    Copying,
    /// It writes piece by piece, through buffers that it has taken at setup, and trains on once
    /// that is done.
    Streaming,
}

impl Placement {
    /// True if anything rests beyond the device.
    pub fn any(&self) -> bool {
        self.any_states() || self.activations != Place::Device
    }

    /// True if optimizer states or parameters rest beyond the device.
    pub fn any_states(&self) -> bool {
        self.optimizer != Place::Device || self.parameters != Place::Device
    }

    /// True if optimizer states or parameters rest on disk.
    pub fn states_on_disk(&self) -> bool {
        [self.optimizer, self.parameters].contains(&Place::Disk)
    }

    /// True if anything rests on disk.
    pub fn uses_disk(&self) -> bool {
        [self.optimizer, self.parameters, self.activations].contains(&Place::Disk)
    }

    /// Returns how many of an update's `pieces` are on their way at a time.
    pub fn update_buffers(&self, pieces: u64) -> u64 {
        let most = if self.optimizer == Place::Disk { 6 } else { 3 };
        self.buffers.unwrap_or(pieces.saturating_sub(3).clamp(3, most)).min(pieces)
    }

    /// Returns how many shards of parameters are on their way to the device at a time.
    pub fn fetch_buffers(&self) -> u64 {
        self.buffers.unwrap_or(3)
    }

    /// Returns the most elements that are updated at a time.
    pub fn piece(&self) -> u64 {
        self.piece.unwrap_or(if self.any_states() { PIECE } else { u64::MAX })
    }
}

/// The flag of something that may rest beyond the device, and where it rests.
pub type Movable = (&'static str, fn(&mut Placement) -> &mut Place);

/// All that may rest beyond the device.
pub const MOVABLE: [Movable; 3] = [
    ("--offload-optimizer", |placement| &mut placement.optimizer),
    ("--offload-parameters", |placement| &mut placement.parameters),
    ("--offload-activations", |placement| &mut placement.activations),
];

/// The flags' word for what stays on the device.
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
