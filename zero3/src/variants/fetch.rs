//! Shards that rest in main memory or on disk, and visit the device to be gathered (Rajbhandari et
//! al., "ZeRO-Infinity", 2021, section 5).
//!
//! The schedule says which unit a pass gathers next, so its shard is fetched into a buffer on the
//! device while units before it compute. An update that goes on in forward hands over what it has
//! updated, so that nothing is read back from disk. The shards that forward gathers last stay in
//! their buffers if backward gathers them first. Forward ends by fetching for backward; a backward
//! that is not the step's last, validation and an update that the device makes end by fetching for
//! the next forward. What is fetched and never gathered, as after the last step, does not count.

use super::context::ShardContext;
use super::{Residency, Stay};
use device::{Buffer, Class, DType, Place, View};
use events::Pass;
use offload::{Cargo, Crossing, Staged};
use sharding::{Error, GatherWindow, Rank, Rest, Result, Schedule, UnitBuffers, UnitId};
use std::ops::Range;
use std::sync::Arc;
use trainer::Setup;

/// The buffers through which shards visit the device.
pub struct Fetch {
    schedule: Arc<Schedule>,
    /// Per unit: whether its shard rests elsewhere, and its elements.
    away: Vec<Option<usize>>,
    /// Per unit: whether every forward frees it, so that backward gathers it again.
    frees: Vec<bool>,
    /// Per unit: whether the latest forward freed it, as the limit of live elements may do with one that
    /// was to stay.
    freed: Vec<bool>,
    /// Whether backward gathers what is fetched, not secondary shards.
    backward: bool,
    /// The least recently taken is the first.
    slots: Vec<Slot>,
    micro_batches: usize,
    /// Forward passes that the step under way has begun, or the one before it.
    forwards: usize,
    /// The pass that gathered last, and the place in its order of what it gathers next.
    reached: (Pass, usize),
}

/// Room for one shard. A device that lies in main memory uses shards where they rest there, or have
/// come from disk, and has `buffer` without using it, so that every device takes the same room.
struct Slot {
    buffer: Buffer,
    /// Where it passes main memory on its way from disk, unless it is being read.
    staging: Option<Buffer>,
    holds: Holds,
}

/// What a slot is used for.
enum Holds {
    Nothing,
    /// Its shard is coming into main memory, piece by piece as it is updated.
    Updated(UnitId),
    Reading(UnitId, Box<Staged>),
    Crossing(UnitId, Crossing),
    /// Its shard has been gathered in forward; backward gathers it again unless the slot is needed
    /// before.
    Kept(UnitId),
}

impl Fetch {
    /// Allocates the buffers, if parameters rest beyond the device.
    ///
    /// # Errors
    /// If there is no room for them.
    pub fn new(setup: &Setup) -> Result<Option<Self>> {
        let places = setup.places;
        if places.parameters == Place::Device {
            return Ok(None);
        }
        let units = setup.partition.units.iter();
        let away: Vec<Option<usize>> =
            units.map(|unit| (!unit.persistent).then_some(unit.padded / setup.partition.shards)).collect();
        let (count, largest) = (away.iter().flatten().count(), away.iter().flatten().max());
        let (dtype, largest) = (setup.precision.parameters, largest.copied().unwrap_or(0));
        let slot = |_| slot(&setup.rank, places.parameters, dtype, largest);
        let slots = (0..places.fetch_buffers().min(count)).map(slot).collect::<Result<_>>()?;
        let residency = Residency::new(setup);
        let frees: Vec<bool> = (0..away.len()).map(|unit| residency.of(unit) == Stay::No).collect();
        let backward = setup.rank.secondary_group().is_none();
        Ok(Some(Fetch {
            schedule: setup.schedule.clone(),
            away,
            freed: frees.clone(),
            frees,
            backward,
            slots,
            micro_batches: setup.micro_batches,
            forwards: setup.micro_batches,
            reached: (Pass::Evaluate, 0),
        }))
    }

