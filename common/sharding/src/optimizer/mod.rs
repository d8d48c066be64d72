//! The optimizer of a rank: AdamW on its slice of every unit, in one call over all of them. After
//! that call, an update of states beyond the device continues, and so do all-gathers of units that
//! the rank holds in full.

mod paging;
mod shard;
mod update;

use crate::buckets::bucket;
use crate::full::{StateStorage, UnitBuffers};
use crate::partition::{Partition, UnitId};
use crate::placement::OffloadPlacement;
use crate::rank::Rank;
use crate::usage::Usage;
use crate::{Buckets, Error, Result};
use device::{Buffer, Class, DType, Place, View, ViewMut};
use events::Pass;
use model::TrainingState;
use offload::{Extent, OnDisk, TransferLabel};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use paging::Paging;
pub use paging::{UpdateBuffers, UpdatedShardSink};
pub use shard::{AdamWShard, States};
pub use update::{ScaledUpdate, Update};

/// The slice of one unit that a rank updates.
pub struct OwnSlice {
    /// The elements of the unit that this rank updates.
    pub slice: Range<usize>,
    /// Their optimizer states.
    pub states: AdamWShard,
    /// True if the rank holds the unit's parameters in full although other ranks update parts of
    /// them.
    pub gather_after_update: bool,
}

/// Optimizer states of the elements that this rank updates, unit by unit.
pub struct Optimizer {
    partition: Arc<Partition>,
    units: Vec<OwnSlice>,
    /// `None` if everything that an update needs is stored on the device.
    paging: Option<Paging>,
    deferred_cost: DeferredUpdateCost,
}

/// What updates have cost since the steps that began them returned.
#[derive(Clone, Copy, Default)]
pub struct DeferredUpdateCost {
    /// The rank's time, without pauses.
    pub time: Duration,
    /// Its traffic and transfers.
    pub usage: Usage,
}

events::counters! { DeferredUpdateCost [] time, usage }

impl Optimizer {
    /// Returns the optimizer that updates `units[u]` of unit u of `partition`. States are stored as
    /// `placement` says; `parameters` and `gradients` stay where they are.
    ///
    /// # Errors
    /// If main memory is full.
    pub fn new(
        rank: &Rank,
        partition: Arc<Partition>,
        units: Vec<OwnSlice>,
        placement: OffloadPlacement,
        (parameters, gradients): (&UnitBuffers, &UnitBuffers),
    ) -> Result<Self> {
        let paging = || Paging::new(rank, placement, &units, (parameters, gradients));
        let offloaded = [placement.optimizer, placement.parameters] != [Place::Device; 2];
        let paging = offloaded.then(paging).transpose()?;
        Ok(Optimizer { partition, units, paging, deferred_cost: DeferredUpdateCost::default() })
    }

    /// Returns the elements of `unit` that this rank updates.
    pub fn slice(&self, unit: UnitId) -> Range<usize> {
        self.units[unit].slice.clone()
    }

