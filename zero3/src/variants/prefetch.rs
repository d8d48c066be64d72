//! When a pass gathers ahead.
//!
//! Forward gathers ahead as soon as a unit is gathered. Backward does so at the same moment (FSDP's
//! BACKWARD_PRE); or only once the unit in use is freed (BACKWARD_POST), which holds one unit less
//! and hides less communication; or never.

use events::Pass;
use prediction::BackwardPrefetch;
use trainer::Setup;

/// When backward gathers ahead.
pub struct Prefetch(BackwardPrefetch);

impl Prefetch {
    /// Returns when the run's `--backward-prefetch` gathers ahead.
    pub fn new(setup: &Setup) -> Self {
        Prefetch(setup.communication.backward_prefetch)
    }

    /// True if `pass` gathers ahead at `moment`: before it computes with a unit (`Pre`), or once it
    /// has freed it (`Post`).
    pub fn is_due(&self, pass: Pass, moment: BackwardPrefetch) -> bool {
        let chosen = if pass == Pass::Backward { self.0 } else { BackwardPrefetch::Pre };
        chosen == moment
    }
}
