//! The buffers through which a piece travels.

use super::piece::{PagedPiece, WriteBack};
use crate::optimizer::States;
use crate::partition::UnitId;
use crate::placement::OffloadPlacement;
use crate::rank::Rank;
use crate::{Error, Result};
use device::{Buffer, Class, DType, Place};
use model::TrainingState;
use offload::{Crossing, Extent, OnDisk, Staged, TransferLabel, Transfers, paged};

/// Master weights, momentum and variance of one piece.
pub(super) type StateBuffers = [Buffer; TrainingState::ALL.len()];

/// The states of a piece, stored on disk.
pub(super) struct StatesOf<'a> {
    piece: &'a PagedPiece,
    extents: &'a [Extent; TrainingState::ALL.len()],
}

impl<'a> StatesOf<'a> {
    /// Returns the states of `piece`; `None` if they are stored in memory.
    pub(super) fn new(piece: &'a PagedPiece, states: &'a States) -> Option<Self> {
        match states {
            States::Disk(extents) => Some(StatesOf { piece, extents: &extents[piece.number] }),
            States::Memory { .. } => None,
        }
    }

    fn on_disk(&self, number: usize) -> OnDisk<'a> {
        let label = TransferLabel { class: Class::Optimizer, unit: self.piece.unit };
        OnDisk { label, extent: &self.extents[number], bytes: paged(4 * self.piece.in_slice.len()) }
    }
}

/// Starts a transfer between a buffer and an extent. The numbers are the extent's first byte and
/// the number of bytes.
pub(super) type Start = fn(&Transfers, TransferLabel, &Extent, usize, Buffer, usize) -> Staged;

/// The buffers of one piece in flight. A buffer is `None` while a transfer holds it, or if it is
/// not needed.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) states: Option<StateBuffers>,
    /// Writes of states, after each of which the next piece's states are read.
    pub(super) rewritten: Vec<Staged<()>>,
    /// Reads of states, and writes without a read after them.
    pub(super) moving: Vec<Staged>,
    /// Gradients from the device. A CPU device leaves this buffer unused; it is allocated anyway,
    /// so that every device needs the same memory.
    pub(super) gradients: Option<Buffer>,
    /// Parameters in main memory.
    pub(super) parameters: Option<Buffer>,
    /// Parameters on the device.
    pub(super) on_device: Option<Buffer>,
    /// Parameters that are being read for the update.
    pub(super) incoming_parameters: Option<Staged>,
    /// Gradients and parameters that are being copied for the update.
    pub(super) incoming_copies: Vec<Crossing>,
    /// Updated parameters that are being written.
    pub(super) outgoing_parameters: Option<Staged>,
    /// Updated parameters that are being copied.
    pub(super) outgoing_copy: Option<Crossing>,
}

