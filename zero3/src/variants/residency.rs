//! Whether a gathered unit stays: decided for each unit at setup, from the schedule.
//!
//! By default only the unit that backward starts with stays from forward to backward. FSDP's
//! shard-grad-op keeps all units until backward no longer needs them: a rank then holds only its
//! slices between steps, as much as in ZeRO-2 within a step, and gathers each unit once per
//! micro-batch instead of twice. DeepSpeed's `stage3_max_reuse_distance` keeps some of the units.
//! DeepSpeed's persistent parameters, small tensors, are never sharded: every rank holds them in
//! full.

use events::Pass;
use sharding::{GatherWindow, Partition, Schedule, UnitId};
use trainer::Setup;

/// How long a unit's full parameters stay gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// They are freed when a pass no longer needs them.
    FreeAfterPass,
    /// They stay from forward to backward.
    KeepForBackward,
    /// They are never sharded.
    Persistent,
}

/// How long each unit stays gathered.
pub struct ResidencyPolicy(Vec<Residency>);

impl ResidencyPolicy {
    /// Returns the residency of all units under the run's strategy and limits.
    pub fn new(setup: &Setup) -> Self {
        ResidencyPolicy((0..setup.partition.units.len()).map(|unit| residency(setup, unit)).collect())
    }

    /// Returns `unit`'s residency as decided at setup; [`ResidencyPolicy::after_pass`] may free it
    /// earlier.
    pub fn for_unit(&self, unit: UnitId) -> Residency {
        self.0[unit]
    }

    /// Returns what to do with `unit` when `pass` no longer needs it.
    pub fn after_pass(&self, unit: UnitId, pass: Pass, window: &GatherWindow) -> Residency {
        match self.0[unit] {
            Residency::KeepForBackward if pass != Pass::Forward || !window.may_keep() => {
                Residency::FreeAfterPass
            }
            residency => residency,
        }
    }
}

fn residency(setup: &Setup, unit: UnitId) -> Residency {
    if setup.partition.units[unit].persistent {
        return Residency::Persistent;
    }
    let distance = reuse_distance(unit, &setup.schedule, &setup.partition);
    let stays = !setup.strategy.reshards_after_forward() || setup.communication.keeps(distance);
    if stays { Residency::KeepForBackward } else { Residency::FreeAfterPass }
}

/// Returns how many elements, including padding, are gathered between `unit`'s last use in forward
/// and its first use in backward. A unit gathered in both passes counts twice. Returns 0 for the
/// units that backward starts with.
pub fn reuse_distance(unit: UnitId, schedule: &Schedule, partition: &Partition) -> usize {
    let at = |steps: &[Vec<UnitId>]| steps.iter().position(|units| units.contains(&unit));
    let left = at(&schedule.forward.last).map_or(0, |at| at + 1);
    let back = at(&schedule.backward.first).unwrap_or(0);
    let between = schedule.forward.first[left..].iter().chain(&schedule.backward.first[..back]);
    let gathered = between.flatten().map(|&unit| &partition.units[unit]).filter(|unit| !unit.persistent);
    gathered.map(|unit| unit.padded).sum()
}
