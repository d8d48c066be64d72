//! The buffers through which a piece travels.

use super::ReadAhead;
use super::piece::{PagedPiece, WriteBack};
use crate::full::UnitBuffers;
use crate::partition::UnitId;
use crate::places::Places;
use crate::rank::Rank;
use crate::{Error, Result};
use device::{Buffer, Class, DType, Place};
use model::TrainingState;
use offload::{Crossing, Staged};

/// Master weights, momentum and variance of one piece.
pub(super) type StateBuffers = [Buffer; TrainingState::ALL.len()];

/// The buffers of one piece on its way, each present unless it travels or is not needed.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) states: Option<StateBuffers>,
    pub(super) gradients: Option<Buffer>,
    /// Parameters in main memory.
    pub(super) parameters: Option<Buffer>,
    /// Parameters on the device.
    pub(super) on_device: Option<Buffer>,
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
}

/// What is on its way to a piece's update.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) states: Vec<Staged>,
    pub(super) parameters: Option<Staged>,
    pub(super) copies: Vec<Crossing>,
}

/// What is on its way from it.
#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) states: Vec<Staged>,
    pub(super) parameters: Option<Staged>,
    pub(super) copy: Option<Crossing>,
}

impl Slot {
    /// Allocates one slot: each buffer has room for the largest of the `pieces` that need it.
    /// States that were read `ahead` have buffers.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) fn new(
        rank: &Rank,
        places: Places,
        pieces: &[PagedPiece],
        (gradients, dtype): (&UnitBuffers, DType),
        ahead: Option<ReadAhead>,
    ) -> Result<Self> {
        let (device, transfers) = (&rank.device, &rank.transfers);
        let largest = |needs: &dyn Fn(WriteBack) -> bool| {
            pieces.iter().filter(|piece| needs(piece.write_back)).map(|piece| piece.own.len()).max()
        };
        let mut slot = Slot::default();
        let all = largest(&|_| true).unwrap_or(0);
        if let Some(states) = ahead {
            slot.incoming.states = states;
        } else if places.optimizer == Place::Disk {
            let state = || transfers.staging(DType::F32, all);
            slot.states = Some([state()?, state()?, state()?]);
        }
        let gradients = gradients.get(0)?;
        if places.optimizer != Place::Device && gradients.place() == Place::Device {
            slot.gradients = Some(device.allocate_host(Class::Workspace, gradients.dtype(), all)?);
        }
        if let Some(elements) = largest(&|write_back| write_back.has_host_staging(dtype)) {
            slot.parameters = Some(match places.parameters {
                Place::Disk => transfers.staging(dtype, elements)?,
                _ => device.allocate_host(Class::Workspace, dtype, elements)?,
            });
        }
        if let Some(elements) = largest(&WriteBack::visits_device) {
            slot.on_device = Some(device.allocate(Class::Workspace, dtype, elements)?);
        }
        Ok(slot)
    }
}

/// Waits for the states of a piece of `unit`, and gives their buffers back.
///
/// # Errors
/// The file system's.
pub(super) fn wait_for_states(rank: &Rank, states: Vec<Staged>, unit: UnitId) -> Result<StateBuffers> {
    let arrived = states.into_iter().map(|state| rank.transfers.settle(state));
    let buffers = arrived.map(|state| Ok(state?.buffer)).collect::<Result<Vec<_>>>()?;
    buffers.try_into().map_err(|_| missing(unit))
}

pub(super) fn missing(unit: UnitId) -> Error {
    Error::Missing { unit, what: "a staging buffer" }
}