impl Slot {
    /// Allocates one slot: each buffer has room for the largest of the `pieces` that need it.
    /// `gradients` are the gradients' element type and place; parameters have the type `dtype`.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(super) fn new(
        rank: &Rank,
        placement: OffloadPlacement,
        pieces: &[PagedPiece],
        gradients: (DType, Place),
        dtype: DType,
    ) -> Result<Self> {
        let (device, transfers) = (&rank.device, &rank.transfers);
        let largest = |needs: &dyn Fn(WriteBack) -> bool| {
            pieces.iter().filter(|piece| needs(piece.write_back)).map(|piece| piece.in_slice.len()).max()
        };
        let mut slot = Slot::default();
        let all = largest(&|_| true).unwrap_or(0);
        if placement.optimizer == Place::Disk {
            let state = || transfers.staging(DType::F32, all);
            slot.states = Some([state()?, state()?, state()?]);
        }
        if let (dtype, Place::Device) = gradients
            && placement.optimizer != Place::Device
        {
            slot.gradients = Some(device.allocate_host(Class::Workspace, dtype, all)?);
        }
        if let Some(elements) = largest(&|write_back| write_back.has_host_staging(dtype)) {
            slot.parameters = Some(match placement.parameters {
                Place::Disk => transfers.staging(dtype, elements)?,
                _ => device.allocate_host(Class::Workspace, dtype, elements)?,
            });
        }
        if let Some(elements) = largest(&WriteBack::visits_device) {
            slot.on_device = Some(device.allocate(Class::Workspace, dtype, elements)?);
        }
        Ok(slot)
    }

    /// Starts to move a piece's states between these buffers and the disk with `start`, which is
    /// [`Transfers::read`] or [`Transfers::write`]. Does nothing if that has begun or the states
    /// are stored in memory.
    pub(super) fn move_states(&mut self, rank: &Rank, of: Option<StatesOf<'_>>, start: Start) {
        let (Some(of), Some(states)) = (of, self.states.take()) else { return };
        let start = |(number, buffer)| {
            let OnDisk { label, extent, bytes } = of.on_disk(number);
            start(&rank.transfers, label, extent, 0, buffer, bytes)
        };
        self.moving = states.into_iter().enumerate().map(start).collect();
    }

    /// Starts to write the states of `leaving` to disk, and then to read those of `coming` into the
    /// same buffers.
    pub(super) fn exchange_states(
        &mut self,
        rank: &Rank,
        leaving: Option<StatesOf<'_>>,
        coming: Option<StatesOf<'_>>,
    ) {
        let (Some(leaving), Some(coming), Some(states)) = (leaving, coming, self.states.take()) else {
            return;
        };
        for (number, buffer) in states.into_iter().enumerate() {
            let [to, from] = [&leaving, &coming].map(|states| states.on_disk(number));
            let (written, read) = rank.transfers.write_then_read(to, from, buffer);
            self.rewritten.push(written);
            self.moving.push(read);
        }
    }

    /// True if [`Slot::wait_until_written`] would not block.
    pub(super) fn is_written(&mut self, rank: &Rank) -> bool {
        if !self.has_written_parameters(rank) {
            return false;
        }
        if self.rewritten.is_empty() {
            return self.has_moved(rank);
        }
        self.rewritten.iter_mut().all(|states| rank.transfers.is_done(states))
    }

    /// True if [`Slot::wait_for_parameters`] would not block.
    pub(super) fn has_written_parameters(&mut self, rank: &Rank) -> bool {
        let parameters = self.outgoing_parameters.as_mut();
        parameters.is_none_or(|parameters| rank.transfers.is_done(parameters))
    }

    /// True if [`Slot::wait_for_states`] would not block.
    fn has_moved(&mut self, rank: &Rank) -> bool {
        self.moving.iter_mut().all(|states| rank.transfers.is_done(states))
    }

    /// True if the states and gradients that the CPU needs for its update have arrived.
    pub(super) fn has_arrived(&mut self, rank: &Rank) -> bool {
        self.has_moved(rank) && self.incoming_copies.iter().all(|copy| rank.transfers.has_crossed(copy))
    }

    /// Waits until the slot's piece has been written to disk.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn wait_until_written(&mut self, rank: &Rank) -> Result<()> {
        self.wait_for_parameters(rank)?;
        if self.rewritten.is_empty() {
            return self.wait_for_states(rank);
        }
        self.rewritten.drain(..).try_for_each(|states| Ok(rank.transfers.wait_written(states)?))
    }

    /// Waits until the parameters of the slot's piece have been written to disk.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn wait_for_parameters(&mut self, rank: &Rank) -> Result<()> {
        if let Some(parameters) = self.outgoing_parameters.take() {
            self.parameters = Some(rank.transfers.wait_staged(parameters)?.buffer);
        }
        Ok(())
    }

    /// Waits for states that are being read or written.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn wait_for_states(&mut self, rank: &Rank) -> Result<()> {
        let moved = std::mem::take(&mut self.moving).into_iter();
        // After the first error, the others are not waited for.
        let moved =
            moved.map(|state| Ok(rank.transfers.wait_staged(state)?.buffer)).collect::<Result<Vec<_>>>()?;
        if let Ok(states) = StateBuffers::try_from(moved) {
            self.states = Some(states);
        }
        Ok(())
    }
}

pub(super) fn missing(unit: UnitId) -> Error {
    Error::NoBuffer { unit, what: "staging buffer" }
}
