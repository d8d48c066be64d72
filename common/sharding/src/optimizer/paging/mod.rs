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
mod pager;
mod piece;
mod slot;

use super::{OwnSlice, ScaledUpdate};
use crate::Result;
use crate::full::UnitBuffers;
use crate::partition::UnitId;
use crate::places::Places;
use crate::rank::Rank;
use device::{DType, Place};
use offload::Transfers;
use pager::{Pager, Progress};
use piece::{PagedPiece, WriteBack};
use slot::{Slot, StatesOf};

pub use pager::TakeUpdated;
pub(super) use pager::UpdateOperands;

/// The pieces of a rank's updates, the buffers that they pass, and the update under way.
pub(super) struct Paging {
    places: Places,
    /// Of the parameters.
    dtype: DType,
    /// Of the gradients, and where they rest.
    gradients: (DType, Place),
    pieces: Vec<PagedPiece>,
    /// True if the rank holds some unit in full but updates only its slice.
    gathers: bool,
    /// If the device makes the update, there are some during an update only: they take room there.
    /// Others are kept between updates, unless main memory is needed for something else.
    slots: Vec<Slot>,
    progress: Option<Progress>,
    /// Pieces whose states have been read ahead for the next update.
    pieces_ahead: usize,
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
        let slots = self.places.update_buffers(self.pieces.len());
        self.slots = (0..slots).map(slot).collect::<Result<_>>()?;
        Ok(())
    }

    /// Frees the buffers; no update is under way.
    pub(super) fn free_slots(&mut self) {
        self.slots.clear();
    }

    /// Begins to read the states of the next of the first pieces from disk, if they rest there and
    /// what was written from its buffers has left them. After `calls` calls all pieces that have
    /// buffers are read, and the update before is over: only the last call waits.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn read_ahead(&mut self, rank: &Rank, units: &[OwnSlice], calls: usize) -> Result<()> {
        if calls == 1 {
            self.finish_all(rank)?;
        } else {
            self.poll(rank)?;
        }
        if self.places.optimizer != Place::Disk {
            return Ok(());
        }
        self.take_slots(rank)?;
        let (slots, all) = (self.slots.len(), self.pieces.len());
        // Piece p of the next update uses buffers (pieces + p) mod slots, so the first pieces find theirs
        // free first.
        let finished = self.progress.map_or(all, |progress| progress.finished);
        let left = (finished + slots).saturating_sub(all);
        let due = self.pieces_ahead + (slots - self.pieces_ahead).div_ceil(calls);
        while self.pieces_ahead < left.min(due) {
            let piece = &self.pieces[self.pieces_ahead];
            let states = StatesOf::new(piece, &units[piece.unit].states.states);
            self.slots[(all + self.pieces_ahead) % slots].move_states(rank, states, Transfers::read);
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
        self.slots.iter_mut().try_for_each(|slot| {
            slot.settle(rank)?;
            slot.settle_states(rank)
        })
    }

    /// Begins `update`; [`Paging::complete`] goes on with it.
    ///
    /// # Errors
    /// If there is no room for its buffers.
    pub(super) fn begin(&mut self, rank: &Rank, update: ScaledUpdate) -> Result<()> {
        self.take_slots(rank)?;
        self.pieces_ahead = 0;
        let turn = self.pieces.len() % self.slots.len().max(1);
        self.slots.rotate_left(turn);
        self.progress = Some(Progress::begin(update));
        Ok(())
    }

    /// True if updates may go on while forward computes. Units that are gathered wait in buckets for
    /// others, and updated shards on their way to disk have as many buffers as travel at a time:
    /// both together could need more.
    pub(super) fn may_go_on(&self) -> bool {
        self.is_on_cpu() && !(self.gathers && self.places.parameters == Place::Disk)
    }

    /// True from [`Paging::begin`] until [`Paging::finish`] finds that the last piece has left its
    /// buffers.
    pub(super) fn is_under_way(&self) -> bool {
        self.progress.is_some()
    }

    /// Returns the first unit whose updated parameters, which rest beyond the device, are not there
    /// yet: in main memory they are updated in place, a disk has them once they are written.
    pub(super) fn first_missing(&mut self, rank: &Rank) -> UnitId {
        let Some(progress) = &mut self.progress else { return UnitId::MAX };
        let there = match self.places.parameters {
            Place::Disk => progress.written(rank, &mut self.slots),
            _ => progress.updated,
        };
        self.pieces.get(there).map_or(UnitId::MAX, |piece| piece.unit)
    }

    /// Notes which pieces have left their buffers, without waiting.
    ///
    /// # Errors
    /// If a transfer has failed.
    pub(super) fn poll(&mut self, rank: &Rank) -> Result<()> {
        self.progress.as_mut().map_or(Ok(()), |progress| progress.poll(rank, &mut self.slots))
    }

    /// Goes on with the update under way until `unit` is updated and, if it rests on the device, has
    /// landed there, in full if the rank holds it so. The next unit is updated, too, unless there is
    /// one buffer only, or its shard is handed over and crosses at once; it travels while `unit`
    /// computes. If units are gathered, the next one lands and is on its way to the other ranks, and it
    /// is the next but one that travels. In main memory as many are updated as may travel to the device,
    /// and more while the rank would only wait for `unit`, unless units are gathered: how many land
    /// would depend on time, and all ranks gather in one order.
    ///
    /// # Errors
    /// If a kernel, a collective or a transfer fails.
    pub(super) fn complete(&mut self, rank: &Rank, unit: UnitId, held: UpdateOperands<'_>) -> Result<()> {
        let exchanges = self.exchanges_states();
        let Paging { places, dtype, pieces, gathers, slots, progress: Some(progress), .. } = self else {
            return Ok(());
        };
        let landed = unit + usize::from(*gathers);
        let in_memory = [places.optimizer, places.parameters] == [Place::Host; 2];
        let is_handed_over = places.parameters == Place::Disk && held.taken.is_some();
        let travels = !is_handed_over || !rank.transfers.crosses_at_once();
        let updated = landed + if in_memory { slots.len() } else { usize::from(slots.len() > 1 && travels) };
        let mut pager = Pager { rank, held, dtype: *dtype, pieces, exchanges, slots, progress };
        pager.reach(unit, landed, updated)?;
        match (exchanges, in_memory) {
            (true, _) => pager.update_what_is_here(),
            (false, true) if !*gathers => pager.update_in_wait(unit),
            (false, _) => Ok(()),
        }
    }

    /// True if what rests on disk is read into buffers as soon as what was there before has left.
    /// Master weights that are on their way to a device must stay until they are there.
    fn exchanges_states(&self) -> bool {
        let stays = |piece: &PagedPiece| piece.write_back == WriteBack::MasterToDevice;
        self.places.optimizer == Place::Disk && !self.pieces.iter().any(stays)
    }

    /// Waits until the parameters of the units up to `unit` are on disk, if they rest there.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn settle(&mut self, rank: &Rank, unit: UnitId) -> Result<()> {
        match &mut self.progress {
            Some(progress) if self.places.parameters == Place::Disk => {
                let pieces = self.pieces.partition_point(|piece| piece.unit <= unit);
                progress.settle_parameters(rank, &mut self.slots, pieces)
            }
            _ => Ok(()),
        }
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
