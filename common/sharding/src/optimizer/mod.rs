//! The optimizer of a rank: AdamW on its slice of every unit, updated in one call.

mod shard;
mod update;

use crate::full::UnitBuffers;
use crate::partition::{Partition, UnitId};
use crate::rank::Rank;
use crate::{Buckets, Result};
use device::{Buffer, View};
use model::TrainingState;
use std::ops::Range;
use std::sync::Arc;

pub use shard::{AdamWShard, Moments};
pub use update::{ScaledUpdate, Update};

/// What a rank updates of one unit.
pub struct OwnSlice {
    /// The elements of the unit that this rank updates.
    pub slice: Range<usize>,
    /// Their optimizer states.
    pub states: AdamWShard,
    /// Whether the rank holds the unit's parameters in full although other ranks update a part of them.
    pub gather_after_update: bool,
}

/// Optimizer states of the elements that this rank updates, unit by unit.
pub struct Optimizer {
    partition: Arc<Partition>,
    units: Vec<OwnSlice>,
}

impl Optimizer {
    /// The optimizer that updates `units[u]` of unit u of `partition`.
    pub fn new(partition: Arc<Partition>, units: Vec<OwnSlice>) -> Self {
        Optimizer { partition, units }
    }

    /// Per unit, the part of `gradients` that this rank updates with.
    ///
    /// # Errors
    /// If a unit's gradients are out.
    pub fn own<'a>(&self, gradients: &'a UnitBuffers) -> Result<Vec<View<'a>>> {
        let slices = self.units.iter().map(|own| own.slice.clone()).enumerate();
        slices.map(|(unit, slice)| gradients.slice(unit, slice)).collect()
    }

    /// Updates this rank's slice of `parameters` from its slice of `gradients`, unit by unit. A unit that the rank holds in
    /// full goes through `gathers` as soon as its slice is updated; all are full again when this returns.
    ///
    /// # Errors
    /// If a kernel or a collective fails.
    pub fn update(
        &mut self,
        rank: &Rank,
        update: ScaledUpdate,
        parameters: &mut UnitBuffers,
        gradients: &UnitBuffers,
        mut gathers: Option<&mut Buckets>,
    ) -> Result<()> {
        for unit in 0..self.units.len() {
            self.update_unit(rank, unit, update, parameters, gradients)?;
            if let Some(gathers) = gathers.as_deref_mut().filter(|_| self.units[unit].gather_after_update) {
                let full = parameters.take(unit)?;
                parameters.put_all(gathers.push(rank, unit, full)?);
            }
        }
        if let Some(gathers) = gathers {
            parameters.put_all(gathers.finish(rank)?);
        }
        Ok(())
    }

    /// Updates this rank's slice of one unit's `parameters` from its slice of `gradients`.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn update_unit(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        update: ScaledUpdate,
        parameters: &mut UnitBuffers,
        gradients: &UnitBuffers,
    ) -> Result<()> {
        let OwnSlice { slice, states, .. } = &mut self.units[unit];
        let within = parameters.within(unit, slice.clone());
        let parameters = parameters.get_mut(unit)?.slice_mut(within);
        states.update(rank, parameters, gradients.slice(unit, slice.clone())?, update)
    }

    /// The whole of `unit`'s `state`, f32, in main memory, gathered from the ranks that share it. `parameters` are what this
    /// rank holds: in f32 they are the master weights themselves.
    ///
    /// # Errors
    /// If a collective fails.
    pub fn whole(
        &self,
        rank: &Rank,
        unit: UnitId,
        state: TrainingState,
        parameters: &UnitBuffers,
    ) -> Result<Buffer> {
        let OwnSlice { slice, states, .. } = &self.units[unit];
        let parameters = parameters.slice(unit, slice.clone())?;
        states.whole(state, rank, &self.partition, slice.clone(), parameters)
    }
}
