//! Whether a gathered unit stays: decided for each unit at setup, from the schedule.
//!
//! By default only the unit that backward starts with stays from forward to backward. FSDP's
//! shard-grad-op keeps all units until backward is done with them: a rank holds as little between
//! steps, as much as ZeRO-2 within one, and gathers once less. DeepSpeed's
//! `stage3_max_reuse_distance` keeps some of them. Its persistent parameters, small tensors, are
//! never cut: every rank holds them in full.

use events::Pass;
use sharding::{GatherWindow, Partition, Schedule, UnitId};
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
    let distance = reuse_distance(unit, &setup.schedule, &setup.partition);
    let stays = !setup.strategy.reshards_after_forward() || setup.communication.keeps(distance);
    if stays { Stay::UntilBackward } else { Stay::No }
}

/// Elements, padding included, of the units that are gathered between the last use of `unit` in
/// forward and its first in backward, those that both passes gather counted twice: 0 for what
/// backward begins with.
pub fn reuse_distance(unit: UnitId, schedule: &Schedule, partition: &Partition) -> usize {
    let at = |steps: &[Vec<UnitId>]| steps.iter().position(|units| units.contains(&unit));
    let left = at(&schedule.forward.last).map_or(0, |at| at + 1);
    let back = at(&schedule.backward.first).unwrap_or(0);
    let between = schedule.forward.first[left..].iter().chain(&schedule.backward.first[..back]);
    let gathered = between.flatten().map(|&unit| &partition.units[unit]).filter(|unit| !unit.persistent);
    gathered.map(|unit| unit.padded).sum()
}
