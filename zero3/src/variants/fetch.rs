//! Fetches shards that are stored in main memory or on disk to the device, where they are gathered
//! (Rajbhandari et al., "ZeRO-Infinity", 2021, section 5).
//!
//! The schedule says which unit a pass gathers next, so its shard is fetched into a buffer on the
//! device while earlier units compute. An update that continues in forward hands over each shard
//! that it has updated, so that nothing is read back from disk. The shards that forward gathers
//! last stay in their buffers if backward gathers them first.
//!
//! Forward ends by fetching for backward. A backward that is not the step's last, a validation, and
//! an update that the device computes end by fetching for the next forward. A shard that is
//! fetched and never gathered, as after the last step, does not count as a transfer.

mod slot;

use super::context::ShardContext;
use super::{Residency, ResidencyPolicy};
use device::{Class, Place, View};
use events::Pass;
use offload::TransferLabel;
use sharding::{Error, GatherWindow, Rank, Result, Schedule, UnitId, UpdatedShardSink};
use slot::{FetchSlot, SlotState};
use std::ops::Range;
use std::sync::Arc;
use trainer::Setup;

/// Fetches shards to the device through a few slots.
pub struct ShardFetcher {
    schedule: Arc<Schedule>,
    /// Per unit: the elements of its shard beyond the device; `None` for persistent units.
    offloaded_len: Vec<Option<usize>>,
    /// Per unit: true if every forward frees it, so that backward gathers it again.
    frees_after_forward: Vec<bool>,
    /// Per unit: true if the latest forward freed it. The limit of live elements may free a unit
    /// that was to stay.
    freed_in_forward: Vec<bool>,
    /// False if backward gathers from secondary shards, which are not fetched.
    fetches_in_backward: bool,
    /// The slots, the least recently assigned one first.
    slots: Vec<FetchSlot>,
    micro_batches: usize,
    /// Number of forward passes that the current step, or else the previous one, has begun.
    forwards: usize,
    position: Position,
}

/// A position in a step: which unit is gathered next.
struct Position {
    /// The pass that gathered last.
    pass: Pass,
    /// The index of the next unit in the pass's order.
    next: usize,
}

