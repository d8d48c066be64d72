//! The buffers through which a piece travels.

use super::piece::{PagedPiece, WriteBack};
use crate::optimizer::States;
use crate::partition::UnitId;
use crate::placement::OffloadPlacement;
use crate::rank::Rank;
use crate::{Error, Result};
use device::{Buffer, Class, DType, Place};
use model::TrainingState;
use offload::{Crossing, DiskTransfer, Extent, OnDisk, TransferLabel, Transfers, paged};

/// Master weights, momentum and variance of one piece.
pub(super) type StateBuffers = [Buffer; TrainingState::ALL.len()];

/// The states of a piece, stored on disk.
pub(super) struct StatesOnDisk<'a> {
    piece: &'a PagedPiece,
    extents: &'a [Extent; TrainingState::ALL.len()],
}

impl<'a> StatesOnDisk<'a> {
    /// Returns the states of `piece`; `None` if they are stored in memory.
    pub(super) fn new(piece: &'a PagedPiece, states: &'a States) -> Option<Self> {
        match states {
            States::Disk(extents) => Some(StatesOnDisk { piece, extents: &extents[piece.number] }),
            States::Memory { .. } => None,
        }
    }

    fn on_disk(&self, number: usize) -> OnDisk<'a> {
        let label = TransferLabel { class: Class::Optimizer, unit: self.piece.unit };
        OnDisk::first(label, &self.extents[number], paged(4 * self.piece.in_slice.len()))
    }
}

