//! Updates states that are stored beyond the device, piece by piece: while one piece is updated,
//! the next one arrives and the previous one leaves.
//!
//! * States in main memory: the CPU updates them in place.
//! * States on disk: they are read into main memory, and written back after the CPU's update.
//! * In both cases, gradients on the device are copied to main memory, and updated parameters are
//!   copied back to where they are stored.
//! * Only parameters beyond the device: the device computes the update, and parameters are copied
//!   to it and back.
//!
//! An update that the CPU computes begins when a step ends and continues during the next forward,
//! one or two units ahead of it, so that transfers overlap with forward's computation. The last
//! pieces leave while backward computes. Every element is updated before it is used, so no bit
//! changes.

mod moves;
mod pager;
mod piece;
mod slot;

use super::{OwnSlice, ScaledUpdate};
use crate::Result;
use crate::full::UnitBuffers;
use crate::partition::UnitId;
use crate::placement::OffloadPlacement;
use crate::rank::Rank;
use device::{DType, Place};
use offload::Transfers;
use pager::{Pager, Targets, UpdateProgress};
use piece::{PagedPiece, WriteBack};
use slot::{PieceSlot, StatesOnDisk};

pub use pager::{UpdateBuffers, UpdatedShardSink};

/// The pieces of a rank's updates, their buffers, and the update in progress.
pub(super) struct Paging {
    placement: OffloadPlacement,
    /// The element type of the parameters.
    dtype: DType,
    /// The element type of the gradients, and where they are stored.
    gradients: (DType, Place),
    pieces: Vec<PagedPiece>,
    /// True if the rank holds some unit in full but updates only its slice.
    gathers: bool,
    /// The buffers of pieces. If the device computes the update, they exist only during an update,
    /// because they take memory there. Otherwise they are kept between updates, unless main memory
    /// is needed for something else.
    slots: Vec<PieceSlot>,
    progress: Option<UpdateProgress>,
    /// Number of pieces whose states have been read ahead for the next update.
    pieces_ahead: usize,
}

impl Paging {
    /// Returns the paging of `units`, whose `parameters` and `gradients` stay where they are
    /// stored. Allocates buffers in main memory if the CPU computes the update.
    ///
    /// # Errors
    /// If main memory is full.
    pub(super) fn new(
        rank: &Rank,
        placement: OffloadPlacement,
        units: &[OwnSlice],
        (parameters, gradients): (&UnitBuffers, &UnitBuffers),
    ) -> Result<Self> {
        let dtype = parameters.dtype(0)?;
        let gradients = gradients.get(0).map(|gradients| (gradients.dtype(), gradients.place()))?;
        let pieces = piece::pieces(rank, placement, units, parameters, dtype);
        let gathers = units.iter().any(|own| own.gather_after_update);
        let mut paging = Paging {
            placement,
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

    /// True if the CPU computes the update.
    pub(super) fn is_on_cpu(&self) -> bool {
        self.placement.optimizer != Place::Device
    }

    /// Allocates the slots, unless they are allocated already.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(super) fn take_slots(&mut self, rank: &Rank) -> Result<()> {
        if !self.slots.is_empty() {
            return Ok(());
        }
        let slot = |_| PieceSlot::new(rank, self.placement, &self.pieces, self.gradients, self.dtype);
        let slots = self.placement.update_buffers(self.pieces.len());
        self.slots = (0..slots).map(slot).collect::<Result<_>>()?;
        Ok(())
    }

    /// Frees the slots. Call it only while no update is in progress.
    pub(super) fn free_slots(&mut self) {
        self.slots.clear();
    }

    /// Issues reads of the next update's first states, if they are stored on disk, into slots that
    /// the previous update no longer needs. `calls_left` counts the remaining calls, this one
    /// included. After them, reads are issued for all slots, and the previous update is complete:
    /// only the last call waits.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn read_ahead(&mut self, rank: &Rank, units: &[OwnSlice], calls_left: usize) -> Result<()> {
        if calls_left == 1 {
            self.finish_all(rank)?;
        } else {
            self.poll(rank)?;
        }
        if self.placement.optimizer != Place::Disk {
            return Ok(());
        }
        self.take_slots(rank)?;
        let (slots, all) = (self.slots.len(), self.pieces.len());
        // Piece p of the next update uses slot (pieces + p) mod slots, so the slots of the first
        // pieces become free first.
        let finished = self.progress.map_or(all, |progress| progress.finished);
        let left = (finished + slots).saturating_sub(all);
        let due = self.pieces_ahead + (slots - self.pieces_ahead).div_ceil(calls_left);
        while self.pieces_ahead < left.min(due) {
            let piece = &self.pieces[self.pieces_ahead];
            let states = StatesOnDisk::new(piece, &units[piece.unit].states.states);
            self.slots[(all + self.pieces_ahead) % slots].move_states(rank, states, Transfers::read);
            self.pieces_ahead += 1;
        }
        Ok(())
    }

