//! Units that are gathered or in flight, and how far ahead gathering may run.

use crate::full::FullParameters;
use crate::partition::{Partition, UnitId};
use crate::schedule::Schedule;
use crate::{Error, Result};
use collectives::Pending;
use device::Buffer;
use events::Pass;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far gathering may run ahead of computing. Elements include padding.
///
/// None of these holds back a unit that is needed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherLimits {
    /// Units are gathered ahead of the one in use while those ahead of it hold fewer elements than
    /// this: 0 for none, 1 for one unit, since a unit is never split.
    pub ahead: usize,
    /// Maximum number of all-gathers in flight.
    pub in_flight: usize,
    /// Maximum number of elements gathered at once, including units in use.
    pub live: usize,
}

enum Gathered {
    InFlight(Pending),
    Ready(Buffer),
}

/// The full parameters that a rank has gathered, or whose all-gather is in flight.
pub struct GatherWindow {
    limits: GatherLimits,
    partition: Arc<Partition>,
    schedule: Arc<Schedule>,
    /// The units that are not handed out.
    units: BTreeMap<UnitId, Gathered>,
    /// Elements of all units that are in flight, gathered or handed out.
    live: usize,
    /// The unit that was taken last.
    latest: Option<UnitId>,
}

impl GatherWindow {
    /// Returns an empty window over the units of `partition`, which passes need as `schedule` says.
    pub fn new(limits: GatherLimits, partition: Arc<Partition>, schedule: Arc<Schedule>) -> Self {
        GatherWindow { limits, partition, schedule, units: BTreeMap::new(), live: 0, latest: None }
    }

    /// True if `unit` is gathered or in flight.
    pub fn contains(&self, unit: UnitId) -> bool {
        self.units.contains_key(&unit)
    }

    /// Adds `unit`, whose all-gather has been issued.
    pub fn add_in_flight(&mut self, unit: UnitId, pending: Pending) {
        self.live += self.elements(unit);
        self.units.insert(unit, Gathered::InFlight(pending));
    }

    /// Waits for `unit`'s all-gather. Returns the full parameters.
    ///
    /// # Errors
    /// If nothing was issued for the unit, or its all-gather failed.
    pub fn take(&mut self, unit: UnitId) -> Result<FullParameters> {
        self.latest = Some(unit);
        let missing = Error::Missing { unit, what: "gathered parameters" };
        let buffer = match self.units.remove(&unit) {
            Some(Gathered::Ready(buffer)) => buffer,
            Some(Gathered::InFlight(pending)) => pending.wait()?.pop().ok_or(missing)?,
            None => return Err(missing),
        };
        Ok(FullParameters { unit, buffer })
    }

    /// True if the limit of live elements allows a unit that is handed back to stay gathered.
    pub fn may_keep(&self) -> bool {
        self.live <= self.limits.live
    }

    /// Keeps a unit's full parameters for the next [`GatherWindow::take`].
    pub fn keep(&mut self, full: FullParameters) {
        self.units.insert(full.unit, Gathered::Ready(full.buffer));
    }

    /// Frees a unit's full parameters.
    pub fn free(&mut self, full: FullParameters) {
        self.live -= self.elements(full.unit);
        drop(full);
    }

    /// Frees all units that are gathered or in flight. The group is [winding
    /// down](collectives::Group::wind_down).
    pub fn abort(&mut self) {
        self.units.clear();
        self.live = 0;
    }

    /// Returns the unit to gather ahead in `pass`: the first one after the unit taken last that is
    /// neither gathered nor in flight. `None` if the limits leave no room for it.
    pub fn next_ahead(&self, pass: Pass) -> Option<UnitId> {
        let order = &self.schedule.pass(pass).order;
        let latest = order.iter().position(|&unit| Some(unit) == self.latest)?;
        let mut ahead = 0;
        let gathered = order[latest + 1..].iter().filter(|&&unit| !self.partition.units[unit].persistent);
        for &unit in gathered {
            if ahead >= self.limits.ahead {
                return None;
            }
            if !self.contains(unit) {
                return self.has_room(unit).then_some(unit);
            }
            ahead += self.elements(unit);
        }
        None
    }

    fn has_room(&self, unit: UnitId) -> bool {
        let in_flight = self.units.values().filter(|unit| matches!(unit, Gathered::InFlight(_))).count();
        in_flight < self.limits.in_flight && self.live + self.elements(unit) <= self.limits.live
    }

    fn elements(&self, unit: UnitId) -> usize {
        self.partition.units[unit].padded
    }
}
