//! How a job gathers sharded parameters: the settings that [`crate::Job`] carries.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// When backward gathers a unit's parameters ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum BackwardPrefetch {
    /// Before the backward of the unit in use. That backward hides the all-gather; the rank holds
    /// both units.
    #[default]
    Pre,
    /// After the unit in use is freed: the rank holds less, and less of the all-gather is hidden.
    Post,
    /// When it is needed.
    None,
}

/// How sharded parameters are gathered. Elements include padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Units are gathered ahead of the one in use while those ahead of it have fewer elements than
    /// this: 1 is one unit.
    pub ahead: u64,
    /// When backward gathers units ahead, by the same number of elements.
    pub backward: BackwardPrefetch,
    /// Maximum number of all-gathers in flight when a unit is gathered ahead.
    pub in_flight: usize,
    /// Maximum number of elements gathered at once when a unit is gathered ahead or kept.
    pub live: u64,
    /// Units are kept after forward if the other units that layers need before backward needs them
    /// again have fewer elements than this: 1 keeps the units that backward begins with, 0 keeps
    /// none.
    pub reuse: u64,
}

impl Default for Gathering {
    /// Returns the default: one unit is gathered ahead, at most two all-gathers are in flight, and
    /// the units that backward begins with are kept.
    fn default() -> Self {
        Gathering { ahead: 1, backward: BackwardPrefetch::Pre, in_flight: 2, live: u64::MAX, reuse: 1 }
    }
}
