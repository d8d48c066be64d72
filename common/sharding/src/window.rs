//! Units that are gathered or on their way.

use crate::partition::UnitId;
use crate::{Error, Result};
use collectives::Pending;
use device::Buffer;
use std::collections::BTreeMap;

enum Gathered {
    OnItsWay(Pending),
    Here(Buffer),
}

/// The full parameters that a rank has gathered, or has asked for, beyond those that are handed out.
#[derive(Default)]
pub struct GatherWindow {
    units: BTreeMap<UnitId, Gathered>,
}

impl GatherWindow {
    /// Whether `unit` is here or on its way.
    pub fn contains(&self, unit: UnitId) -> bool {
        self.units.contains_key(&unit)
    }

    /// Notes that `unit`'s all-gather has been issued.
    pub fn issued(&mut self, unit: UnitId, pending: Pending) {
        self.units.insert(unit, Gathered::OnItsWay(pending));
    }

    /// Keeps `unit`'s full parameters for the next [`GatherWindow::take`].
    pub fn keep(&mut self, unit: UnitId, buffer: Buffer) {
        self.units.insert(unit, Gathered::Here(buffer));
    }

    /// `unit`'s full parameters, once its all-gather has finished.
    ///
    /// # Errors
    /// If nothing was issued for the unit, or its all-gather failed.
    pub fn take(&mut self, unit: UnitId) -> Result<Buffer> {
        let missing = Error::Missing { unit, what: "gathered parameters" };
        match self.units.remove(&unit) {
            Some(Gathered::Here(buffer)) => Ok(buffer),
            Some(Gathered::OnItsWay(pending)) => pending.wait()?.pop().ok_or(missing),
            None => Err(missing),
        }
    }
}
