//! The progress of an update: pieces are fetched, updated, and written back.

use super::piece::{PagedPiece, WriteBack};
use super::slot::{PieceSlot, StateBuffers, missing};
use crate::full::UnitBuffers;
use crate::optimizer::shard::Operands;
use crate::optimizer::{OwnSlice, ScaledUpdate, States};
use crate::partition::UnitId;
use crate::rank::Rank;
use crate::{Buckets, Result};
use device::{Buffer, DType, View, ViewMut};
use events::Pass;
use std::ops::Range;

/// How far an update is: numbers of pieces.
#[derive(Clone, Copy)]
pub(super) struct UpdateProgress {
    update: ScaledUpdate,
    /// Pieces whose operands have arrived or are in flight.
    fetched: usize,
    pub(super) updated: usize,
    /// Pieces whose parameters are on the device, if they are stored there.
    landed: usize,
    /// Pieces that have left their buffers.
    pub(super) finished: usize,
    /// True while the sink has accepted every shard in main memory as soon as it was updated. After
    /// one for which it had no room, shards are fetched in turn.
    hands_over: bool,
}

/// The units up to which an update continues, these included.
#[derive(Clone, Copy)]
pub(super) struct Targets {
    /// The last unit whose parameters must be on the device, if they are stored there.
    pub(super) landed: UnitId,
    /// The last unit to update.
    pub(super) updated: UnitId,
}

/// Receives each shard as soon as it is updated, before it is written to disk.
pub trait UpdatedShardSink {
    /// Accepts elements `range` of `unit`'s shard. Ranges arrive in order; a shard that is stored
    /// in main memory arrives in one range.
    ///
    /// # Errors
    /// If a kernel or a transfer fails.
    fn accept_updated(
        &mut self,
        rank: &Rank,
        unit: UnitId,
        range: Range<usize>,
        parameters: View<'_>,
    ) -> Result<()>;

    /// True if there is room for `unit`'s shard.
    fn has_room(&self, unit: UnitId) -> bool;

    /// True if waiting for `unit`'s shard, which is in flight to the device, would block the rank.
    fn would_wait(&self, rank: &Rank, unit: UnitId) -> bool;
}

/// The buffers that an update reads and writes.
pub struct UpdateBuffers<'a> {
    /// The parameters that this rank holds.
    pub parameters: &'a mut UnitBuffers,
    /// The summed gradients of the slice that this rank updates.
    pub gradients: &'a UnitBuffers,
    /// All-gathers updated units that the rank holds in full; `None` if there are none.
    pub gathers: Option<&'a mut Buckets>,
    /// Receives updated shards; `None` if they are read from where they are stored.
    pub sink: Option<&'a mut (dyn UpdatedShardSink + 'static)>,
}

impl<'a> UpdateBuffers<'a> {
    /// Returns buffers of an update that gathers nothing and hands over no shards.
    pub fn new(parameters: &'a mut UnitBuffers, gradients: &'a UnitBuffers) -> Self {
        UpdateBuffers { parameters, gradients, gathers: None, sink: None }
    }

    /// Returns these buffers with `gathers` for updated units that the rank holds in full.
    pub fn with_gathers(self, gathers: &'a mut Buckets) -> Self {
        UpdateBuffers { gathers: Some(gathers), ..self }
    }

    /// True if `unit` waits in its bucket for the units after it.
    fn waits_in_bucket(&self, unit: UnitId) -> bool {
        self.parameters.storage(unit).is_none() && !self.is_in_flight(unit)
    }

    /// True if `unit`'s all-gather is in flight.
    pub(crate) fn is_in_flight(&self, unit: UnitId) -> bool {
        self.gathers.as_ref().is_some_and(|gathers| gathers.is_in_flight(unit))
    }

    /// Waits until `unit` is gathered, if its all-gather is in flight.
    pub(crate) fn wait_for_unit(&mut self, rank: &Rank, unit: UnitId) -> Result<()> {
        let UpdateBuffers { parameters, gathers: Some(gathers), .. } = self else { return Ok(()) };
        while gathers.is_in_flight(unit) {
            parameters.put_all(gathers.finish_oldest(rank)?);
        }
        Ok(())
    }