    /// `unit`'s shard, on the device, to be gathered before the next call. Fetches the shards that
    /// `pass` gathers next.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn shard<'a>(
        &'a mut self,
        unit: UnitId,
        pass: Pass,
        mut context: ShardContext<'a>,
    ) -> Result<View<'a>> {
        let (rank, parameters) = (context.rank, context.parameters);
        let order = &self.schedule.pass(pass).order;
        let at = order.iter().position(|&next| next == unit).unwrap_or(order.len());
        let begins = order[..at].iter().all(|&before| self.away[before].is_none());
        if pass == Pass::Forward && begins {
            self.forwards = self.forwards % self.micro_batches + 1;
            self.freed.clone_from(&self.frees);
        }
        self.reached = (pass, at);
        if !self.slots.iter().any(|slot| slot.unit() == Some(unit)) {
            context.optimizer.settle(rank, unit)?;
        }
        let wanted = self.wanted(context.window);
        self.make_room(unit, &wanted, rank)?;
        self.start(&wanted, &mut context)?;
        self.reached.1 += 1;
        if pass == Pass::Forward {
            // After the last of its own, backward's begin to come.
            let wanted = self.wanted(context.window);
            self.start(&wanted, &mut context)?;
        }
        let elements = self.away[unit].unwrap_or(0);
        let turns = pass == Pass::Forward && self.backward && self.frees[unit];
        let slot = self.slots.iter_mut().find(|slot| slot.unit() == Some(unit));
        let slot = slot.ok_or(Error::Missing { unit, what: "a buffer to fetch its shard" })?;
        slot.arrive(elements, rank)?;
        slot.holds = if turns { Holds::Kept(unit) } else { Holds::Nothing };
        Ok(slot.shard(rank, parameters.rest(unit)).slice(0..elements))
    }

    /// Fetches the first shards that forward gathers, as far as they are updated. What has been
    /// fetched before is outdated.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn ahead(&mut self, mut context: ShardContext<'_>) -> Result<()> {
        self.stop(context.rank)?;
        let wanted = self.first(self.schedule.forward.order.iter());
        self.start(&wanted, &mut context)
    }

    /// Takes elements `range` of `unit`'s updated shard into a buffer, from which they cross to the
    /// device once they are complete: forward gathers them next.
    ///
    /// # Errors
    /// If no buffer is free, or a kernel or a transfer fails.
    pub fn take(&mut self, rank: &Rank, unit: UnitId, range: Range<usize>, shard: View<'_>) -> Result<()> {
        let (is_complete, elements) = (Some(range.end) == self.away[unit], range.end);
        let missing = Error::Missing { unit, what: "a buffer for its updated shard" };
        let cargo = Cargo { class: Class::Parameters, unit };
        let slot = match self.slots.iter().position(|slot| slot.unit() == Some(unit)) {
            Some(slot) => &mut self.slots[slot],
            None => self.free_slot(&[]).ok_or(missing)?,
        };
        slot.holds = Holds::Updated(unit);
        let out = slot.buffer.slice_mut(0..elements);
        let from = match &mut slot.staging {
            Some(staging) => {
                rank.kernels().copy(staging.slice_mut(range), shard)?;
                staging.slice(0..elements)
            }
            None => shard,
        };
        if is_complete {
            slot.holds = Holds::Crossing(unit, rank.transfers.share(cargo, out, from)?);
        }
        Ok(())
    }

    /// True if [`Fetch::take`] finds a buffer for `unit`.
    pub fn has_room(&self, unit: UnitId) -> bool {
        self.slots.iter().any(|slot| slot.unit() == Some(unit) || slot.may_take(&[]))
    }

    /// True while the rank would wait for `unit`'s shard, which is on its way.
    pub fn makes_wait(&self, rank: &Rank, unit: UnitId) -> bool {
        let crosses = |slot: &Slot| match &slot.holds {
            Holds::Crossing(of, crossing) => *of == unit && rank.transfers.makes_wait(crossing),
            _ => false,
        };
        self.slots.iter().any(crosses)
    }

    /// Notes that `pass` is about to free `unit`, and fetches the shards that are gathered next, as
    /// far as slots are free.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn before_free(&mut self, unit: UnitId, pass: Pass, mut context: ShardContext<'_>) -> Result<()> {
        self.freed[unit] |= pass == Pass::Forward;
        let wanted = self.wanted(context.window);
        self.start(&wanted, &mut context)
    }

    /// Drops what is being fetched.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn stop(&mut self, rank: &Rank) -> Result<()> {
        self.slots.iter_mut().try_for_each(|slot| slot.clear(rank))
    }

    /// Returns what is fetched now: of the units that are gathered from here on until their shards
    /// change, the first, as many as there are slots. Forward fetches its own alone, so that
    /// backward finds the last of them in their slots; then what is kept and not wanted is dropped.
    fn wanted(&mut self, window: &GatherWindow) -> Vec<UnitId> {
        let (pass, at) = self.reached;
        let Schedule { forward, backward, .. } = &*self.schedule;
        let now = self.schedule.pass(pass).order[at..].iter().filter(|&&next| !window.contains(next));
        let turns = pass == Pass::Forward && self.backward;
        if turns && now.clone().any(|&next| self.away[next].is_some()) {
            return self.first(now);
        }
        let back = backward.order.iter().filter(|&&next| turns && self.freed[next]);
        let again = pass == Pass::Evaluate || self.forwards < self.micro_batches;
        let then = forward.order.iter().filter(|_| again);
        let wanted = self.first(now.chain(back).chain(then));
        for slot in &mut self.slots {
            slot.drop_kept(&wanted);
        }
        wanted
    }

    /// Returns the first of `units`, which may come twice, for which there are slots.
    fn first<'a>(&self, units: impl Iterator<Item = &'a UnitId>) -> Vec<UnitId> {
        let mut first = Vec::new();
        for &next in units.filter(|&&next| self.away[next].is_some()) {
            if first.len() < self.slots.len() && !first.contains(&next) {
                first.push(next);
            }
        }
        first
    }

    /// Clears a slot for `unit`, which is gathered now, if there is none for it: all may be taken by
    /// others where forward freed a unit that was to stay.
    fn make_room(&mut self, unit: UnitId, wanted: &[UnitId], rank: &Rank) -> Result<()> {
        if self.slots.iter().any(|slot| slot.unit() == Some(unit) || slot.may_take(wanted)) {
            return Ok(());
        }
        let other = |slot: &&mut Slot| slot.unit().is_none_or(|unit| !wanted.contains(&unit));
        self.slots.iter_mut().rfind(other).map_or(Ok(()), |slot| slot.clear(rank))
    }

    /// Returns the least recently taken slot that is free, or holds what is kept and not `wanted`.
    /// It is now the last.
    fn free_slot(&mut self, wanted: &[UnitId]) -> Option<&mut Slot> {
        let at = self.slots.iter().position(|slot| slot.may_take(wanted))?;
        self.slots[at..].rotate_left(1);
        self.slots.last_mut()
    }

    /// Starts to fetch as many of `wanted` as there are free slots, up to the first whose updated
    /// shard is not where it rests yet.
    fn start(&mut self, wanted: &[UnitId], context: &mut ShardContext<'_>) -> Result<()> {
        let missing = context.optimizer.first_missing(context.rank)?;
        for &next in wanted.iter().take_while(|&&next| next < missing) {
            if !self.slots.iter().any(|slot| slot.unit() == Some(next)) {
                let Some(slot) = self.free_slot(wanted) else { break };
                slot.start(next, context.rank, context.parameters)?;
            }
        }
        Ok(())
    }
}