    /// Returns, per unit, the slice of `gradients` that this rank needs for its update.
    ///
    /// # Errors
    /// If a unit's gradients are out.
    pub fn own<'a>(&self, gradients: &'a UnitBuffers) -> Result<Vec<View<'a>>> {
        let slices = self.units.iter().map(|own| own.slice.clone()).enumerate();
        slices.map(|(unit, slice)| gradients.slice(unit, slice)).collect()
    }

    /// Completes the previous update, and issues reads of the states on disk that the next update
    /// needs first: no state can be updated before the gradient norm is known, but the first ones
    /// can be read. Called during a step's last backward, before each layer; `calls_left` counts
    /// the remaining calls, this one included.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn read_ahead(&mut self, rank: &Rank, calls_left: usize) -> Result<()> {
        self.paged(rank, |paging, units| paging.read_ahead(rank, units, calls_left))
    }

    /// Aborts a step without an update: waits for what was read ahead, and discards it.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn abort(&mut self, rank: &Rank) -> Result<()> {
        match &mut self.paging {
            Some(paging) => paging.abort(rank),
            None => Ok(()),
        }
    }

    /// Updates this rank's slice of the parameters from its slice of the gradients, unit by unit. A
    /// unit that the rank holds in full goes through `buffers.gathers` as soon as its slice is
    /// updated.
    ///
    /// If the optimizer is on the device, the slice is updated when this returns, while all-gathers
    /// may be in flight. If the CPU computes the update, this only begins it, unless units are
    /// gathered while shards of others are on disk. [`Optimizer::continue_until`] does the rest.
    ///
    /// # Errors
    /// If a kernel, a collective or a transfer fails.
    pub fn update(&mut self, rank: &Rank, update: ScaledUpdate, buffers: UpdateBuffers<'_>) -> Result<()> {
        if let Some(paging) = &mut self.paging {
            paging.begin(rank, update)?;
            if paging.may_continue_in_forward() {
                return Ok(());
            }
            return self.finish(rank, buffers);
        }
        let UpdateBuffers { parameters, gradients, mut gathers, .. } = buffers;
        for unit in 0..self.units.len() {
            self.update_unit(rank, unit, update, parameters, gradients)?;
            self.units[unit].gather(rank, unit, parameters, &mut gathers)?;
        }
        Ok(())
    }

    /// Continues a pending update until `unit` is updated (and gathered, if the rank holds it in
    /// full). If states are offloaded, it then issues the next transfers, so that they overlap with
    /// `unit`'s computation, and writes to disk may still be in flight after the last unit. Does
    /// nothing if no update is pending.
    ///
    /// # Errors
    /// As [`Optimizer::update`].
    pub fn continue_until(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        mut buffers: UpdateBuffers<'_>,
    ) -> Result<()> {
        match self.paging {
            Some(_) => self.paged(rank, |paging, units| paging.continue_until(rank, unit, units, buffers)),
            None if buffers.is_in_flight(unit) => self.deferred(rank, |_| buffers.wait_for_unit(rank, unit)),
            None => Ok(()),
        }
    }

    /// Completes a pending update, writes to disk included. Does nothing if no update is pending.
    ///
    /// # Errors
    /// As [`Optimizer::update`].
    pub fn finish(&mut self, rank: &Rank, mut buffers: UpdateBuffers<'_>) -> Result<()> {
        if self.paging.is_none() {
            return self.deferred(rank, |_| buffers.wait_for_all(rank));
        }
        let last = self.units.len() - 1;
        self.paged(rank, |paging, units| {
            paging.continue_until(rank, last, units, buffers)?;
            paging.finish_all(rank)
        })
    }

    /// Waits until `unit`'s updated parameters are stored beyond the device. Call it only if no
    /// update is in progress, if a whole forward has run since it began, or if it hands over no
    /// shards.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn wait_until_stored(&mut self, rank: &Rank, unit: UnitId) -> Result<()> {
        self.paged(rank, |paging, _| paging.wait_until_stored(rank, unit))
    }

    /// Frees the buffers of updates until the next one needs them. Call it only while no update is
    /// in progress.
    pub fn free_buffers(&mut self) {
        if let Some(paging) = &mut self.paging {
            paging.free_slots();
        }
    }

    /// True while an update of offloaded states continues after [`Optimizer::update`].
    pub fn is_updating(&self) -> bool {
        self.paging.as_ref().is_some_and(Paging::is_in_progress)
    }

    /// Returns the first unit whose updated parameters are not stored beyond the device yet;
    /// `None` if all are.
    ///
    /// # Errors
    /// If a transfer has failed.
    pub fn first_missing(&mut self, rank: &Rank) -> Result<Option<UnitId>> {
        self.paged(rank, |paging, _| paging.poll(rank))?;
        Ok(self.paging.as_mut().and_then(|paging| paging.first_missing(rank)))
    }

    /// Runs `body` if states are offloaded. Adds its cost to [`DeferredUpdateCost`] if an update is
    /// in progress.
    fn paged(
        &mut self,
        rank: &Rank,
        body: impl FnOnce(&mut Paging, &mut [OwnSlice]) -> Result<()>,
    ) -> Result<()> {
        let run = |optimizer: &mut Self| match &mut optimizer.paging {
            Some(paging) => body(paging, &mut optimizer.units),
            None => Ok(()),
        };
        if self.is_updating() { self.deferred(rank, run) } else { run(self) }
    }

    /// Runs `body`, and adds its cost to [`DeferredUpdateCost`].
    fn deferred(&mut self, rank: &Rank, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let (began, before) = (rank.emitter.begin(), Usage::now(rank));
        body(self)?;
        let after = DeferredUpdateCost { time: rank.emitter.since(began), usage: Usage::now(rank) - before };
        self.deferred_cost = self.deferred_cost + after;
        Ok(())
    }

    /// Returns the total cost of updates after the steps that began them.
    pub fn deferred_cost(&self) -> DeferredUpdateCost {
        self.deferred_cost
    }

    /// Updates this rank's slice of one unit's `parameters` from its slice of `gradients`. These
    /// and the optimizer states are on the device.
    ///
    /// # Errors
    /// If a kernel fails, or a buffer of the unit is stored elsewhere.
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
            let _span = rank.begin_pass(Pass::Step, unit, number);
            let range = || piece.range.clone();
            let out = Some(parameters.slice_mut(range()));
            let operands = states.operands(range(), out, gradients.slice(range()));
            let operands = operands.ok_or(Error::NoBuffer { unit, what: "optimizer states in memory" })?;
            piece.update(rank, operands, update)?;
        }
        Ok(())
    }

    /// Returns the elements of `unit` that this rank updates, and where their `state` is stored.
    /// `parameters` are those that this rank holds: in f32 they are the master weights themselves.
    ///
    /// # Errors
    /// If the unit's parameters are out.
    pub fn state<'a>(
        &'a self,
        unit: UnitId,
        state: TrainingState,
        parameters: &'a UnitBuffers,
    ) -> Result<(Range<usize>, StateStorage<'a>)> {
        let OwnSlice { slice, states, .. } = &self.units[unit];
        Ok((slice.clone(), states.storage(state, parameters.state_storage(unit, slice.clone())?)))
    }

    /// Returns `unit`'s full `state`, f32, in main memory, gathered from the ranks that share it.
    /// `parameters` are those that this rank holds: in f32 they are the master weights themselves.
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
        let (slice, storage) = self.state(unit, state, parameters)?;
        let padded = self.partition.units[unit].padded;
        let mut full = rank.device.allocate_host(Class::GatheredParameters, DType::F32, padded)?;
        copy(storage, rank, unit, full.slice_mut(slice.clone()))?;
        if slice.len() == padded {
            return Ok(full);
        }
        let mut gathered = rank.shard_group().all_gather(bucket(vec![full], &[unit]))?.wait()?;
        // A collective gives back as many buffers as it was given.
        gathered.pop().ok_or(Error::NoBuffer { unit, what: "gathered training state" })
    }
}

