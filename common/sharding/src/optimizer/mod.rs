//! The optimizer of a rank: AdamW on its slice of every unit, in one call over all of them. An update
//! of states beyond the device goes on after that call.

mod paging;
mod shard;
mod update;

use crate::buckets::bucket;
use crate::full::{StateRest, UnitBuffers};
use crate::partition::{Partition, UnitId};
use crate::places::Places;
use crate::rank::Rank;
use crate::usage::Usage;
use crate::{Buckets, Result};
use device::{Buffer, Class, DType, Place, View, ViewMut};
use events::Pass;
use model::TrainingState;
use offload::{Cargo, Extent};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use paging::TakeUpdated;
use paging::{Paging, UpdateOperands};
pub use shard::{AdamWShard, States};
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
    /// If anything that an update needs rests beyond the device.
    paging: Option<Paging>,
    after_step: AfterStep,
}

/// What updates of states beyond the device have taken in all since they began.
#[derive(Clone, Copy, Default)]
pub struct AfterStep {
    /// The rank's time, without pauses.
    pub time: Duration,
    /// What it has sent and moved.
    pub usage: Usage,
}

events::counters! { AfterStep [] time, usage }

impl Optimizer {
    /// The optimizer that updates `units[u]` of unit u of `partition`, where states rest as
    /// `places` says, and `parameters` and `gradients` where they are.
    ///
    /// # Errors
    /// If there is no room in main memory for the buffers of updates.
    pub fn new(
        rank: &Rank,
        partition: Arc<Partition>,
        units: Vec<OwnSlice>,
        places: Places,
        (parameters, gradients): (&UnitBuffers, &UnitBuffers),
    ) -> Result<Self> {
        let paging = || Paging::new(rank, places, &units, (parameters, gradients));
        let away = [places.optimizer, places.parameters] != [Place::Device; 2];
        let paging = away.then(paging).transpose()?;
        Ok(Optimizer { partition, units, paging, after_step: AfterStep::default() })
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

    /// Ends the update before, and begins to read from disk what the next one needs first: no state
    /// can be written before the norm, which needs all gradients, but the first can be read. Called
    /// during a step's last backward, before each of `calls` layers that are left.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn read_ahead(&mut self, rank: &Rank, calls: usize) -> Result<()> {
        self.counted(rank, |paging, units| paging.read_ahead(rank, units, calls))
    }

    /// Ends a step without an update: drops what was read ahead, once it is here.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn stop(&mut self, rank: &Rank) -> Result<()> {
        self.paging.as_mut().map_or(Ok(()), |paging| paging.stop(rank))
    }

    /// Updates this rank's slice of `parameters` from its slice of `gradients`, unit by unit. A
    /// unit that the rank holds in full goes through `gathers` as soon as its slice is updated; all
    /// are full again when this returns. But if the CPU makes the update, it only begins here, and
    /// [`Optimizer::complete`] goes on with it, unless there are units to gather while others rest
    /// on disk.
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
        if let Some(paging) = &mut self.paging {
            paging.begin(rank, update)?;
            if paging.may_go_on() {
                return Ok(());
            }
            return self.complete(rank, None, (parameters, gradients), gathers, None);
        }
        for unit in 0..self.units.len() {
            self.update_unit(rank, unit, update, parameters, gradients)?;
            self.units[unit].gather(rank, unit, parameters, &mut gathers)?;
        }
        if let Some(gathers) = gathers {
            parameters.put_all(gathers.finish(rank)?);
        }
        Ok(())
    }

    /// Goes on with an update of states beyond the device, if one is under way, until `unit` is
    /// updated and, if the rank holds it in full, gathered; and a little further, so that what
    /// comes next travels while `unit` computes. Without a unit all of the update is over when this
    /// returns; otherwise the last writes to disk go on. `taken` takes updated
    /// shards that rest in main memory, or that are about to be written to disk.
    ///
    /// # Errors
    /// As [`Optimizer::update`].
    pub fn complete(
        &mut self,
        rank: &Rank,
        unit: Option<UnitId>,
        (parameters, gradients): (&mut UnitBuffers, &UnitBuffers),
        gathers: Option<&mut Buckets>,
        taken: Option<&mut (dyn TakeUpdated + 'static)>,
    ) -> Result<()> {
        let last = self.units.len() - 1;
        self.counted(rank, |paging, units| {
            let held = UpdateOperands { units, parameters, gradients, gathers, taken };
            paging.complete(rank, unit.unwrap_or(last), held)?;
            if unit.is_none() { paging.finish_all(rank) } else { Ok(()) }
        })
    }

    /// Waits until `unit`'s updated parameters are where they rest beyond the device. The update
    /// may be under way, but a whole forward has gone through it, or it hands no shards over.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn settle(&mut self, rank: &Rank, unit: UnitId) -> Result<()> {
        self.counted(rank, |paging, _| paging.settle(rank, unit))
    }

    /// Frees the buffers of updates until the next one needs them. None is under way.
    pub fn free_buffers(&mut self) {
        self.paging.iter_mut().for_each(Paging::free_slots);
    }

    /// True while an update goes on after [`Optimizer::update`].
    pub fn is_updating(&self) -> bool {
        self.paging.as_ref().is_some_and(Paging::is_under_way)
    }

    /// The updated parameters of units before this one are where they rest beyond the device; those
    /// of all units, unless an update is under way.
    ///
    /// # Errors
    /// If a transfer has failed.
    pub fn first_missing(&mut self, rank: &Rank) -> Result<UnitId> {
        self.counted(rank, |paging, _| paging.poll(rank))?;
        Ok(self.paging.as_mut().map_or(UnitId::MAX, |paging| paging.first_missing(rank)))
    }

    /// Runs `body`, and counts what it takes as [`AfterStep`] if an update is under way.
    fn counted(
        &mut self,
        rank: &Rank,
        body: impl FnOnce(&mut Paging, &mut [OwnSlice]) -> Result<()>,
    ) -> Result<()> {
        let Some(paging) = &mut self.paging else { return Ok(()) };
        if !paging.is_under_way() {
            return body(paging, &mut self.units);
        }
        let (began, before) = (rank.emitter.begin(), Usage::now(rank));
        body(paging, &mut self.units)?;
        let after = AfterStep { time: rank.emitter.since(began), usage: Usage::now(rank) - before };
        self.after_step = self.after_step + after;
        Ok(())
    }

    /// What updates of states beyond the device have taken in all since they began.
    pub fn cost_after_step(&self) -> AfterStep {
        self.after_step
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
        let OwnSlice { slice, states: AdamWShard { states, pieces }, .. } = &mut self.units[unit];
        let gradients = gradients.slice(unit, slice.clone())?;
        let within = parameters.within(unit, slice.clone());
        let mut parameters = parameters.get_mut(unit)?.slice_mut(within);
        for (number, piece) in pieces.iter().enumerate() {
            // A screen shows pieces as it shows micro-batches.
            let _bracket = rank.bracket(Pass::Step, unit, number);
            let range = || piece.range.clone();
            let out = Some(parameters.slice_mut(range()));
            let operands = states.operands(range(), out, gradients.slice(range()));
            let operands = operands.ok_or(crate::Error::Missing { unit, what: "optimizer states" })?;
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