    /// Waits for all all-gathers in flight.
    pub(crate) fn wait_for_all(&mut self, rank: &Rank) -> Result<()> {
        let UpdateBuffers { parameters, gathers: Some(gathers), .. } = self else { return Ok(()) };
        parameters.put_all(gathers.finish(rank)?);
        Ok(())
    }
}

impl UpdateProgress {
    pub(super) fn begin(update: ScaledUpdate) -> Self {
        UpdateProgress { update, fetched: 0, updated: 0, landed: 0, finished: 0, hands_over: true }
    }

    /// Notes which of the pieces that have landed have left their buffers, without waiting.
    pub(super) fn poll(&mut self, rank: &Rank, slots: &mut [PieceSlot]) -> Result<()> {
        while self.finished < self.landed && slot(slots, self.finished).is_written(rank) {
            self.finish(rank, slots, self.finished + 1)?;
        }
        Ok(())
    }

    /// Waits until the first `pieces` pieces, which have landed, have left their buffers.
    pub(super) fn finish(&mut self, rank: &Rank, slots: &mut [PieceSlot], pieces: usize) -> Result<()> {
        while self.finished < pieces {
            slot(slots, self.finished).wait_until_written(rank)?;
            self.finished += 1;
        }
        Ok(())
    }

    /// Returns the number of pieces whose parameters are on disk.
    pub(super) fn written(&self, rank: &Rank, slots: &mut [PieceSlot]) -> usize {
        let mut in_flight = self.finished..self.landed;
        let first = in_flight.find(|&piece| !slot(slots, piece).has_written_parameters(rank));
        first.unwrap_or(self.landed)
    }

    /// Waits until the parameters of the first `pieces` pieces are on disk, as far as these have
    /// landed.
    pub(super) fn wait_for_parameters(
        &self,
        rank: &Rank,
        slots: &mut [PieceSlot],
        pieces: usize,
    ) -> Result<()> {
        let mut in_flight = self.finished..pieces.min(self.landed);
        in_flight.try_for_each(|piece| slot(slots, piece).wait_for_parameters(rank))
    }
}

/// Returns the buffers of piece number `piece`.
fn slot(slots: &mut [PieceSlot], piece: usize) -> &mut PieceSlot {
    let count = slots.len();
    &mut slots[piece % count]
}

/// Continues an update in progress.
pub(super) struct Pager<'a> {
    pub(super) rank: &'a Rank,
    pub(super) units: &'a mut [OwnSlice],
    pub(super) buffers: UpdateBuffers<'a>,
    /// The element type of the parameters.
    pub(super) dtype: DType,
    /// True if the CPU computes the update.
    pub(super) on_cpu: bool,
    pub(super) pieces: &'a [PagedPiece],
    /// True if states are read as soon as those of the previous piece have left the slot.
    pub(super) exchanges: bool,
    pub(super) slots: &'a mut [PieceSlot],
    pub(super) progress: &'a mut UpdateProgress,
}

/// What [`Pager::fetch_through`] does while no slot is free.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    Wait,
    Return,
}

