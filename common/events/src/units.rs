//! What one rank holds of each unit beyond what it owns: gathered parameters, gradients on their way.

use crate::event::{Class, CollectiveEvent, NO_UNIT, Operation, Pass, Progress};
use serde::{Deserialize, Serialize};

/// A unit's full parameters on a rank that owns a shard of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gather {
    /// Not here.
    #[default]
    Released,
    /// On their way.
    Gathering,
    /// Here.
    Gathered,
}

/// A unit's gradients on a rank in this step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gradient {
    /// Not computed yet.
    #[default]
    Absent,
    /// This rank's own, full, waiting for reduction.
    Local,
    /// Being summed over ranks.
    Reducing,
    /// Summed.
    Reduced,
}

/// One unit on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitNow {
    /// Its gathered parameters.
    pub gather: Gather,
    /// Bytes of the gathered copy.
    pub gathered_bytes: u64,
    /// Its gradients.
    pub gradient: Gradient,
    /// Updated parameters are on their way to the ranks that keep them whole.
    pub refreshing: bool,
    /// The optimizer has updated it in this step.
    pub updated: bool,
}

/// All units on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// In forward order.
    pub units: Vec<UnitNow>,
    /// Gathered copies that are allocated but not yet claimed by an all-gather, in bytes.
    unclaimed: Vec<u64>,
}

impl Units {
    /// `count` units of which nothing is gathered or computed.
    pub fn new(count: usize) -> Self {
        Units { units: vec![UnitNow::default(); count], unclaimed: Vec::new() }
    }

    pub(crate) fn start_step(&mut self) {
        for unit in &mut self.units {
            (unit.gradient, unit.updated, unit.refreshing) = (Gradient::Absent, false, false);
        }
    }

    pub(crate) fn pass(&mut self, pass: Pass, unit: u16) {
        let Some(unit) = self.units.get_mut(usize::from(unit)) else { return };
        match pass {
            Pass::Backward => unit.gradient = Gradient::Local,
            Pass::Step => unit.updated = true,
            Pass::Forward | Pass::Evaluate | Pass::Recompute => {}
        }
    }

    pub(crate) fn memory(&mut self, class: Class, delta: i64, last_unit: Option<u16>) {
        if class != Class::GatheredParameters {
            return;
        }
        if delta > 0 {
            self.unclaimed.push(delta as u64);
        } else {
            self.release(delta.unsigned_abs(), last_unit);
        }
    }

    /// Memory events do not name units: the copy released is the one of the unit that was left last, or else any of
    /// that size.
    fn release(&mut self, bytes: u64, last_unit: Option<u16>) {
        let fits = |unit: &UnitNow| unit.gather != Gather::Released && unit.gathered_bytes == bytes;
        let last = last_unit.map(usize::from).filter(|&unit| self.units.get(unit).is_some_and(fits));
        match last.or_else(|| self.units.iter().position(fits)) {
            Some(unit) => self.units[unit].gather = Gather::Released,
            None => self.unclaimed.retain(|&other| other != bytes),
        }
    }

    pub(crate) fn collective(&mut self, event: &CollectiveEvent) {
        if event.unit == NO_UNIT {
            return;
        }
        let first = usize::from(event.unit).min(self.units.len());
        let last = (first + usize::from(event.units)).min(self.units.len());
        for unit in first..last {
            match event.operation {
                Operation::AllGather => self.gather(unit, event.progress),
                Operation::AllReduce | Operation::ReduceScatter => {
                    self.units[unit].gradient = match event.progress {
                        Progress::Issued | Progress::Started => Gradient::Reducing,
                        Progress::Finished => Gradient::Reduced,
                    }
                }
                _ => {}
            }
        }
    }

    fn gather(&mut self, unit: usize, progress: Progress) {
        if progress == Progress::Issued && !self.unclaimed.is_empty() {
            self.units[unit].gathered_bytes = self.unclaimed.remove(0);
            self.units[unit].gather = Gather::Gathering;
        }
        let unit = &mut self.units[unit];
        match (unit.gather, progress) {
            (Gather::Released, progress) => unit.refreshing = progress != Progress::Finished,
            (_, Progress::Finished) => unit.gather = Gather::Gathered,
            _ => {}
        }
    }
}
