//! The optimizer of a rank: AdamW on its slice of every unit, updated in one call.

mod ahead;
mod paging;
mod shard;
mod update;

use crate::buckets::bucket;
use crate::full::{StateRest, UnitBuffers};
use crate::partition::{Partition, UnitId};
use crate::places::Places;
use crate::rank::Rank;
use crate::{Buckets, Result};
use device::{Buffer, Class, DType, View, ViewMut};
use events::Pass;
use model::TrainingState;
use offload::{Cargo, Extent};
use std::ops::Range;
use std::sync::Arc;

use ahead::ReadAhead;
use paging::Pager;
use shard::Operands;
pub use shard::{AdamWShard, Moments, States};
pub use update::{ScaledUpdate, Update};

/// What a rank updates of one unit.
pub struct OwnSlice {
    /// The elements of the unit that this rank updates.
    pub slice: Range<usize>,
    /// Their optimizer states.
    pub states: AdamWShard,
    /// Whether the rank holds the unit's parameters in full although other ranks update a part of
    /// them.
    pub gather_after_update: bool,
}

/// Optimizer states of the elements that this rank updates, unit by unit.
pub struct Optimizer {
    partition: Arc<Partition>,
    units: Vec<OwnSlice>,
    places: Places,
    /// Of the first pieces, in the order of the update.
    ahead: Vec<ReadAhead>,
}

impl Optimizer {
    /// The optimizer that updates `units[u]` of unit u of `partition`, where states rest as
    /// `places` says.
    pub fn new(partition: Arc<Partition>, units: Vec<OwnSlice>, places: Places) -> Self {
        Optimizer { partition, units, places, ahead: Vec::new() }
    }

    /// The elements of `unit` that this rank updates.
    pub fn slice(&self, unit: UnitId) -> Range<usize> {
        self.units[unit].slice.clone()
    }

