//! An update of what rests beyond the device, piece by piece: while one piece is updated, the next
//! arrives and the last leaves.
//!
//! What rests in main memory stays there, and the CPU updates it in place. What rests on disk
//! visits main memory, gradients on the device come to it, and updated parameters return. With
//! parameters away alone the update stays on the device, and parameters visit that.
//!
//! An update that the CPU makes begins when a step ends and goes on in the next forward, a unit or
//! two ahead of it: what travels is hidden behind what forward computes. The last pieces leave while
//! backward computes. Every element is updated before it is used, so no bit changes.

mod moves;
mod piece;
mod slot;

use super::{Operands, OwnSlice, ScaledUpdate, States};
use crate::full::UnitBuffers;
use crate::partition::UnitId;
use crate::places::Places;
use crate::rank::Rank;
use crate::{Buckets, Result};
use device::{DType, Place, View, ViewMut};
use events::Pass;
use offload::Transfers;
use piece::{PagedPiece, WriteBack};
use slot::{Slot, StateBuffers, missing};
use std::ops::Range;

/// The pieces of a rank's updates, the buffers that they pass, and the update under way.
pub(super) struct Paging {
    places: Places,
    /// Of the parameters.
    dtype: DType,
    /// Of the gradients, and where they rest.
    gradients: (DType, Place),
    pieces: Vec<PagedPiece>,
    /// Whether the rank holds units in full that it updates a part of.
    gathers: bool,
    /// If the device makes the update, there are some during an update only: they take room there.
    /// Others are kept between updates, unless main memory is needed for something else.
    slots: Vec<Slot>,
    progress: Option<Progress>,
    /// Pieces whose states have been read ahead for the next update.
    pieces_ahead: usize,
}

/// How far an update is, in pieces.
#[derive(Clone, Copy)]
struct Progress {
    update: ScaledUpdate,
    /// Those whose needs are on their way or here.
    fetched: usize,
    updated: usize,
    /// Those whose parameters are on the device, if they rest there.
    landed: usize,
    /// Those that have left their buffers.
    finished: usize,
}

/// Takes updated shards from main memory, before they are written to disk.
pub trait TakeUpdated {
    /// Takes elements `range` of `unit`'s shard. They come in order.
    ///
    /// # Errors
    /// If a kernel or a transfer fails.
    fn take(&mut self, rank: &Rank, unit: UnitId, range: Range<usize>, parameters: View<'_>) -> Result<()>;
}

/// What an update works on.
pub(super) struct UpdateOperands<'a> {
    pub(super) units: &'a mut [OwnSlice],
    pub(super) parameters: &'a mut UnitBuffers,
    pub(super) gradients: &'a UnitBuffers,
    /// What a unit that the rank holds in full goes through once its last piece has landed.
    pub(super) gathers: Option<&'a mut Buckets>,
    pub(super) taken: Option<&'a mut (dyn TakeUpdated + 'static)>,
}

impl Paging {
    /// Paging of `units`, whose `parameters` and `gradients` stay where they rest. Takes buffers in
    /// main memory if the CPU makes the update.
    ///
    /// # Errors
    /// If there is no room for them.
    pub(super) fn new(
        rank: &Rank,
        places: Places,
        units: &[OwnSlice],
        (parameters, gradients): (&UnitBuffers, &UnitBuffers),
    ) -> Result<Self> {
        let dtype = parameters.dtype(0);
        let gradients = gradients.get(0).map(|gradients| (gradients.dtype(), gradients.place()))?;
        let pieces = piece::pieces(rank, places, units, parameters, dtype);
        let gathers = units.iter().any(|own| own.gather_after_update);
        let mut paging = Paging {
            places,
            dtype,
            gradients,
            pieces,
            gathers,
            slots: Vec::new(),
            progress: None,
            pieces_ahead: 0,
        };
        if paging.is_on_cpu() {
            paging.take_slots(rank)?;
        }
        Ok(paging)
    }

    /// True if the CPU makes the update.
    pub(super) fn is_on_cpu(&self) -> bool {
        self.places.optimizer != Place::Device
    }

