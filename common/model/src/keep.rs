//! What a forward pass keeps for backward, and what activation checkpointing makes of it (Chen et al., "Training Deep
//! Nets with Sublinear Memory Cost", 2016).

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// What a layer's forward keeps for its backward. The tables of [`crate::block`] say which buffers that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All that backward reads.
    Everything,
    /// What is expensive to compute again; see [`crate::block`] for what that is.
    Selective,
    /// The layer's input alone.
    Input,
    /// There is no backward to come.
    Nothing,
}

impl Keep {
    /// Whether what element by element work makes is kept.
    pub(crate) fn cheap(self) -> bool {
        self == Keep::Everything
    }

    /// Whether what matrix products and attention make is kept.
    pub(crate) fn expensive(self) -> bool {
        matches!(self, Keep::Everything | Keep::Selective)
    }

    /// Whether there is a backward to come.
    pub(crate) fn input(self) -> bool {
        self != Keep::Nothing
    }
}

/// How much memory for activations is traded for computing them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpointing {
    /// Blocks keep everything.
    #[default]
    None,
    /// Blocks keep their input, and backward computes the rest again.
    Block,
    /// Blocks keep what is expensive to compute again.
    Selective,
}

impl Checkpointing {
    /// Every choice.
    pub const ALL: [Checkpointing; 3] = [Checkpointing::None, Checkpointing::Block, Checkpointing::Selective];

    /// The word that flags and reports use.
    pub const fn label(self) -> &'static str {
        match self {
            Checkpointing::None => "none",
            Checkpointing::Block => "block",
            Checkpointing::Selective => "selective",
        }
    }

    /// What a block's forward keeps.
    pub const fn keep(self) -> Keep {
        match self {
            Checkpointing::None => Keep::Everything,
            Checkpointing::Block => Keep::Input,
            Checkpointing::Selective => Keep::Selective,
        }
    }
}

impl fmt::Display for Checkpointing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

impl FromStr for Checkpointing {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Checkpointing::ALL.into_iter().find(|choice| choice.label() == word).ok_or_else(|| {
            format!("choose one of {}", Checkpointing::ALL.map(Checkpointing::label).join(", "))
        })
    }
}