/// Starts a transfer between a buffer and the disk.
pub(super) type Start = fn(&Transfers, OnDisk<'_>, Buffer) -> DiskTransfer;

/// The states of a slot's piece, if states are stored on disk.
#[derive(Default)]
pub(super) enum SlotStates {
    /// The slot has no buffers for them: they are stored in memory, or a transfer has failed.
    #[default]
    Absent,
    /// In these buffers, which are also there while no piece uses the slot.
    Held(Box<StateBuffers>),
    /// Being read, or being written without a read after that.
    Moving(Vec<DiskTransfer>),
    /// Being written. Each buffer is then filled with a state of the next piece that uses the slot.
    Exchanging { writes: Vec<DiskTransfer<()>>, reads: Vec<DiskTransfer> },
}

impl SlotStates {
    /// Returns the buffers, to update; `None` while transfers hold them.
    pub(super) fn held_mut(&mut self) -> Option<&mut StateBuffers> {
        if let SlotStates::Held(buffers) = self { Some(buffers) } else { None }
    }

    /// Takes the buffers out; `None` while transfers hold them.
    fn take_held(&mut self) -> Option<StateBuffers> {
        match std::mem::take(self) {
            SlotStates::Held(buffers) => Some(*buffers),
            states => {
                *self = states;
                None
            }
        }
    }

    /// True if no write of the slot's piece is in flight.
    fn are_written(&mut self, rank: &Rank) -> bool {
        match self {
            SlotStates::Absent | SlotStates::Held(_) => true,
            SlotStates::Moving(moves) => moves.iter_mut().all(|staged| rank.transfers.is_done(staged)),
            SlotStates::Exchanging { writes, .. } => {
                writes.iter_mut().all(|staged| rank.transfers.is_done(staged))
            }
        }
    }

    /// True if no read for the slot's piece is in flight.
    fn have_arrived(&mut self, rank: &Rank) -> bool {
        match self {
            SlotStates::Absent | SlotStates::Held(_) => true,
            SlotStates::Moving(moves) | SlotStates::Exchanging { reads: moves, .. } => {
                moves.iter_mut().all(|staged| rank.transfers.is_done(staged))
            }
        }
    }
}

/// The parameters of a slot's piece in main memory.
#[derive(Default)]
pub(super) enum SlotParameters {
    /// The slot has no buffer for them: none is needed, or a transfer has failed.
    #[default]
    Absent,
    /// In this buffer, which is also there while no piece uses the slot.
    Held(Buffer),
    /// Being read from disk for the update.
    Reading(Box<DiskTransfer>),
    /// Being written to disk after the update.
    Writing(Box<DiskTransfer>),
}

impl SlotParameters {
    /// Returns the buffer, to read; `None` while a transfer holds it.
    pub(super) fn held(&self) -> Option<&Buffer> {
        if let SlotParameters::Held(buffer) = self { Some(buffer) } else { None }
    }

    /// Returns the buffer, to write; `None` while a transfer holds it.
    pub(super) fn held_mut(&mut self) -> Option<&mut Buffer> {
        if let SlotParameters::Held(buffer) = self { Some(buffer) } else { None }
    }

    /// Takes the buffer out; `None` while a transfer holds it.
    pub(super) fn take_held(&mut self) -> Option<Buffer> {
        match std::mem::take(self) {
            SlotParameters::Held(buffer) => Some(buffer),
            parameters => {
                *self = parameters;
                None
            }
        }
    }
}

/// The buffers of one piece in flight. Transfers to and from the disk hold their buffers; copies to
/// and from the device leave them here.
#[derive(Default)]
pub(super) struct PieceSlot {
    pub(super) states: SlotStates,
    /// Gradients from the device. A CPU device leaves this buffer unused; it is allocated anyway,
    /// so that every device needs the same memory.
    pub(super) gradients: Option<Buffer>,
    pub(super) parameters: SlotParameters,
    /// Parameters on the device.
    pub(super) on_device: Option<Buffer>,
    /// Gradients and parameters that are being copied for the update.
    pub(super) incoming_copies: Vec<Crossing>,
    /// Updated parameters that are being copied.
    pub(super) outgoing_copy: Option<Crossing>,
}

impl PieceSlot {
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
        let mut slot = PieceSlot::default();
        let all = largest(&|_| true).unwrap_or(0);
        if placement.optimizer == Place::Disk {
            let state = || transfers.staging(DType::F32, all);
            slot.states = SlotStates::Held(Box::new([state()?, state()?, state()?]));
        }
        if let (dtype, Place::Device) = gradients
            && placement.optimizer != Place::Device
        {
            slot.gradients = Some(device.allocate_host(Class::Workspace, dtype, all)?);
        }
        if let Some(elements) = largest(&|write_back| write_back.has_host_staging(dtype)) {
            slot.parameters = SlotParameters::Held(match placement.parameters {
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
    pub(super) fn move_states(&mut self, rank: &Rank, states: Option<StatesOnDisk<'_>>, start: Start) {
        let Some(states) = states else { return };
        let Some(buffers) = self.states.take_held() else { return };
        let start = |(number, buffer)| start(&rank.transfers, states.on_disk(number), buffer);
        self.states = SlotStates::Moving(buffers.into_iter().enumerate().map(start).collect());
    }

    /// Starts to write the states of `outgoing` to disk, and then to read those of `incoming` into
    /// the same buffers.
    pub(super) fn exchange_states(
        &mut self,
        rank: &Rank,
        outgoing: Option<StatesOnDisk<'_>>,
        incoming: Option<StatesOnDisk<'_>>,
    ) {
        let (Some(outgoing), Some(incoming)) = (outgoing, incoming) else { return };
        let Some(states) = self.states.take_held() else { return };
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for (number, buffer) in states.into_iter().enumerate() {
            let [to, from] = [&outgoing, &incoming].map(|states| states.on_disk(number));
            let (written, read) = rank.transfers.write_then_read(to, from, buffer);
            writes.push(written);
            reads.push(read);
        }
        self.states = SlotStates::Exchanging { writes, reads };
    }

    /// True if [`PieceSlot::wait_until_written`] would not block.
    pub(super) fn is_written(&mut self, rank: &Rank) -> bool {
        self.has_written_parameters(rank) && self.states.are_written(rank)
    }

    /// True if [`PieceSlot::wait_for_parameters`] would not block.
    pub(super) fn has_written_parameters(&mut self, rank: &Rank) -> bool {
        match &mut self.parameters {
            SlotParameters::Writing(staged) => rank.transfers.is_done(staged),
            SlotParameters::Absent | SlotParameters::Held(_) | SlotParameters::Reading(_) => true,
        }
    }

    /// True if the states and gradients that the CPU needs for its update have arrived.
    pub(super) fn has_arrived(&mut self, rank: &Rank) -> bool {
        self.states.have_arrived(rank)
            && self.incoming_copies.iter().all(|copy| rank.transfers.has_crossed(copy))
    }

    /// Waits until the slot's piece has been written to disk.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn wait_until_written(&mut self, rank: &Rank) -> Result<()> {
        self.wait_for_parameters(rank)?;
        match std::mem::take(&mut self.states) {
            SlotStates::Exchanging { writes, reads } => {
                self.states = SlotStates::Moving(reads);
                writes.into_iter().try_for_each(|states| Ok(rank.transfers.wait_written(states)?))
            }
            states => {
                self.states = states;
                self.wait_for_states(rank)
            }
        }
    }

    /// Waits until the parameters of the slot's piece have been written to disk.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn wait_for_parameters(&mut self, rank: &Rank) -> Result<()> {
        match std::mem::take(&mut self.parameters) {
            SlotParameters::Writing(staged) => {
                self.parameters = SlotParameters::Held(rank.transfers.wait_staged(*staged)?.buffer);
            }
            parameters => self.parameters = parameters,
        }
        Ok(())
    }

    /// Waits for states that are being read or written, but not exchanged: for these,
    /// [`PieceSlot::wait_until_written`] comes first.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn wait_for_states(&mut self, rank: &Rank) -> Result<()> {
        let moves = match std::mem::take(&mut self.states) {
            SlotStates::Moving(moves) => moves.into_iter(),
            states => {
                self.states = states;
                return Ok(());
            }
        };
        // After the first error, the others are not waited for.
        let moved =
            moves.map(|state| Ok(rank.transfers.wait_staged(state)?.buffer)).collect::<Result<Vec<_>>>()?;
        if let Ok(states) = StateBuffers::try_from(moved) {
            self.states = SlotStates::Held(Box::new(states));
        }
        Ok(())
    }
}

pub(super) fn missing(unit: UnitId) -> Error {
    Error::NoBuffer { unit, what: "staging buffer" }
}