    /// Takes buffers, unless there are some.
    ///
    /// # Errors
    /// If there is no room for them.
    pub(super) fn take_slots(&mut self, rank: &Rank) -> Result<()> {
        if !self.slots.is_empty() {
            return Ok(());
        }
        let slot = |_| Slot::new(rank, self.places, &self.pieces, (self.gradients, self.dtype));
        self.slots = (0..self.places.buffers.min(self.pieces.len())).map(slot).collect::<Result<_>>()?;
        Ok(())
    }

    /// Frees the buffers; no update is under way.
    pub(super) fn free_slots(&mut self) {
        self.slots.clear();
    }

    /// Begins to read the states of the next of the first pieces from disk, if they rest there, once
    /// what was written from its buffers has left them. After `calls` calls all pieces that have
    /// buffers are read, and the update before is over.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn read_ahead(&mut self, rank: &Rank, units: &[OwnSlice], calls: usize) -> Result<()> {
        if calls == 1 {
            self.finish_all(rank)?;
        }
        if self.places.optimizer != Place::Disk {
            return Ok(());
        }
        self.take_slots(rank)?;
        let slots = self.slots.len();
        for next in self.pieces_ahead..self.pieces_ahead + (slots - self.pieces_ahead).div_ceil(calls) {
            let others = (self.pieces.len() - 1 - next) / slots;
            self.finish(rank, next + others * slots + 1)?;
            let piece = &self.pieces[next];
            self.slots[next].move_states(rank, piece, &units[piece.unit].states.states, Transfers::read);
            self.pieces_ahead += 1;
        }
        Ok(())
    }

    /// Drops what was read ahead, once it is here.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn stop(&mut self, rank: &Rank) -> Result<()> {
        self.pieces_ahead = 0;
        self.slots.iter_mut().try_for_each(|slot| slot.settle_states(rank))
    }

    /// Begins `update`; [`Paging::complete`] goes on with it.
    ///
    /// # Errors
    /// If there is no room for its buffers.
    pub(super) fn begin(&mut self, rank: &Rank, update: ScaledUpdate) -> Result<()> {
        self.take_slots(rank)?;
        self.pieces_ahead = 0;
        self.progress = Some(Progress { update, fetched: 0, updated: 0, landed: 0, finished: 0 });
        Ok(())
    }

    /// True if updates may go on while forward computes. Units that are gathered wait in buckets for
    /// others, and updated shards on their way to disk have as many buffers as travel at a time:
    /// both together could need more.
    pub(super) fn may_go_on(&self) -> bool {
        self.is_on_cpu() && !(self.gathers && self.places.parameters == Place::Disk)
    }

    /// True from [`Paging::begin`] until all pieces have left their buffers.
    pub(super) fn is_under_way(&self) -> bool {
        self.progress.is_some()
    }

    /// Returns the first unit whose updated parameters, which rest beyond the device, are not there
    /// yet: in main memory they are updated in place, a disk has them once they are written.
    pub(super) fn first_missing(&self) -> UnitId {
        let on_disk = self.places.parameters == Place::Disk;
        let there = |progress: Progress| if on_disk { progress.finished } else { progress.updated };
        let next = self.progress.and_then(|progress| self.pieces.get(there(progress)));
        next.map_or(UnitId::MAX, |piece| piece.unit)
    }

    /// Goes on with the update under way until `unit` is updated and, if it rests on the device, has
    /// landed there, in full if the rank holds it so. The next unit is updated, too: it travels
    /// while `unit` computes. If units are gathered, the next one lands and is on its way to the
    /// other ranks, and it is the next but one that travels. In main memory as many are updated as
    /// may travel to the device.
    ///
    /// # Errors
    /// If a kernel, a collective or a transfer fails.
    pub(super) fn complete(&mut self, rank: &Rank, unit: UnitId, held: UpdateOperands<'_>) -> Result<()> {
        let Paging { places, dtype, pieces, gathers, slots, progress: Some(progress), .. } = self else {
            return Ok(());
        };
        let landed = unit + usize::from(*gathers);
        let in_memory = [places.optimizer, places.parameters] == [Place::Host; 2];
        let updated = landed + if in_memory { places.buffers } else { usize::from(places.buffers > 1) };
        Pager { rank, held, dtype: *dtype, pieces, slots, progress }.reach(unit, landed, updated)
    }

    /// Waits until the parameters of the units up to `unit` are on disk, if they rest there.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn settle(&mut self, rank: &Rank, unit: UnitId) -> Result<()> {
        if self.places.parameters != Place::Disk {
            return Ok(());
        }
        self.finish(rank, self.pieces.partition_point(|piece| piece.unit <= unit))
    }

    /// Waits until all pieces have left their buffers.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn finish_all(&mut self, rank: &Rank) -> Result<()> {
        self.finish(rank, self.pieces.len())
    }

    /// Waits until so many pieces have left their buffers. All of them have landed.
    fn finish(&mut self, rank: &Rank, pieces: usize) -> Result<()> {
        let Some(progress) = &mut self.progress else { return Ok(()) };
        progress.finish(rank, &mut self.slots, pieces)?;
        if progress.finished == self.pieces.len() {
            self.progress = None;
            if !self.is_on_cpu() {
                self.slots.clear();
            }
        }
        Ok(())
    }
}