    /// Per unit, the part of `gradients` that this rank updates with.
    ///
    /// # Errors
    /// If a unit's gradients are out.
    pub fn own<'a>(&self, gradients: &'a UnitBuffers) -> Result<Vec<View<'a>>> {
        let slices = self.units.iter().map(|own| own.slice.clone()).enumerate();
        slices.map(|(unit, slice)| gradients.slice(unit, slice)).collect()
    }

    /// Updates this rank's slice of `parameters` from its slice of `gradients`, unit by unit. A
    /// unit that the rank holds in full goes through `gathers` as soon as its slice is updated; all
    /// are full again when this returns.
    ///
    /// # Errors
    /// If a kernel, a collective or a transfer fails.
    pub fn update(
        &mut self,
        rank: &Rank,
        update: ScaledUpdate,
        parameters: &mut UnitBuffers,
        gradients: &UnitBuffers,
        mut gathers: Option<&mut Buckets>,
    ) -> Result<()> {
        if self.places.are_away() {
            let ahead = std::mem::take(&mut self.ahead);
            Pager::new(rank, self.places, &mut self.units, (parameters, gradients), update, ahead)?
                .run(&mut gathers)?;
        } else {
            for unit in 0..self.units.len() {
                self.update_unit(rank, unit, update, parameters, gradients)?;
                self.units[unit].gather(rank, unit, parameters, &mut gathers)?;
            }
        }
        if let Some(gathers) = gathers {
            parameters.put_all(gathers.finish(rank)?);
        }
        Ok(())
    }

    /// Updates this rank's slice of one unit's `parameters` from its slice of `gradients`, all of
    /// them and the states on the device.
    ///
    /// # Errors
    /// If a kernel fails, or anything of the unit rests elsewhere.
    pub fn update_unit(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        update: ScaledUpdate,
        parameters: &mut UnitBuffers,
        gradients: &UnitBuffers,
    ) -> Result<()> {
        let OwnSlice { slice, states, .. } = &mut self.units[unit];
        let gradients = gradients.slice(unit, slice.clone())?;
        let within = parameters.within(unit, slice.clone());
        let mut parameters = parameters.get_mut(unit)?.slice_mut(within);
        let States::Here { master, moments } = &mut states.states else {
            return Err(crate::Error::Missing { unit, what: "optimizer states" });
        };
        for (number, piece) in states.pieces.iter().enumerate() {
            // A screen shows pieces as it shows micro-batches.
            let _bracket = rank.bracket(Pass::Step, unit, number);
            let range = || piece.range.clone();
            let own = parameters.slice_mut(range());
            let (parameters, master) = match master {
                None => (None, own),
                Some(master) => (Some(own), master.slice_mut(range())),
            };
            let operands = Operands {
                parameters,
                master,
                momentum: moments.momentum.slice_mut(range()),
                variance: moments.variance.slice_mut(range()),
                gradients: gradients.slice(range()),
            };
            piece.update(rank, operands, update)?;
        }
        Ok(())
    }

    /// The elements of `unit` that this rank updates, and where their `state` rests. `parameters`
    /// are what this rank holds: in f32 they are the master weights themselves.
    ///
    /// # Errors
    /// If the unit's parameters are out.
    pub fn state<'a>(
        &'a self,
        unit: UnitId,
        state: TrainingState,
        parameters: &'a UnitBuffers,
    ) -> Result<(Range<usize>, StateRest<'a>)> {
        let OwnSlice { slice, states, .. } = &self.units[unit];
        Ok((slice.clone(), states.rest(state, parameters.state_rest(unit, slice.clone())?)))
    }

    /// The whole of `unit`'s `state`, f32, in main memory, gathered from the ranks that share it.
    /// `parameters` are what this rank holds: in f32 they are the master weights themselves.
    ///
    /// # Errors
    /// If a collective or a transfer fails.
    pub fn whole(
        &self,
        rank: &Rank,
        unit: UnitId,
        state: TrainingState,
        parameters: &UnitBuffers,
    ) -> Result<Buffer> {
        let (slice, rests) = self.state(unit, state, parameters)?;
        let padded = self.partition.units[unit].padded;
        let mut full = rank.device.allocate_host(Class::GatheredParameters, DType::F32, padded)?;
        copy(rests, rank, unit, full.slice_mut(slice.clone()))?;
        if slice.len() == padded {
            return Ok(full);
        }
        let mut gathered = rank.shard_group().all_gather(bucket(vec![full], &[unit]))?.wait()?;
        // A collective gives back as many buffers as it was given.
        gathered.pop().ok_or(crate::Error::Missing { unit, what: "gathered training state" })
    }
}

/// `out` = all of a state of a slice of `unit`.
fn copy(rests: StateRest<'_>, rank: &Rank, unit: UnitId, mut out: ViewMut<'_>) -> Result<()> {
    match rests {
        StateRest::Here(here) => rank.kernels().copy(out, here)?,
        StateRest::Disk(class, stretches) => {
            for (range, extent) in stretches {
                let arrived = read_stretch(rank, Cargo { class, unit }, range.len(), extent)?;
                let end = range.end.min(out.len());
                let here = arrived.slice(0..end - range.start);
                rank.kernels().copy(out.slice_mut(range.start..end), here)?;
            }
        }
    }
    Ok(())
}

/// Reads the `elements` f32 elements of a state that rest in `extent` to a buffer in main memory
/// with whole pages.
///
/// # Errors
/// If main memory is full or the disk fails.
pub fn read_stretch(rank: &Rank, cargo: Cargo, elements: usize, extent: &Extent) -> Result<Buffer> {
    let staging = rank.transfers.staging(DType::F32, elements)?;
    let bytes = staging.byte_len();
    let read = rank.transfers.read(cargo, extent, 0, staging, bytes);
    Ok(rank.transfers.settle(read)?.buffer)
}

impl OwnSlice {
    /// Queues the unit's parameters, which have just been updated, if the rank holds them in full.
    fn gather(
        &self,
        rank: &Rank,
        unit: UnitId,
        parameters: &mut UnitBuffers,
        gathers: &mut Option<&mut Buckets>,
    ) -> Result<()> {
        if let Some(gathers) = gathers.as_deref_mut().filter(|_| self.gather_after_update) {
            let full = parameters.take(unit)?;
            parameters.put_all(gathers.push(rank, unit, full)?);
        }
        Ok(())
    }
}