    /// Waits for what was read ahead, and discards it.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn abort(&mut self, rank: &Rank) -> Result<()> {
        self.pieces_ahead = 0;
        self.slots.iter_mut().try_for_each(|slot| {
            slot.wait_until_written(rank)?;
            slot.wait_for_states(rank)
        })
    }

    /// Begins `update`; [`Paging::continue_until`] continues it.
    ///
    /// # Errors
    /// If there is no memory for its slots.
    pub(super) fn begin(&mut self, rank: &Rank, update: ScaledUpdate) -> Result<()> {
        self.take_slots(rank)?;
        self.pieces_ahead = 0;
        let turn = self.pieces.len() % self.slots.len().max(1);
        self.slots.rotate_left(turn);
        self.progress = Some(UpdateProgress::begin(update));
        Ok(())
    }

    /// True if updates may continue while forward computes. Gathered units wait in buckets for
    /// other units, and updated shards in flight to disk occupy all slots: both together could need
    /// more buffers than there are.
    pub(super) fn may_continue_in_forward(&self) -> bool {
        self.is_on_cpu() && !(self.gathers && self.placement.parameters == Place::Disk)
    }

    /// True from [`Paging::begin`] until [`Paging::finish`] finds that the last piece has left its
    /// buffers.
    pub(super) fn is_in_progress(&self) -> bool {
        self.progress.is_some()
    }

    /// Returns the first unit whose updated parameters are not stored beyond the device yet; `None`
    /// if all are. In main memory parameters are updated in place; on disk they are stored once
    /// they are written.
    pub(super) fn first_missing(&mut self, rank: &Rank) -> Option<UnitId> {
        let progress = self.progress.as_mut()?;
        let stored = match self.placement.parameters {
            Place::Disk => progress.written(rank, &mut self.slots),
            _ => progress.updated,
        };
        self.pieces.get(stored).map(|piece| piece.unit)
    }

    /// Notes which pieces have left their buffers, without waiting.
    ///
    /// # Errors
    /// If a transfer has failed.
    pub(super) fn poll(&mut self, rank: &Rank) -> Result<()> {
        match &mut self.progress {
            Some(progress) => progress.poll(rank, &mut self.slots),
            None => Ok(()),
        }
    }

    /// Continues the update in progress until `unit` is updated and, if its parameters are stored
    /// on the device, back there (gathered, if the rank holds it in full). Then updates ahead, so
    /// that transfers overlap with `unit`'s computation; [`Paging::targets`] says how far. Beyond
    /// that:
    ///
    /// * if states are read from disk into buffers as these become free, updates every piece that
    ///   has already arrived;
    /// * if all states are in main memory and no unit is gathered, updates pieces for as long as
    ///   the rank would only wait for `unit`. Where units are gathered it does not: the number of
    ///   units updated would depend on timing, but all ranks must gather in one order.
    ///
    /// # Errors
    /// If a kernel, a collective or a transfer fails.
    pub(super) fn continue_until(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        units: &mut [OwnSlice],
        buffers: UpdateBuffers<'_>,
    ) -> Result<()> {
        let (exchanges, in_memory) = (self.exchanges_states(), self.is_in_main_memory());
        let on_cpu = self.is_on_cpu();
        let targets = self.targets(rank, unit, buffers.sink.is_some());
        let Paging { dtype, pieces, gathers, slots, progress: Some(progress), .. } = self else {
            return Ok(());
        };
        let mut pager =
            Pager { rank, units, buffers, dtype: *dtype, on_cpu, pieces, exchanges, slots, progress };
        pager.advance(unit, targets)?;
        if exchanges {
            pager.update_arrived_pieces()
        } else if in_memory && !*gathers {
            pager.update_while_waiting(unit)
        } else {
            Ok(())
        }
    }

    /// Returns how far an update runs ahead of `unit`, the unit that forward uses next:
    ///
    /// * units that are gathered: the next unit lands, too, so that its all-gather is in flight,
    ///   and the one after it is updated;
    /// * all states in main memory: as many units are updated ahead as there are slots;
    /// * otherwise one unit is updated ahead, unless there is only one slot, or the unit's shard is
    ///   handed over (`has_sink`) and its copy to the device takes no time.
    fn targets(&self, rank: &Rank, unit: UnitId, has_sink: bool) -> Targets {
        let landed = unit + usize::from(self.gathers);
        let is_handed_over = self.placement.parameters == Place::Disk && has_sink;
        let overlaps = !is_handed_over || !rank.transfers.crosses_at_once();
        let ahead = if self.is_in_main_memory() {
            self.slots.len()
        } else {
            usize::from(self.slots.len() > 1 && overlaps)
        };
        Targets { landed, updated: landed + ahead }
    }

    /// True if optimizer states and parameters are stored in main memory.
    fn is_in_main_memory(&self) -> bool {
        [self.placement.optimizer, self.placement.parameters] == [Place::Host; 2]
    }

    /// True if states on disk are read into a slot as soon as the states of the previous piece have
    /// been written from it. Exception: master weights that are copied to a device stay in the slot
    /// until the copy is done.
    fn exchanges_states(&self) -> bool {
        let stays = |piece: &PagedPiece| piece.write_back == WriteBack::MasterToDevice;
        self.placement.optimizer == Place::Disk && !self.pieces.iter().any(stays)
    }

    /// Waits until the parameters of the units up to `unit` are on disk, if they are stored there.
    ///
    /// # Errors
    /// If a transfer fails.
    pub(super) fn wait_until_stored(&mut self, rank: &Rank, unit: UnitId) -> Result<()> {
        match &mut self.progress {
            Some(progress) if self.placement.parameters == Place::Disk => {
                let pieces = self.pieces.partition_point(|piece| piece.unit <= unit);
                progress.wait_for_parameters(rank, &mut self.slots, pieces)
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

    /// Waits until the first `pieces` pieces, all of which have landed, have left their buffers.
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
