//! How a job gathers sharded parameters: the settings that [`crate::Job`] carries.

use clap::ValueEnum;
use serde::Serialize;

/// When backward gathers a unit's parameters ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum BackwardPrefetch {
    /// Before the backward of the unit in use, which hides it: both are held meanwhile.
    #[default]
    Pre,
    /// Once the unit in use is freed: less is held, less is hidden.
    Post,
    /// When it is needed.
    None,
}

/// How parameters that are sharded are gathered. Elements include padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Units are gathered ahead of the one in use while those ahead of it have fewer elements than this: 1 is one unit.
    pub ahead: u64,
    /// The same in backward, and when.
    pub backward: BackwardPrefetch,
    /// No unit is gathered ahead beyond so many all-gathers in flight.
    pub in_flight: usize,
    /// No unit is gathered ahead, or kept, beyond so many elements gathered at once.
    pub live: u64,
    /// Units that backward needs again before this many elements of others are kept after forward: 1 keeps what backward
    /// begins with, 0 keeps nothing.
    pub reuse: u64,
}

impl Default for Gathering {
    /// One unit ahead, at most two all-gathers in flight; what backward begins with is kept.
    fn default() -> Self {
        Gathering { ahead: 1, backward: BackwardPrefetch::Pre, in_flight: 2, live: u64::MAX, reuse: 1 }
    }
}