impl ShardFetcher {
    /// Allocates the slots; `None` if parameters are stored on the device.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn new(setup: &Setup) -> Result<Option<Self>> {
        let placement = setup.placement;
        if placement.parameters == Place::Device {
            return Ok(None);
        }
        let units = setup.partition.units.iter();
        let offloaded_len: Vec<Option<usize>> =
            units.map(|unit| (!unit.persistent).then_some(unit.padded / setup.partition.shards)).collect();
        let (count, largest) = (offloaded_len.iter().flatten().count(), offloaded_len.iter().flatten().max());
        let (dtype, largest) = (setup.precision.parameters, largest.copied().unwrap_or(0));
        let slot = |_| FetchSlot::new(&setup.rank, placement.parameters, dtype, largest);
        let slots = (0..placement.fetch_buffers().min(count)).map(slot).collect::<Result<_>>()?;
        let residency = ResidencyPolicy::new(setup);
        let is_freed = |unit| residency.for_unit(unit) == Residency::FreeAfterPass;
        let frees_after_forward: Vec<bool> = (0..offloaded_len.len()).map(is_freed).collect();
        let fetches_in_backward = setup.rank.secondary_group().is_none();
        Ok(Some(ShardFetcher {
            schedule: setup.schedule.clone(),
            offloaded_len,
            freed_in_forward: frees_after_forward.clone(),
            frees_after_forward,
            fetches_in_backward,
            slots,
            micro_batches: setup.micro_batches,
            forwards: setup.micro_batches,
            position: Position { pass: Pass::Evaluate, next: 0 },
        }))
    }

    /// Returns `unit`'s shard on the device; the caller gathers it before the next call. Starts to
    /// fetch the shards that `pass` gathers next.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn shard<'a>(
        &'a mut self,
        unit: UnitId,
        pass: Pass,
        mut context: ShardContext<'a>,
    ) -> Result<View<'a>> {
        self.move_to(unit, pass);
        self.ensure_fetching(unit, &mut context)?;
        self.position.next += 1;
        if pass == Pass::Forward {
            // After forward's last shard, backward's first shards are fetched.
            self.fetch_next(&mut context)?;
        }
        self.arrived_shard(unit, pass, context)
    }

    /// Moves to `unit` in the order of `pass`. With the first fetched unit of a forward, counts the
    /// forward.
    fn move_to(&mut self, unit: UnitId, pass: Pass) {
        let order = &self.schedule.pass(pass).order;
        let at = order.iter().position(|&next| next == unit).unwrap_or(order.len());
        let is_first = order[..at].iter().all(|&before| self.offloaded_len[before].is_none());
        if pass == Pass::Forward && is_first {
            self.forwards = self.forwards % self.micro_batches + 1;
            self.freed_in_forward.clone_from(&self.frees_after_forward);
        }
        self.position = Position { pass, next: at };
    }

    /// Starts to fetch `unit`'s shard, unless a slot has it, and the shards after it.
    fn ensure_fetching(&mut self, unit: UnitId, context: &mut ShardContext<'_>) -> Result<()> {
        if !self.has_slot_for(unit) {
            context.optimizer.wait_until_stored(context.rank, unit)?;
        }
        let wanted = self.wanted(context.window);
        self.release_unwanted(&wanted, context.window);
        self.make_room(unit, &wanted, context.rank)?;
        self.start(&wanted, context)
    }

    /// Waits for `unit`'s shard and returns it. Retains its slot if backward may gather it again.
    fn arrived_shard<'a>(
        &'a mut self,
        unit: UnitId,
        pass: Pass,
        context: ShardContext<'a>,
    ) -> Result<View<'a>> {
        let (rank, parameters) = (context.rank, context.parameters);
        let elements = self.offloaded_len[unit].unwrap_or(0);
        let retains = pass == Pass::Forward && self.fetches_in_backward && self.frees_after_forward[unit];
        let slot = self.slots.iter_mut().find(|slot| slot.unit() == Some(unit));
        let slot = slot.ok_or(Error::NoBuffer { unit, what: "slot with its fetched shard" })?;
        slot.arrive(elements, rank)?;
        slot.state = if retains { SlotState::Retained(unit) } else { SlotState::Empty };
        Ok(slot.shard(rank, parameters.storage(unit)).slice(0..elements))
    }

    /// Starts to fetch the first shards that forward gathers, as far as they are updated. Discards
    /// shards that were fetched before: they are outdated.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn prefetch_for_forward(&mut self, mut context: ShardContext<'_>) -> Result<()> {
        self.abort(context.rank)?;
        let wanted = self.first(self.schedule.forward.order.iter());
        self.start(&wanted, &mut context)
    }

    /// Notes that `pass` is about to free `unit`, and starts to fetch the next shards, as far as
    /// slots are free.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn before_free(&mut self, unit: UnitId, pass: Pass, mut context: ShardContext<'_>) -> Result<()> {
        self.freed_in_forward[unit] |= pass == Pass::Forward;
        self.fetch_next(&mut context)
    }

    /// Aborts the step: discards shards that are being fetched.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn abort(&mut self, rank: &Rank) -> Result<()> {
        self.slots.iter_mut().try_for_each(|slot| slot.clear(rank))
    }

    /// Starts to fetch the next shards, as far as slots are free.
    fn fetch_next(&mut self, context: &mut ShardContext<'_>) -> Result<()> {
        let wanted = self.wanted(context.window);
        self.release_unwanted(&wanted, context.window);
        self.start(&wanted, context)
    }

    /// Returns the next units to fetch: the first units gathered from here on, as many as there are
    /// slots, up to the point where their shards change. While forward still has shards to fetch
    /// for itself, these are its own only, so that backward finds the last of them in their slots.
    fn wanted(&self, window: &GatherWindow) -> Vec<UnitId> {
        let in_this_pass = self.to_gather(window);
        if self.fetches_for_forward_only(window) {
            return self.first(in_this_pass);
        }
        let Schedule { forward, backward, .. } = &*self.schedule;
        let retains_for_backward = self.retains_for_backward();
        let in_backward =
            backward.order.iter().filter(|&&next| retains_for_backward && self.freed_in_forward[next]);
        let forward_follows = self.position.pass == Pass::Evaluate || self.forwards < self.micro_batches;
        let in_next_forward: &[UnitId] = if forward_follows { &forward.order } else { &[] };
        self.first(in_this_pass.chain(in_backward).chain(in_next_forward))
    }

    /// Returns the units that the current pass still has to gather, in order.
    fn to_gather(&self, window: &GatherWindow) -> impl Iterator<Item = &UnitId> {
        let Position { pass, next } = self.position;
        self.schedule.pass(pass).order[next..].iter().filter(move |&&next| !window.contains(next))
    }

    /// True in a forward whose shards backward may find in their slots.
    fn retains_for_backward(&self) -> bool {
        self.position.pass == Pass::Forward && self.fetches_in_backward
    }

    /// True while forward fetches only its own shards, so that slots retain shards for backward.
    fn fetches_for_forward_only(&self, window: &GatherWindow) -> bool {
        self.retains_for_backward() && self.to_gather(window).any(|&next| self.offloaded_len[next].is_some())
    }

    /// Empties the slots that retain a shard that is not `wanted`, unless forward still fetches its
    /// own shards.
    fn release_unwanted(&mut self, wanted: &[UnitId], window: &GatherWindow) {
        if !self.fetches_for_forward_only(window) {
            self.slots.iter_mut().for_each(|slot| slot.release_unless(wanted));
        }
    }

    /// Returns the first of `units`, which may contain duplicates, for which there are slots.
    fn first<'a>(&self, units: impl Iterator<Item = &'a UnitId>) -> Vec<UnitId> {
        let mut first = Vec::new();
        for &next in units.filter(|&&next| self.offloaded_len[next].is_some()) {
            if first.len() < self.slots.len() && !first.contains(&next) {
                first.push(next);
            }
        }
        first
    }

    /// True if a slot is assigned to `unit`.
    fn has_slot_for(&self, unit: UnitId) -> bool {
        self.slots.iter().any(|slot| slot.unit() == Some(unit))
    }

    /// Clears a slot for `unit`, which is gathered now, if all are taken by other units. That
    /// happens where forward freed a unit that was to stay.
    fn make_room(&mut self, unit: UnitId, wanted: &[UnitId], rank: &Rank) -> Result<()> {
        if self.slots.iter().any(|slot| slot.unit() == Some(unit) || slot.is_available(wanted)) {
            return Ok(());
        }
        let other = |slot: &&mut FetchSlot| slot.unit().is_none_or(|unit| !wanted.contains(&unit));
        match self.slots.iter_mut().rfind(other) {
            Some(slot) => slot.clear(rank),
            None => Ok(()),
        }
    }

    /// Returns the least recently assigned slot that is available, and moves it to the end. `None`
    /// if there is none.
    fn assign_slot(&mut self, wanted: &[UnitId]) -> Option<&mut FetchSlot> {
        let at = self.slots.iter().position(|slot| slot.is_available(wanted))?;
        self.slots[at..].rotate_left(1);
        self.slots.last_mut()
    }

    /// Starts to fetch the `wanted` shards while slots are available, up to the first shard whose
    /// update is not stored yet.
    fn start(&mut self, wanted: &[UnitId], context: &mut ShardContext<'_>) -> Result<()> {
        let missing = context.optimizer.first_missing(context.rank)?;
        for &next in wanted.iter().take_while(|&&next| missing.is_none_or(|missing| next < missing)) {
            if !self.has_slot_for(next) {
                let Some(slot) = self.assign_slot(wanted) else { break };
                slot.start(next, context.rank, context.parameters)?;
            }
        }
        Ok(())
    }
}