impl Pager<'_> {
    /// Updates and lands units up to `targets`, and gathers `unit` if the rank holds it in full.
    pub(super) fn advance(&mut self, unit: UnitId, targets: Targets) -> Result<()> {
        let through = |unit| self.pieces.partition_point(|piece| piece.unit <= unit);
        let (updated, landed, last) = (through(targets.updated), through(targets.landed), through(unit));
        self.update_through(updated)?;
        self.land_through(landed)?;
        // `unit` may wait in its bucket for the units after it.
        while self.buffers.waits_in_bucket(unit) && self.progress.landed < self.pieces.len() {
            self.update_through(self.progress.landed + 1)?;
            self.land_through(self.progress.landed + 1)?;
        }
        if last == self.pieces.len() {
            self.buffers.wait_for_all(self.rank)
        } else {
            self.buffers.wait_for_unit(self.rank, unit)
        }
    }

    /// Updates pieces until the first `pieces` are updated.
    fn update_through(&mut self, pieces: usize) -> Result<()> {
        let (count, slots) = (self.pieces.len(), self.slots.len());
        // One slot's piece is updated and, given three slots or more, another's leaves; the pieces
        // of the other slots arrive.
        let ahead = match slots {
            0 | 1 => 0,
            2 => 1,
            slots => slots - 2,
        };
        while self.progress.updated < pieces {
            let next = self.progress.updated;
            self.fetch_through(next + 1, WhenFull::Wait)?;
            // With exchanges, a disk thread reads the next states without the rank's help.
            let when_full = if self.exchanges { WhenFull::Return } else { WhenFull::Wait };
            self.fetch_through((next + 1 + ahead).min(count), when_full)?;
            self.update(next)?;
        }
        Ok(())
    }

    /// Updates the next pieces for as long as that blocks on nothing, so that their slots become
    /// free early.
    pub(super) fn update_arrived_pieces(&mut self) -> Result<()> {
        while let next = self.progress.updated
            && let Some(piece) = self.pieces.get(next)
        {
            self.fetch_through(next + 1, WhenFull::Return)?;
            let has_room = match (piece.write_back, &self.buffers.sink) {
                (WriteBack::HostToDisk, Some(sink)) => sink.has_room(piece.unit),
                _ => true,
            };
            let slot = self.slot_index(next);
            if self.progress.fetched == next || !has_room || !self.slots[slot].has_arrived(self.rank) {
                return Ok(());
            }
            self.update(next)?;
        }
        Ok(())
    }

    /// Updates the next pieces, which are stored in main memory, while the rank would block on
    /// `unit`'s shard.
    pub(super) fn update_while_waiting(&mut self, unit: UnitId) -> Result<()> {
        while self.progress.updated < self.pieces.len()
            && self.buffers.sink.as_ref().is_some_and(|sink| sink.would_wait(self.rank, unit))
        {
            self.update_through(self.progress.updated + 1)?;
        }
        Ok(())
    }

    /// Issues the transfers that the first `pieces` pieces need for their update. `when_full` says
    /// what to do while earlier pieces occupy all slots.
    fn fetch_through(&mut self, pieces: usize, when_full: WhenFull) -> Result<()> {
        while self.progress.fetched < pieces {
            let free = (self.progress.fetched + 1).saturating_sub(self.slots.len());
            match when_full {
                WhenFull::Wait => {
                    self.land_through(free)?;
                    self.progress.finish(self.rank, self.slots, free)?;
                }
                WhenFull::Return => self.progress.poll(self.rank, self.slots)?,
            }
            if self.progress.finished < free {
                return Ok(());
            }
            self.fetch(self.progress.fetched)?;
            self.progress.fetched += 1;
        }
        Ok(())
    }

    /// Waits until piece number `number` has arrived, updates it, and issues what leaves it.
    fn update(&mut self, number: usize) -> Result<()> {
        self.arrive(number)?;
        let piece = &self.pieces[number];
        let begin = if self.on_cpu { Rank::begin_pass_on_cpu } else { Rank::begin_pass };
        let span = begin(self.rank, Pass::Step, piece.unit, piece.number);
        self.compute(number)?;
        self.hand_over(number)?;
        drop(span);
        self.leave(number)?;
        self.progress.updated += 1;
        Ok(())
    }

    /// Waits until the first `pieces` pieces have landed.
    fn land_through(&mut self, pieces: usize) -> Result<()> {
        while self.progress.landed < pieces {
            self.land(self.progress.landed)?;
            self.progress.landed += 1;
        }
        Ok(())
    }

    /// Returns the index of the slot of piece number `number`.
    pub(super) fn slot_index(&self, number: usize) -> usize {
        number % self.slots.len()
    }

    /// Updates piece number `number`, which has arrived.
    fn compute(&mut self, number: usize) -> Result<()> {
        let (piece, index) = (&self.pieces[number], self.slot_index(number));
        let PieceSlot { states, gradients, parameters, on_device, .. } = &mut self.slots[index];
        let gradients = match gradients {
            Some(gradients) if !self.rank.transfers.device_in_main_memory() => {
                gradients.slice(0..piece.in_slice.len())
            }
            _ => self.buffers.gradients.slice(piece.unit, piece.in_unit.clone())?,
        };
        let mut out = output_view(piece, self.buffers.parameters, parameters.held_mut(), on_device.as_mut())?;
        let shard = &mut self.units[piece.unit].states;
        let own = &shard.pieces[piece.number];
        if let Some(out) = &mut out
            && own.is_padded()
            && piece.write_back.leaves_padding(self.dtype)
        {
            self.rank.kernels().fill(out.reborrow(), 0.0)?;
        }
        let operands = operands(piece, &mut shard.states, states.held_mut(), out, gradients)?;
        own.update(self.rank, operands, self.progress.update)
    }

    /// Hands the updated parameters of piece number `number` over to the sink: a piece that is
    /// written to disk next at once, a shard in main memory with its last piece.
    fn hand_over(&mut self, number: usize) -> Result<()> {
        let (piece, index) = (&self.pieces[number], self.slot_index(number));
        let (unit, staged) = (piece.unit, self.slots[index].parameters.held());
        match (piece.write_back, &mut self.buffers.sink, staged) {
            (WriteBack::HostToDisk, Some(sink), Some(staged)) => {
                let updated = staged.slice(0..piece.in_slice.len());
                sink.accept_updated(self.rank, unit, piece.in_buffer.clone(), updated)
            }
            (WriteBack::InPlace, Some(sink), _) if piece.is_last => {
                self.progress.hands_over &= sink.has_room(unit);
                if !self.progress.hands_over {
                    return Ok(());
                }
                let shard = self.buffers.parameters.get(unit)?.view();
                sink.accept_updated(self.rank, unit, 0..piece.in_buffer.end, shard)
            }
            _ => Ok(()),
        }
    }
}