impl Progress {
    /// Waits until so many pieces, which have landed, have left their buffers.
    fn finish(&mut self, rank: &Rank, slots: &mut [Slot], pieces: usize) -> Result<()> {
        let count = slots.len();
        while self.finished < pieces {
            slots[self.finished % count].settle(rank)?;
            self.finished += 1;
        }
        Ok(())
    }
}

/// An update at work.
struct Pager<'a> {
    rank: &'a Rank,
    held: UpdateOperands<'a>,
    dtype: DType,
    pieces: &'a [PagedPiece],
    slots: &'a mut [Slot],
    progress: &'a mut Progress,
}

impl Pager<'_> {
    /// Updates the units up to `updated`. Those up to `landed` land, and `unit` is gathered.
    fn reach(&mut self, unit: UnitId, landed: UnitId, updated: UnitId) -> Result<()> {
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
        for next in self.progress.updated..pieces {
            while self.progress.fetched <= (next + ahead).min(count - 1) {
                let fetched = self.progress.fetched;
                let free = (fetched + 1).saturating_sub(slots);
                self.land_through(free)?;
                self.progress.finish(self.rank, self.slots, free)?;
                self.fetch(fetched)?;
                self.progress.fetched += 1;
            }
            self.arrive(next)?;
            self.compute(next)?;
            self.leave(next)?;
            self.progress.updated += 1;
        }
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
    fn slot(&self, next: usize) -> usize {
        next % self.slots.len()
    }

    /// Updates a piece that is here.
    fn compute(&mut self, next: usize) -> Result<()> {
        let (piece, index) = (&self.pieces[next], self.slot(next));
        let (unit, elements) = (piece.unit, piece.own.len());
        let _bracket = self.rank.bracket(Pass::Step, unit, piece.number);
        let Slot { states, gradients, parameters, on_device, .. } = &mut self.slots[index];
        let gradients = match gradients {
            Some(gradients) => gradients.slice(0..elements),
            None => self.held.gradients.slice(unit, piece.range.clone())?,
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
        if let (WriteBack::HostToDisk, Some(taken), Some(parameters)) =
            (piece.write_back, &mut self.held.taken, parameters)
        {
            taken.take(self.rank, unit, piece.held.clone(), parameters.slice(0..elements))?;
        }
        Ok(())
    }
}

/// The operands of `piece`'s update. Its states rest in `rest` or have come into `staged`; `out` is
/// where its parameters go, which are the master weights if there are no others.
fn operands<'a>(
    piece: &PagedPiece,
    rest: &'a mut States,
    staged: &'a mut Option<StateBuffers>,
    mut out: Option<ViewMut<'a>>,
    gradients: View<'a>,
) -> Result<Operands<'a>> {
    let (own, elements) = (|| piece.own.clone(), piece.own.len());
    Ok(match (rest, staged) {
        (States::Here { master, moments }, _) => {
            let (momentum, variance) = (moments.momentum.slice_mut(own()), moments.variance.slice_mut(own()));
            let (parameters, master) = match master {
                Some(master) => (out, master.slice_mut(own())),
                None => (None, out.take().ok_or(missing(piece.unit))?),
            };
            Operands { parameters, master, momentum, variance, gradients }
        }
        (States::Disk(_), Some([master, momentum, variance])) => Operands {
            parameters: out,
            master: master.slice_mut(0..elements),
            momentum: momentum.slice_mut(0..elements),
            variance: variance.slice_mut(0..elements),
            gradients,
        },
        (States::Disk(_), None) => return Err(missing(piece.unit)),
    })
}
