//! What a forward pass keeps for backward: everything, or less with activation checkpointing (Chen
//! et al., "Training Deep Nets with Sublinear Memory Cost", 2016).

use serde::Serialize;

/// What a layer's forward keeps for its backward, of the buffers in the tables of [`crate::block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Everything that backward reads.
    Everything,
    /// The buffers that are expensive to compute again, listed in [`crate::block`].
    Selective,
    /// The layer's input alone.
    Input,
    /// Nothing: no backward follows.
    Nothing,
}

impl Keep {
    /// True if the results of element-wise work are kept.
    pub(crate) fn cheap(self) -> bool {
        self == Keep::Everything
    }

    /// True if the results of matrix products and attention are kept.
    pub(crate) fn expensive(self) -> bool {
        matches!(self, Keep::Everything | Keep::Selective)
    }

    /// True if a backward follows.
    pub(crate) fn input(self) -> bool {
        self != Keep::Nothing
    }
}

/// Activation checkpointing: what blocks keep, and so what backward computes again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpointing {
    /// Blocks keep everything.
    #[default]
    None,
    /// Blocks keep their input, and backward computes the rest again.
    Block,
    /// Blocks keep the buffers that are expensive to compute again.
    Selective,
}

events::labels! { Checkpointing { None => "none", Block => "block", Selective => "selective" } }

impl Checkpointing {
    /// Returns what a block's forward keeps.
    pub const fn keep(self) -> Keep {
        match self {
            Checkpointing::None => Keep::Everything,
            Checkpointing::Block => Keep::Input,
            Checkpointing::Selective => Keep::Selective,
        }
    }
}
