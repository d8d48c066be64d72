//! The update at work: pieces are fetched, updated, and leave.

use super::piece::{PagedPiece, WriteBack};
use super::slot::{Slot, StateBuffers, missing};
use crate::full::UnitBuffers;
use crate::optimizer::shard::Operands;
use crate::optimizer::{OwnSlice, ScaledUpdate, States};
use crate::partition::UnitId;
use crate::rank::Rank;
use crate::{Buckets, Result};
use device::{DType, View, ViewMut};
use events::Pass;
use std::ops::Range;

/// How far an update is, in pieces.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    update: ScaledUpdate,
    /// Those whose needs are on their way or here.
    fetched: usize,
    pub(super) updated: usize,
    /// Those whose parameters are on the device, if they rest there.
    landed: usize,
    /// Those that have left their buffers.
    pub(super) finished: usize,
    /// Whether all shards in main memory so far have been taken as soon as they were updated. Those
    /// after one that found no room are fetched in turn.
    hands_over: bool,
}

/// Takes updated shards from main memory as soon as they are updated: those that rest there, and
/// others before they are written to disk.
pub trait TakeUpdated {
    /// Takes elements `range` of `unit`'s shard. They come in order, those that rest in main memory
    /// all at once.
    ///
    /// # Errors
    /// If a kernel or a transfer fails.
    fn take(&mut self, rank: &Rank, unit: UnitId, range: Range<usize>, parameters: View<'_>) -> Result<()>;

    /// True if there is room for `unit`'s shard.
    fn has_room(&self, unit: UnitId) -> bool;

    /// True while the rank would wait for `unit`'s shard, which is on its way to the device.
    fn makes_wait(&self, rank: &Rank, unit: UnitId) -> bool;
}

/// What an update works on.
pub(in crate::optimizer) struct UpdateOperands<'a> {
    pub(in crate::optimizer) units: &'a mut [OwnSlice],
    pub(in crate::optimizer) parameters: &'a mut UnitBuffers,
    pub(in crate::optimizer) gradients: &'a UnitBuffers,
    /// What a unit that the rank holds in full goes through once its last piece has landed.
    pub(in crate::optimizer) gathers: Option<&'a mut Buckets>,
    pub(in crate::optimizer) taken: Option<&'a mut (dyn TakeUpdated + 'static)>,
}

impl Progress {
    pub(super) fn begin(update: ScaledUpdate) -> Self {
        Progress { update, fetched: 0, updated: 0, landed: 0, finished: 0, hands_over: true }
    }

    /// Notes which of the pieces that have landed have left their buffers, without waiting.
    pub(super) fn poll(&mut self, rank: &Rank, slots: &mut [Slot]) -> Result<()> {
        while self.finished < self.landed && slot(slots, self.finished).is_settled(rank) {
            self.finish(rank, slots, self.finished + 1)?;
        }
        Ok(())
    }

    /// Waits until so many pieces, which have landed, have left their buffers.
    pub(super) fn finish(&mut self, rank: &Rank, slots: &mut [Slot], pieces: usize) -> Result<()> {
        while self.finished < pieces {
            slot(slots, self.finished).settle(rank)?;
            self.finished += 1;
        }
        Ok(())
    }

    /// Returns how many pieces' parameters are on disk.
    pub(super) fn written(&self, rank: &Rank, slots: &mut [Slot]) -> usize {
        let mut on_their_way = self.finished..self.landed;
        let first = on_their_way.find(|&piece| !slot(slots, piece).has_written_parameters(rank));
        first.unwrap_or(self.landed)
    }

    /// Waits until the parameters of so many pieces are on disk, of those that have landed.
    pub(super) fn settle_parameters(&self, rank: &Rank, slots: &mut [Slot], pieces: usize) -> Result<()> {
        let mut on_their_way = self.finished..pieces.min(self.landed);
        on_their_way.try_for_each(|piece| slot(slots, piece).settle_parameters(rank))
    }
}

/// The buffers of piece number `piece`.
fn slot(slots: &mut [Slot], piece: usize) -> &mut Slot {
    let count = slots.len();
    &mut slots[piece % count]
}