/// Copies a state of a slice of `unit` from `storage` to `out`.
fn copy(storage: StateStorage<'_>, rank: &Rank, unit: UnitId, mut out: ViewMut<'_>) -> Result<()> {
    match storage {
        StateStorage::Memory(state) => rank.kernels().copy(out, state)?,
        StateStorage::Disk(class, extents) => {
            for (range, extent) in extents {
                let arrived = read_extent(rank, TransferLabel { class, unit }, range.len(), extent)?;
                let end = range.end.min(out.len());
                let state = arrived.slice(0..end - range.start);
                rank.kernels().copy(out.slice_mut(range.start..end), state)?;
            }
        }
    }
    Ok(())
}

/// Reads the `elements` f32 elements of a state that are stored in `extent` into a buffer in main
/// memory of whole pages.
///
/// # Errors
/// If main memory is full or the disk fails.
pub fn read_extent(rank: &Rank, label: TransferLabel, elements: usize, extent: &Extent) -> Result<Buffer> {
    let staging = rank.transfers.staging(DType::F32, elements)?;
    let from = OnDisk::first(label, extent, staging.byte_len());
    let read = rank.transfers.read(from, staging);
    Ok(rank.transfers.wait_staged(read)?.buffer)
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
        if self.gather_after_update
            && let Some(gathers) = gathers
        {
            let full = parameters.take(unit)?;
            parameters.put_all(gathers.push(rank, unit, full)?);
        }
        Ok(())
    }
}
