//! Shards that rest in main memory or on disk, and visit the device to be gathered (Rajbhandari et
//! al., "ZeRO-Infinity", 2021, section 5).
//!
//! The schedule says which unit a pass gathers next, so its shard is fetched into a buffer on the
//! device while units before it compute. An update that goes on in forward hands over what it has
//! updated, so that nothing is read back from disk. Forward ends by fetching for backward; a
//! backward that is not the step's last, validation and an update that the device makes end by
//! fetching for the next forward. What is fetched and never gathered, as after the last step, does
//! not count.

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
    /// Per unit: whether forward frees it, so that backward gathers it again.
    freed: Vec<bool>,
    /// Whether backward gathers what is fetched, not secondary shards.
    backward: bool,
    slots: Vec<Slot>,
    micro_batches: usize,
    /// Forward passes that the step under way has begun, or the one before it.
    forwards: usize,
    /// The pass that gathered last, and the place in its order of what it gathers next.
    reached: (Pass, usize),
}

/// Room for one shard.
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
    Reading(UnitId, Staged),
    Crossing(UnitId, Crossing),
    /// Handed out; free from the next call on.
    Gathered,
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
        let slots = (0..places.buffers.min(count)).map(slot).collect::<Result<_>>()?;
        let residency = Residency::new(setup);
        let freed = setup.partition.units.iter().enumerate().map(|(unit, _)| residency.of(unit) == Stay::No);
        let backward = setup.rank.secondary_group().is_none();
        Ok(Some(Fetch {
            schedule: setup.schedule.clone(),
            away,
            freed: freed.collect(),
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
    pub fn shard(&mut self, unit: UnitId, pass: Pass, context: ShardContext<'_>) -> Result<View<'_>> {
        let rank = context.rank;
        let order = &self.schedule.pass(pass).order;
        let at = order.iter().position(|&next| next == unit).unwrap_or(order.len());
        let begins = order[..at].iter().all(|&before| self.away[before].is_none());
        if pass == Pass::Forward && begins {
            self.forwards = self.forwards % self.micro_batches + 1;
        }
        self.reached = (pass, at);
        if !self.slots.iter().any(|slot| slot.unit() == Some(unit)) {
            context.optimizer.settle(rank, unit)?;
        }
        self.make_room(unit, rank)?;
        self.on(context)?;
        self.reached.1 += 1;
        let elements = self.away[unit].unwrap_or(0);
        let slot = self.slots.iter_mut().find(|slot| slot.unit() == Some(unit));
        let slot = slot.ok_or(Error::Missing { unit, what: "a buffer to fetch its shard" })?;
        slot.arrive(elements, rank)?;
        Ok(slot.buffer.slice(0..elements))
    }

    /// Fetches the first shards that forward gathers, as far as they are updated.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn ahead(&mut self, context: ShardContext<'_>) -> Result<()> {
        let schedule = self.schedule.clone();
        self.slots.iter_mut().for_each(Slot::recycle);
        self.start(&schedule.forward.order, context)
    }

    /// Takes elements `range` of `unit`'s updated shard into a buffer, from which they cross to the
    /// device once they are complete: forward gathers them next.
    ///
    /// # Errors
    /// If no buffer is free, or a kernel or a transfer fails.
    pub fn take(&mut self, rank: &Rank, unit: UnitId, range: Range<usize>, shard: View<'_>) -> Result<()> {
        self.slots.iter_mut().for_each(Slot::recycle);
        let slot = self.slots.iter().position(|slot| slot.unit() == Some(unit));
        let slot = slot.or_else(|| self.slots.iter().position(Slot::is_free));
        let missing = Error::Missing { unit, what: "a buffer for its updated shard" };
        let slot = slot.map(|slot| &mut self.slots[slot]).ok_or(missing.clone())?;
        slot.holds = Holds::Updated(unit);
        let staging = slot.staging.as_mut().ok_or(missing)?;
        rank.kernels().copy(staging.slice_mut(range.clone()), shard)?;
        if Some(range.end) == self.away[unit] {
            let cargo = Cargo { class: Class::Parameters, unit };
            let crossing = rank.transfers.copy(
                cargo,
                slot.buffer.slice_mut(0..range.end),
                staging.slice(0..range.end),
            )?;
            slot.holds = Holds::Crossing(unit, crossing);
        }
        Ok(())
    }

    /// Fetches the shards that are gathered next, as far as slots are free.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn on(&mut self, context: ShardContext<'_>) -> Result<()> {
        self.slots.iter_mut().for_each(Slot::recycle);
        let next = self.upcoming(context.window);
        self.start(&next, context)
    }

    /// Drops what is being fetched.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn stop(&mut self, rank: &Rank) -> Result<()> {
        self.slots.iter_mut().try_for_each(|slot| slot.clear(rank))
    }

    /// The units that are gathered from here on until their shards change, in order; some of them
    /// may come twice.
    fn upcoming(&self, window: &GatherWindow) -> Vec<UnitId> {
        let (pass, at) = self.reached;
        let Schedule { forward, backward, .. } = &*self.schedule;
        let now = self.schedule.pass(pass).order[at..].iter().filter(|&&next| !window.contains(next));
        let turns = pass == Pass::Forward && self.backward;
        let back = backward.order.iter().filter(|&&next| turns && self.freed[next]);
        let again = pass == Pass::Evaluate || self.forwards < self.micro_batches;
        let then = forward.order.iter().filter(|_| again);
        now.chain(back).chain(then).copied().collect()
    }

    /// Clears a slot for `unit`, which is gathered now, if none is free and none holds it: the
    /// limit of live elements may free a unit in forward that was to stay.
    fn make_room(&mut self, unit: UnitId, rank: &Rank) -> Result<()> {
        self.slots.iter_mut().for_each(Slot::recycle);
        if self.slots.iter().any(|slot| slot.is_free() || slot.unit() == Some(unit)) {
            return Ok(());
        }
        self.slots.last_mut().map_or(Ok(()), |slot| slot.clear(rank))
    }

    /// Starts to fetch as many of `units` as there are free slots, up to the first whose updated
    /// shard is not where it rests yet.
    fn start(&mut self, units: &[UnitId], context: ShardContext<'_>) -> Result<()> {
        let missing = context.optimizer.first_missing();
        for &next in units.iter().take_while(|&&next| next < missing) {
            if self.away[next].is_some() && !self.slots.iter().any(|slot| slot.unit() == Some(next)) {
                let Some(free) = self.slots.iter_mut().find(|slot| slot.is_free()) else { break };
                free.start(next, context.rank, context.parameters)?;
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
            Holds::Updated(unit) | Holds::Reading(unit, _) | Holds::Crossing(unit, _) => Some(unit),
            Holds::Nothing | Holds::Gathered => None,
        }
    }

    /// Frees the slot if its shard has been gathered.
    fn recycle(&mut self) {
        if matches!(self.holds, Holds::Gathered) {
            self.holds = Holds::Nothing;
        }
    }

    fn is_free(&self) -> bool {
        matches!(self.holds, Holds::Nothing)
    }

    /// Drops what is on its way to the slot.
    fn clear(&mut self, rank: &Rank) -> Result<()> {
        if let Holds::Reading(_, staged) = std::mem::replace(&mut self.holds, Holds::Nothing) {
            self.staging = Some(rank.transfers.discard(staged)?);
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
                Holds::Crossing(unit, rank.transfers.copy(cargo, out, shard.view())?)
            }
            Rest::Disk(extent, _) => {
                let staging = self.staging.take().ok_or(missing)?;
                Holds::Reading(unit, rank.transfers.read(cargo, extent, 0, staging, extent.bytes()))
            }
        };
        Ok(())
    }

    /// Waits until the shard, of so many elements, is on the device.
    fn arrive(&mut self, elements: usize, rank: &Rank) -> Result<()> {
        match std::mem::replace(&mut self.holds, Holds::Gathered) {
            Holds::Crossing(_, crossing) => rank.transfers.wait(crossing)?,
            Holds::Reading(unit, staged) => {
                let arrived = rank.transfers.settle(staged)?;
                let cargo = Cargo { class: Class::Parameters, unit };
                let out = self.buffer.slice_mut(0..elements);
                rank.transfers.wait(rank.transfers.forward(cargo, out, &arrived)?)?;
                self.staging = Some(arrived.buffer);
            }
            Holds::Nothing | Holds::Updated(_) | Holds::Gathered => {}
        }
        Ok(())
    }
}