/// An update at work.
pub(super) struct Pager<'a> {
    pub(super) rank: &'a Rank,
    pub(super) held: UpdateOperands<'a>,
    pub(super) dtype: DType,
    pub(super) pieces: &'a [PagedPiece],
    /// True if states are read as soon as those of the piece before have left their buffers.
    pub(super) exchanges: bool,
    pub(super) slots: &'a mut [Slot],
    pub(super) progress: &'a mut Progress,
}

impl Pager<'_> {
    /// Updates the units up to `updated`. Those up to `landed` land, and `unit` is gathered.
    pub(super) fn reach(&mut self, unit: UnitId, landed: UnitId, updated: UnitId) -> Result<()> {
        let through = |unit| self.pieces.partition_point(|piece| piece.unit <= unit);
        let (updated, landed, last) = (through(updated), through(landed), through(unit));
        self.update_through(updated)?;
        self.land_through(landed)?;
        // A unit waits in its bucket for those after it.
        while self.held.parameters.rest(unit).is_none() && self.progress.landed < self.pieces.len() {
            self.update_through(self.progress.landed + 1)?;
            self.land_through(self.progress.landed + 1)?;
            self.wait_for_bucket()?;
        }
        // All are back once the last is; its bucket may hold `unit` even if all have landed.
        let is_out = self.held.parameters.rest(unit).is_none();
        if is_out || last == self.pieces.len() { self.wait_for_bucket() } else { Ok(()) }
    }

    /// Waits for the bucket in flight.
    fn wait_for_bucket(&mut self) -> Result<()> {
        let UpdateOperands { parameters, gathers: Some(gathers), .. } = &mut self.held else { return Ok(()) };
        parameters.put_all(gathers.finish(self.rank)?);
        Ok(())
    }

    /// Updates pieces until so many are updated.
    fn update_through(&mut self, pieces: usize) -> Result<()> {
        let (count, slots) = (self.pieces.len(), self.slots.len());
        // One buffer is updated, and from three on one leaves; the others arrive.
        let ahead = match slots {
            0 | 1 => 0,
            2 => 1,
            slots => slots - 2,
        };
        while self.progress.updated < pieces {
            let next = self.progress.updated;
            self.fetch_through(next + 1, true)?;
            // States that a disk's thread reads without the rank need not be asked for ahead.
            self.fetch_through((next + 1 + ahead).min(count), !self.exchanges)?;
            self.update(next)?;
        }
        Ok(())
    }

    /// Updates the next pieces as long as nothing has to be waited for: they leave early, and make
    /// room.
    pub(super) fn update_what_is_here(&mut self) -> Result<()> {
        while let next = self.progress.updated
            && let Some(piece) = self.pieces.get(next)
        {
            self.fetch_through(next + 1, false)?;
            let has_room = match (piece.write_back, &self.held.taken) {
                (WriteBack::HostToDisk, Some(taken)) => taken.has_room(piece.unit),
                _ => true,
            };
            let slot = self.slot(next);
            if self.progress.fetched == next || !has_room || !self.slots[slot].has_arrived(self.rank) {
                return Ok(());
            }
            self.update(next)?;
        }
        Ok(())
    }

    /// Updates the next pieces, which rest in main memory, while the rank would wait for `unit`.
    pub(super) fn update_in_wait(&mut self, unit: UnitId) -> Result<()> {
        while self.progress.updated < self.pieces.len()
            && self.held.taken.as_ref().is_some_and(|taken| taken.makes_wait(self.rank, unit))
        {
            self.update_through(self.progress.updated + 1)?;
        }
        Ok(())
    }

    /// Issues what is needed by pieces, until it is for so many. If a piece before has not left its
    /// buffers yet, waits for it or stops.
    fn fetch_through(&mut self, pieces: usize, waits: bool) -> Result<()> {
        while self.progress.fetched < pieces {
            let free = (self.progress.fetched + 1).saturating_sub(self.slots.len());
            if waits {
                self.land_through(free)?;
                self.progress.finish(self.rank, self.slots, free)?;
            } else {
                self.progress.poll(self.rank, self.slots)?;
            }
            if self.progress.finished < free {
                return Ok(());
            }
            self.fetch(self.progress.fetched)?;
            self.progress.fetched += 1;
        }
        Ok(())
    }

    /// Updates a piece as soon as it is here, and lets it leave.
    fn update(&mut self, next: usize) -> Result<()> {
        self.arrive(next)?;
        self.compute(next)?;
        self.leave(next)?;
        self.progress.updated += 1;
        Ok(())
    }

    /// Waits until so many pieces have landed.
    fn land_through(&mut self, pieces: usize) -> Result<()> {
        while self.progress.landed < pieces {
            self.land(self.progress.landed)?;
            self.progress.landed += 1;
        }
        Ok(())
    }

    /// The slot of piece number `next`.
    pub(super) fn slot(&self, next: usize) -> usize {
        next % self.slots.len()
    }

    /// Updates a piece that is here.
    fn compute(&mut self, next: usize) -> Result<()> {
        let (piece, index) = (&self.pieces[next], self.slot(next));
        let (unit, elements) = (piece.unit, piece.own.len());
        let _bracket = self.rank.bracket(Pass::Step, unit, piece.number);
        let Slot { states, gradients, parameters, on_device, .. } = &mut self.slots[index];
        let gradients = match gradients {
            Some(gradients) if !self.rank.transfers.device_in_main_memory() => gradients.slice(0..elements),
            _ => self.held.gradients.slice(unit, piece.range.clone())?,
        };
        let mut out = match piece.write_back {
            WriteBack::MasterToDevice => None,
            WriteBack::InPlace | WriteBack::IntoDevice => {
                Some(self.held.parameters.get_mut(unit)?.slice_mut(piece.held.clone()))
            }
            WriteBack::HostToDevice | WriteBack::HostToDisk => {
                Some(parameters.as_mut().ok_or(missing(unit))?.slice_mut(0..elements))
            }
            WriteBack::DeviceToHost | WriteBack::DeviceToDisk => {
                Some(on_device.as_mut().ok_or(missing(unit))?.slice_mut(0..elements))
            }
        };
        let shard = &mut self.held.units[unit].states;
        let stretches = &shard.pieces[piece.number];
        if let Some(out) = &mut out
            && stretches.is_padded()
            && piece.write_back.leaves_padding(self.dtype)
        {
            self.rank.kernels().fill(out.reborrow(), 0.0)?;
        }
        let operands = operands(piece, &mut shard.states, states, out, gradients)?;
        stretches.update(self.rank, operands, self.progress.update)?;
        match (piece.write_back, &mut self.held.taken, parameters) {
            (WriteBack::HostToDisk, Some(taken), Some(parameters)) => {
                taken.take(self.rank, unit, piece.held.clone(), parameters.slice(0..elements))
            }
            (WriteBack::InPlace, Some(taken), _) if piece.is_last => {
                self.progress.hands_over &= taken.has_room(unit);
                if !self.progress.hands_over {
                    return Ok(());
                }
                taken.take(self.rank, unit, 0..piece.held.end, self.held.parameters.get(unit)?.view())
            }
            _ => Ok(()),
        }
    }
}

/// The operands of `piece`'s update. Its states rest in `rest` or have come into `staged`; `out` is
/// where its parameters go, which are the master weights if there are no others.
fn operands<'a>(
    piece: &PagedPiece,
    rest: &'a mut States,
    staged: &'a mut Option<StateBuffers>,
    out: Option<ViewMut<'a>>,
    gradients: View<'a>,
) -> Result<Operands<'a>> {
    let elements = piece.own.len();
    match (rest, staged) {
        (States::Disk(_), Some([master, momentum, variance])) => Ok(Operands {
            parameters: out,
            master: master.slice_mut(0..elements),
            momentum: momentum.slice_mut(0..elements),
            variance: variance.slice_mut(0..elements),
            gradients,
        }),
        (rest, _) => rest.operands(piece.own.clone(), out, gradients).ok_or(missing(piece.unit)),
    }
}
