//! The buffers that a forward pass keeps for backward: all, or fewer with activation checkpointing
//! (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).

use serde::Serialize;

/// The buffers that a layer's forward keeps for its backward, among those in the tables of
/// [`crate::block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All buffers that backward reads.
    Everything,
    /// The buffers that are expensive to recompute, listed in [`crate::block`].
    Selective,
    /// Only the layer's input.
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

/// Activation checkpointing: the buffers that blocks keep, and so those that backward recomputes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpointing {
    /// Blocks keep everything.
    #[default]
    None,
    /// Blocks keep their input, and backward recomputes the rest.
    Block,
    /// Blocks keep the buffers that are expensive to recompute.
    Selective,
}

events::labels! { Checkpointing { None => "none", Block => "block", Selective => "selective" } }

impl Checkpointing {
    /// Returns the buffers that a block's forward keeps.
    pub const fn keep(self) -> Keep {
        match self {
            Checkpointing::None => Keep::Everything,
            Checkpointing::Block => Keep::Input,
            Checkpointing::Selective => Keep::Selective,
        }
    }
}