impl UpdatedShardSink for ShardFetcher {
    /// Stores the range in a slot. Once the shard is complete, starts to copy it to the device.
    /// Fails if no slot is free.
    fn accept_updated(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        range: Range<usize>,
        parameters: View<'_>,
    ) -> Result<()> {
        let (is_complete, elements) = (Some(range.end) == self.offloaded_len[unit], range.end);
        let missing = Error::NoBuffer { unit, what: "slot for its updated shard" };
        let label = TransferLabel { class: Class::Parameters, unit };
        let slot = match self.slots.iter().position(|slot| slot.unit() == Some(unit)) {
            Some(slot) => &mut self.slots[slot],
            None => self.assign_slot(&[]).ok_or(missing)?,
        };
        slot.state = SlotState::Filling(unit);
        let out = slot.buffer.slice_mut(0..elements);
        let from = match &mut slot.staging {
            Some(staging) => {
                rank.kernels().copy(staging.slice_mut(range), parameters)?;
                staging.slice(0..elements)
            }
            None => parameters,
        };
        if is_complete {
            slot.state = SlotState::Copying(unit, rank.transfers.copy_or_borrow(label, out, from)?);
        }
        Ok(())
    }

    fn has_room(&self, unit: UnitId) -> bool {
        self.slots.iter().any(|slot| slot.unit() == Some(unit) || slot.is_available(&[]))
    }

    fn would_wait(&self, rank: &Rank, unit: UnitId) -> bool {
        let blocks = |slot: &FetchSlot| match &slot.state {
            SlotState::Copying(of, crossing) => *of == unit && rank.transfers.would_wait(crossing),
            _ => false,
        };
        self.slots.iter().any(blocks)
    }
}
