//! Where a rank's time goes.

use serde::{Deserialize, Serialize};

/// Seconds per phase of the training loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Fetching tokens.
    pub data: f64,
    /// Forward passes.
    pub forward: f64,
    /// Backward passes.
    pub backward: f64,
    /// The part of backward in which blocks recompute what forward has not kept.
    pub recompute: f64,
    /// Optimizer steps, with what of an update goes on in the next forward.
    pub step: f64,
    /// Validation.
    pub evaluate: f64,
}

/// Seconds per phase: in all, and in waits for collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// In all.
    pub total: Times,
    /// In waits for collectives, part of `total`.
    pub waits: Times,
    /// In waits for peers, part of `waits`.
    pub for_peers: Times,
    /// In waits for a simulated link, part of `waits`.
    pub for_link: Times,
    /// In waits for transfers between device, main memory and disk, part of `total`.
    pub for_places: Times,
}