fn slot(rank: &Rank, rests: Place, dtype: DType, elements: usize) -> Result<Slot> {
    let buffer = rank.device.allocate(Class::Workspace, dtype, elements)?;
    let staging = (rests == Place::Disk).then(|| rank.transfers.staging(dtype, elements)).transpose()?;
    Ok(Slot { buffer, staging, holds: Holds::Nothing })
}

impl Slot {
    fn unit(&self) -> Option<UnitId> {
        match self.holds {
            Holds::Updated(unit) | Holds::Reading(unit, _) | Holds::Crossing(unit, _) | Holds::Kept(unit) => {
                Some(unit)
            }
            Holds::Nothing => None,
        }
    }

    /// The buffer that the device uses for what rests in `rest`.
    fn shard<'a>(&'a self, rank: &Rank, rest: Option<&'a Rest>) -> &'a Buffer {
        let in_main_memory = match rest {
            Some(Rest::Buffer(shard)) => Some(shard),
            _ => self.staging.as_ref(),
        };
        in_main_memory.filter(|_| rank.transfers.device_in_main_memory()).unwrap_or(&self.buffer)
    }

    /// Drops what is kept and not `wanted`.
    fn drop_kept(&mut self, wanted: &[UnitId]) {
        if matches!(self.holds, Holds::Kept(_)) && self.may_take(wanted) {
            self.holds = Holds::Nothing;
        }
    }

    /// True if another shard may take it, where some are `wanted`.
    fn may_take(&self, wanted: &[UnitId]) -> bool {
        match self.holds {
            Holds::Nothing => true,
            Holds::Kept(unit) => !wanted.contains(&unit),
            Holds::Updated(_) | Holds::Reading(..) | Holds::Crossing(..) => false,
        }
    }

    /// Drops what is on its way to the slot.
    fn clear(&mut self, rank: &Rank) -> Result<()> {
        if let Holds::Reading(_, staged) = std::mem::replace(&mut self.holds, Holds::Nothing) {
            self.staging = Some(rank.transfers.discard(*staged)?);
        }
        Ok(())
    }

    /// Starts to fetch `unit`'s shard from where it rests.
    fn start(&mut self, unit: UnitId, rank: &Rank, parameters: &UnitBuffers) -> Result<()> {
        let missing = Error::Missing { unit, what: "parameters" };
        let cargo = Cargo { class: Class::Parameters, unit };
        self.holds = match parameters.rest(unit).ok_or(missing.clone())? {
            Rest::Buffer(shard) => {
                let out = self.buffer.slice_mut(0..shard.len());
                Holds::Crossing(unit, rank.transfers.share(cargo, out, shard.view())?)
            }
            Rest::Disk(extent, _) => {
                let staging = self.staging.take().ok_or(missing)?;
                let read = rank.transfers.read(cargo, extent, 0, staging, extent.bytes());
                Holds::Reading(unit, Box::new(read))
            }
        };
        Ok(())
    }

    /// Waits until the shard, of so many elements, is on the device.
    fn arrive(&mut self, elements: usize, rank: &Rank) -> Result<()> {
        match std::mem::replace(&mut self.holds, Holds::Nothing) {
            Holds::Crossing(_, crossing) => rank.transfers.wait(crossing)?,
            Holds::Reading(unit, staged) => {
                let arrived = rank.transfers.settle(*staged)?;
                let cargo = Cargo { class: Class::Parameters, unit };
                let out = self.buffer.slice_mut(0..elements);
                let shard = arrived.buffer.slice(0..elements);
                rank.transfers.wait(rank.transfers.share_since(arrived.complete, cargo, out, shard)?)?;
                self.staging = Some(arrived.buffer);
            }
            Holds::Nothing | Holds::Updated(_) | Holds::Kept(_) => {}
        }
        Ok(())
    }
}
