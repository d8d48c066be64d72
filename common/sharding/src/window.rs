//! Units that are gathered or on their way, and how far ahead gathering may run.

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
    /// Most all-gathers in flight.
    pub in_flight: usize,
    /// Most elements gathered at once, those in use included.
    pub live: usize,
}

enum Gathered {
    OnItsWay(Pending),
    Here(Buffer),
}

/// The full parameters that a rank has gathered, or has asked for.
pub struct GatherWindow {
    limits: GatherLimits,
    partition: Arc<Partition>,
    schedule: Arc<Schedule>,
    /// Those that are not handed out.
    units: BTreeMap<UnitId, Gathered>,
    /// Elements of all units that are here, on their way or handed out.
    live: usize,
    latest: Option<UnitId>,
}

impl GatherWindow {
    /// An empty window over the units of `partition`, which passes need as `schedule` says.
    pub fn new(limits: GatherLimits, partition: Arc<Partition>, schedule: Arc<Schedule>) -> Self {
        GatherWindow { limits, partition, schedule, units: BTreeMap::new(), live: 0, latest: None }
    }

    /// Whether `unit` is here or on its way.
    pub fn contains(&self, unit: UnitId) -> bool {
        self.units.contains_key(&unit)
    }

    /// Notes that `unit`'s all-gather has been issued.
    pub fn issued(&mut self, unit: UnitId, pending: Pending) {
        self.live += self.elements(unit);
        self.units.insert(unit, Gathered::OnItsWay(pending));
    }

    /// `unit`'s full parameters, once its all-gather has finished.
    ///
    /// # Errors
    /// If nothing was issued for the unit, or its all-gather failed.
    pub fn take(&mut self, unit: UnitId) -> Result<FullParameters> {
        self.latest = Some(unit);
        let missing = Error::Missing { unit, what: "gathered parameters" };
        let buffer = match self.units.remove(&unit) {
            Some(Gathered::Here(buffer)) => buffer,
            Some(Gathered::OnItsWay(pending)) => pending.wait()?.pop().ok_or(missing)?,
            None => return Err(missing),
        };
        Ok(FullParameters { unit, buffer })
    }

    /// Whether no more is gathered than may be, so that what is handed back may stay.
    pub fn may_keep(&self) -> bool {
        self.live <= self.limits.live
    }

    /// Keeps a unit's full parameters for the next [`GatherWindow::take`].
    pub fn keep(&mut self, full: FullParameters) {
        self.units.insert(full.unit, Gathered::Here(full.buffer));
    }

    /// Frees a unit's full parameters.
    pub fn free(&mut self, full: FullParameters) {
        self.live -= self.elements(full.unit);
        drop(full);
    }

    /// Frees all units that are here or on their way, in a group that is [winding
    /// down](collectives::Group::wind_down).
    pub fn stop(&mut self) {
        self.units.clear();
        self.live = 0;
    }

    /// The unit that `pass` gathers ahead now: the first after the one taken last that is neither
    /// here nor on its way, if the limits leave room for it.
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
        let in_flight = self.units.values().filter(|unit| matches!(unit, Gathered::OnItsWay(_))).count();
        in_flight < self.limits.in_flight && self.live + self.elements(unit) <= self.limits.live
    }

    fn elements(&self, unit: UnitId) -> usize {
        self.partition.units[unit].padded
    }
}