/// Returns where the update of `piece` writes its parameters: to `parameters` itself, to the
/// staging buffer `staged` in main memory, or to the buffer `on_device`. `None` if the update
/// writes master weights alone.
fn output_view<'a>(
    piece: &PagedPiece,
    parameters: &'a mut UnitBuffers,
    staged: Option<&'a mut Buffer>,
    on_device: Option<&'a mut Buffer>,
) -> Result<Option<ViewMut<'a>>> {
    let buffer = match piece.write_back {
        WriteBack::MasterToDevice => return Ok(None),
        WriteBack::InPlace | WriteBack::IntoDevice => {
            return Ok(Some(parameters.get_mut(piece.unit)?.slice_mut(piece.in_buffer.clone())));
        }
        WriteBack::HostToDevice | WriteBack::HostToDisk => staged,
        WriteBack::DeviceToHost | WriteBack::DeviceToDisk => on_device,
    };
    let buffer = buffer.ok_or(missing(piece.unit))?;
    Ok(Some(buffer.slice_mut(0..piece.in_slice.len())))
}

/// Returns the operands of `piece`'s update. Its states are stored in `stored` or have been read
/// into `staged`. `out` is where its parameters go; if there are no separate master weights, the
/// parameters are the master weights.
fn operands<'a>(
    piece: &PagedPiece,
    stored: &'a mut States,
    staged: Option<&'a mut StateBuffers>,
    out: Option<ViewMut<'a>>,
    gradients: View<'a>,
) -> Result<Operands<'a>> {
    let elements = piece.in_slice.len();
    match (stored, staged) {
        (States::Disk(_), Some([master, momentum, variance])) => Ok(Operands {
            parameters: out,
            master: master.slice_mut(0..elements),
            momentum: momentum.slice_mut(0..elements),
            variance: variance.slice_mut(0..elements),
            gradients,
        }),
        (stored, _) => stored.operands(piece.in_slice.clone(), out, gradients).ok_or(missing(piece.unit)),
    }
}
