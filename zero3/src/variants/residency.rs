//! Whether a gathered unit stays: decided for each unit at setup, from the schedule.
//!
//! By default only the unit that backward starts with stays from forward to backward. FSDP's
//! shard-grad-op keeps all units until backward is done with them: a rank holds as little between
//! steps, as much as ZeRO-2 within one, and gathers once less. DeepSpeed's
//! `stage3_max_reuse_distance` keeps some of them. Its persistent parameters, small tensors, are
//! never cut: every rank holds them in full.

use events::Pass;
use sharding::{GatherWindow, UnitId};
use trainer::Setup;

/// How long a unit's full parameters stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// They are freed when a pass is done with them.
    No,
    /// They stay from forward to backward.
    UntilBackward,
    /// They are never cut: the unit is persistent.
    Always,
}

/// How long each unit stays.
pub struct Residency(Vec<Stay>);

impl Residency {
    /// The residency of all units under the run's strategy and limits.
    pub fn new(setup: &Setup) -> Self {
        let units = setup.partition.units.iter().enumerate();
        Residency(
            units.map(|(unit, of)| if of.persistent { Stay::Always } else { stay(setup, unit) }).collect(),
        )
    }

    /// How long `unit` stays, where the limit of live elements allows it.
    pub fn of(&self, unit: UnitId) -> Stay {
        self.0[unit]
    }

    /// What happens to `unit` now that `pass` is done with it.
    pub fn after(&self, unit: UnitId, pass: Pass, window: &GatherWindow) -> Stay {
        match self.0[unit] {
            Stay::UntilBackward if pass != Pass::Forward || !window.may_keep() => Stay::No,
            stay => stay,
        }
    }
}

fn stay(setup: &Setup, unit: UnitId) -> Stay {
    let distance = setup.schedule.reuse_distance(unit, &setup.partition);
    let stays = !setup.strategy.reshards_after_forward() || setup.communication.keeps(distance);
    if stays { Stay::UntilBackward } else { Stay::No }
}
