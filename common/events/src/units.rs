//! The buffers that one rank holds of each unit in addition to its own shard: gathered parameters,
//! and gradients before their reduction.

use crate::amount::{bounded, make_room};
use crate::event::{Class, CollectiveEvent, Operation, Pass, Progress};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The state of a unit's full parameters on a rank that owns a shard of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GatherState {
    /// The rank does not hold them.
    #[default]
    Released,
    /// An all-gather is in flight.
    Gathering,
    /// The rank holds them.
    Gathered,
}

/// The state of a unit's gradients on a rank in the current step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GradientState {
    /// Not computed yet.
    #[default]
    Absent,
    /// This rank's own full gradients, not reduced yet.
    Local,
    /// Being summed over ranks.
    Reducing,
    /// Summed.
    Reduced,
}

/// The state of one unit on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitState {
    /// The state of its full parameters.
    pub gather: GatherState,
    /// Bytes of the gathered copy.
    #[serde(deserialize_with = "bounded")]
    pub gathered_bytes: u64,
    /// The state of its gradients.
    pub gradient: GradientState,
    /// An all-gather of updated parameters is in flight, to ranks that keep them whole.
    pub refreshing: bool,
    /// The optimizer has updated the unit since the step began.
    pub updated: bool,
}

/// The state of all units on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// The units, in forward order. Clones share them until one changes.
    pub units: Arc<Vec<UnitState>>,
    /// Sizes of gathered copies that are allocated but not yet assigned to an all-gather, in bytes.
    #[serde(deserialize_with = "bounded")]
    unclaimed: Vec<u64>,
}

impl Units {
    /// Returns `count` units with nothing gathered and no gradients.
    pub fn new(count: usize) -> Self {
        Units { units: Arc::new(vec![UnitState::default(); count]), unclaimed: Vec::new() }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.units[..]) + size_of_val(&self.unclaimed[..])
    }

    pub(crate) fn start_step(&mut self) {
        for unit in Arc::make_mut(&mut self.units) {
            (unit.gradient, unit.updated) = (GradientState::Absent, false);
        }
    }

    pub(crate) fn pass(&mut self, pass: Pass, unit: u16) {
        let Some(unit) = Arc::make_mut(&mut self.units).get_mut(usize::from(unit)) else { return };
        match pass {
            Pass::Backward => unit.gradient = GradientState::Local,
            Pass::Step => unit.updated = true,
            Pass::Forward | Pass::Evaluate | Pass::Recompute | Pass::Add => {}
        }
    }

    pub(crate) fn memory(&mut self, class: Class, delta: i64, last_unit: Option<u16>) {
        if class != Class::GatheredParameters {
            return;
        }
        if delta > 0 {
            make_room(&mut self.unclaimed);
            self.unclaimed.push(delta as u64);
        } else {
            self.release(delta.unsigned_abs(), last_unit);
        }
    }

    /// Marks a gathered copy of `bytes` as released. Memory events do not name units: the copy is
    /// assumed to be that of `last_unit`, the unit of the latest finished pass, or else the first
    /// of that size.
    fn release(&mut self, bytes: u64, last_unit: Option<u16>) {
        let fits = |unit: &UnitState| unit.gather != GatherState::Released && unit.gathered_bytes == bytes;
        let last = last_unit.map(usize::from).filter(|&unit| self.units.get(unit).is_some_and(fits));
        match last.or_else(|| self.units.iter().position(fits)) {
            Some(unit) => Arc::make_mut(&mut self.units)[unit].gather = GatherState::Released,
            None => self.unclaimed.retain(|&other| other != bytes),
        }
    }

    pub(crate) fn collective(&mut self, event: &CollectiveEvent) {
        let known = self.units.len();
        for unit in event.units.iter().map(usize::from).take_while(|&unit| unit < known) {
            match event.operation {
                Operation::AllGather => self.gather(unit, event.progress),
                Operation::AllReduce | Operation::ReduceScatter => {
                    Arc::make_mut(&mut self.units)[unit].gradient = match event.progress {
                        Progress::Issued | Progress::Started => GradientState::Reducing,
                        Progress::Finished => GradientState::Reduced,
                    }
                }
                _ => {}
            }
        }
    }

    fn gather(&mut self, unit: usize, progress: Progress) {
        let unit = &mut Arc::make_mut(&mut self.units)[unit];
        if progress == Progress::Issued && !self.unclaimed.is_empty() {
            (unit.gathered_bytes, unit.gather) = (self.unclaimed.remove(0), GatherState::Gathering);
        }
        match (unit.gather, progress) {
            (GatherState::Released, progress) => unit.refreshing = progress != Progress::Finished,
            (_, Progress::Finished) => unit.gather = GatherState::Gathered,
            _ => {}
        }
    }
}
