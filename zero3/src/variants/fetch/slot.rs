//! The buffers through which one shard is fetched.

use device::{Buffer, Class, DType, Place};
use offload::{Crossing, DiskTransfer, OnDisk, TransferLabel};
use sharding::{Error, Rank, Result, Storage, UnitBuffers, UnitId};

/// Buffers for one shard. A CPU device reads a shard where it is stored in main memory, or from
/// `staging`, and leaves `buffer` unused; it is allocated anyway, so that every device needs the
/// same memory.
pub(super) struct FetchSlot {
    pub(super) buffer: Buffer,
    /// A buffer in main memory for a shard from disk; `None` while a read fills it.
    pub(super) staging: Option<Buffer>,
    pub(super) state: SlotState,
}

/// What a slot is used for.
pub(super) enum SlotState {
    Empty,
    /// An update writes the shard to the slot, piece by piece.
    Filling(UnitId),
    /// The shard is read from disk.
    Reading(UnitId, Box<DiskTransfer>),
    /// The shard is copied to the device.
    Copying(UnitId, Crossing),
    /// Forward has gathered the shard. Backward gathers it again unless the slot is reused first.
    Retained(UnitId),
}

impl FetchSlot {
    /// Allocates a slot for shards of up to `elements` elements that are stored in `place`.
    pub(super) fn new(rank: &Rank, place: Place, dtype: DType, elements: usize) -> Result<FetchSlot> {
        let buffer = rank.device.allocate(Class::Workspace, dtype, elements)?;
        let staging = (place == Place::Disk).then(|| rank.transfers.staging(dtype, elements)).transpose()?;
        Ok(FetchSlot { buffer, staging, state: SlotState::Empty })
    }

    /// Returns the unit that the slot is assigned to.
    pub(super) fn unit(&self) -> Option<UnitId> {
        match self.state {
            SlotState::Filling(unit)
            | SlotState::Reading(unit, _)
            | SlotState::Copying(unit, _)
            | SlotState::Retained(unit) => Some(unit),
            SlotState::Empty => None,
        }
    }

    /// Returns the buffer from which the device reads a shard that is stored in `storage`.
    pub(super) fn shard<'a>(&'a self, rank: &Rank, storage: Option<&'a Storage>) -> &'a Buffer {
        if !rank.transfers.device_in_main_memory() {
            return &self.buffer;
        }
        match storage {
            Some(Storage::Buffer(shard)) => shard,
            _ => self.staging.as_ref().unwrap_or(&self.buffer),
        }
    }

    /// Empties the slot if it retains a shard that is not `wanted`.
    pub(super) fn release_unless(&mut self, wanted: &[UnitId]) {
        if matches!(self.state, SlotState::Retained(_)) && self.is_available(wanted) {
            self.state = SlotState::Empty;
        }
    }

    /// True if the slot may be assigned to another shard: it is empty, or retains a shard that is
    /// not `wanted`.
    pub(super) fn is_available(&self, wanted: &[UnitId]) -> bool {
        match self.state {
            SlotState::Empty => true,
            SlotState::Retained(unit) => !wanted.contains(&unit),
            SlotState::Filling(_) | SlotState::Reading(..) | SlotState::Copying(..) => false,
        }
    }

    /// Empties the slot, and discards a shard in flight to it.
    pub(super) fn clear(&mut self, rank: &Rank) -> Result<()> {
        if let SlotState::Reading(_, staged) = std::mem::replace(&mut self.state, SlotState::Empty) {
            self.staging = Some(rank.transfers.discard(*staged)?);
        }
        Ok(())
    }

    /// Starts to fetch `unit`'s shard from where it is stored.
    pub(super) fn start(&mut self, unit: UnitId, rank: &Rank, parameters: &UnitBuffers) -> Result<()> {
        let label = TransferLabel { class: Class::Parameters, unit };
        self.state = match parameters.storage(unit).ok_or(Error::Missing { unit, what: "parameters" })? {
            Storage::Buffer(shard) => {
                let out = self.buffer.slice_mut(0..shard.len());
                SlotState::Copying(unit, rank.transfers.copy_or_borrow(label, out, shard.view())?)
            }
            Storage::Disk(extent, _) => {
                let no_buffer = Error::NoBuffer { unit, what: "staging buffer" };
                let staging = self.staging.take().ok_or(no_buffer)?;
                let from = OnDisk::first(label, extent, extent.bytes());
                let read = rank.transfers.read(from, staging);
                SlotState::Reading(unit, Box::new(read))
            }
        };
        Ok(())
    }

    /// Waits until the shard of `elements` elements is on the device.
    pub(super) fn arrive(&mut self, elements: usize, rank: &Rank) -> Result<()> {
        match std::mem::replace(&mut self.state, SlotState::Empty) {
            SlotState::Copying(_, crossing) => rank.transfers.wait(crossing)?,
            SlotState::Reading(unit, staged) => {
                let arrived = rank.transfers.wait_staged(*staged)?;
                let label = TransferLabel { class: Class::Parameters, unit };
                let out = self.buffer.slice_mut(0..elements);
                let shard = arrived.buffer.slice(0..elements);
                rank.transfers.wait(rank.transfers.copy_or_borrow_since(
                    arrived.complete,
                    label,
                    out,
                    shard,
                )?)?;
                self.staging = Some(arrived.buffer);
            }
            SlotState::Empty | SlotState::Filling(_) | SlotState::Retained(_) => {}
        }
        Ok(())
    }
}
