//! The transfers of a [`Pager`]: what a piece needs for its update, and what it writes back.

use super::pager::{Pager, UpdateBuffers};
use super::piece::WriteBack;
use super::slot::{SlotParameters, StatesOnDisk, missing};
use crate::Result;
use crate::optimizer::States;
use device::{Class, DType, View};
use offload::transfers::span;
use offload::{OnDisk, TransferLabel, Transfers};

impl Pager<'_> {
    /// Issues the transfers that piece number `number` needs for its update.
    pub(super) fn fetch(&mut self, number: usize) -> Result<()> {
        let (piece, transfers, index) = (&self.pieces[number], &self.rank.transfers, self.slot_index(number));
        let (unit, elements, slot) = (piece.unit, piece.in_slice.len(), &mut self.slots[index]);
        let states = StatesOnDisk::new(piece, &self.units[unit].states.states);
        slot.move_states(self.rank, states, Transfers::read);
        if let Some(gradients) = &mut slot.gradients {
            let label = TransferLabel { class: Class::Gradients, unit };
            let from = self.buffers.gradients.slice(unit, piece.in_unit.clone())?;
            slot.incoming_copies.push(transfers.copy_or_borrow(
                label,
                gradients.slice_mut(0..elements),
                from,
            )?);
        }
        // f32 parameters are the master weights that the device updates.
        if self.dtype == DType::F32 { self.fetch_parameters(number) } else { Ok(()) }
    }

    /// Issues the copy of piece number `number`'s parameters to the device, if they are updated
    /// there.
    fn fetch_parameters(&mut self, number: usize) -> Result<()> {
        let (piece, transfers, index) = (&self.pieces[number], &self.rank.transfers, self.slot_index(number));
        let (unit, slot) = (piece.unit, &mut self.slots[index]);
        let label = TransferLabel { class: Class::Parameters, unit };
        match piece.write_back {
            WriteBack::DeviceToHost => {
                let on_device = slot.on_device.as_mut().ok_or(missing(unit))?;
                let from = self.buffers.parameters.get(unit)?.slice(piece.in_buffer.clone());
                let to = on_device.slice_mut(0..piece.in_slice.len());
                slot.incoming_copies.push(transfers.copy(label, to, from)?);
            }
            WriteBack::DeviceToDisk => {
                let (extent, size) = (self.buffers.parameters.extent(unit)?, self.dtype.size());
                let (start, bytes) =
                    (piece.in_buffer.start * size, span(&piece.in_buffer, size, piece.is_last));
                let staged = slot.parameters.take_held().ok_or(missing(unit))?;
                let read = transfers.read(OnDisk { label, extent, start, bytes }, staged);
                slot.parameters = SlotParameters::Reading(Box::new(read));
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for the transfers that [`Pager::fetch`] has issued.
    pub(super) fn arrive(&mut self, number: usize) -> Result<()> {
        let (piece, transfers, index) = (&self.pieces[number], &self.rank.transfers, self.slot_index(number));
        let (unit, slot) = (piece.unit, &mut self.slots[index]);
        let copies = std::mem::take(&mut slot.incoming_copies);
        match std::mem::take(&mut slot.parameters) {
            SlotParameters::Reading(read) => {
                let arrived = transfers.wait_staged(*read)?;
                let on_device = slot.on_device.as_mut().ok_or(missing(unit))?;
                let label = TransferLabel { class: Class::Parameters, unit };
                let to = on_device.slice_mut(0..piece.in_slice.len());
                transfers.wait(transfers.copy_to_device(label, to, &arrived)?)?;
                slot.parameters = SlotParameters::Held(arrived.buffer);
            }
            parameters => slot.parameters = parameters,
        }
        copies.into_iter().try_for_each(|copy| transfers.wait(copy))?;
        slot.wait_for_states(self.rank)
    }

    /// Issues the transfers that write an updated piece back.
    pub(super) fn leave(&mut self, number: usize) -> Result<()> {
        // The previous piece's parameters have been copied from the device and are written to disk
        // now.
        if let Some(before) = number.checked_sub(1) {
            self.write_copied(before)?;
        }
        self.write_back(number)?;
        // Before the states, since a pass reads the parameters again once they are written.
        if self.pieces[number].write_back == WriteBack::HostToDisk {
            self.write(number)?;
        }
        self.leave_states(number);
        Ok(())
    }

    /// Issues the writes of piece number `number`'s states. With exchanges, also issues the reads
    /// for the next piece that uses its slot.
    fn leave_states(&mut self, number: usize) {
        let (index, next) = (self.slot_index(number), self.pieces.get(number + self.slots.len()));
        let (piece, slot) = (&self.pieces[number], &mut self.slots[index]);
        let states_of = |piece| StatesOnDisk::new(piece, &self.units[piece.unit].states.states);
        if self.exchanges
            && let Some(next) = next
        {
            slot.exchange_states(self.rank, states_of(piece), states_of(next));
        } else {
            slot.move_states(self.rank, states_of(piece), Transfers::write);
        }
    }

    /// Issues the copy of piece number `number`'s updated parameters.
    fn write_back(&mut self, number: usize) -> Result<()> {
        let (piece, transfers, index) = (&self.pieces[number], &self.rank.transfers, self.slot_index(number));
        let (unit, elements, held) = (piece.unit, piece.in_slice.len(), piece.in_buffer.clone());
        let (slot, label) = (&mut self.slots[index], TransferLabel { class: Class::Parameters, unit });
        let parameters = &mut *self.buffers.parameters;
        let copied = |from: View<'_>| -> Result<_> {
            Ok(Some(transfers.copy(label, parameters.get_mut(unit)?.slice_mut(held), from)?))
        };
        slot.outgoing_copy = match piece.write_back {
            WriteBack::InPlace | WriteBack::HostToDisk => None,
            WriteBack::IntoDevice => {
                Some(transfers.count_in_place_write(label, elements * self.dtype.size()))
            }
            WriteBack::MasterToDevice => match (&self.units[unit].states.states, slot.states.held_mut()) {
                (States::Memory { master: Some(master), .. }, _) => {
                    copied(master.slice(piece.in_slice.clone()))?
                }
                (_, Some([master, ..])) => copied(master.slice(0..elements))?,
                _ => return Err(missing(unit)),
            },
            WriteBack::HostToDevice => {
                copied(slot.parameters.held().ok_or(missing(unit))?.slice(0..elements))?
            }
            WriteBack::DeviceToHost => {
                copied(slot.on_device.as_ref().ok_or(missing(unit))?.slice(0..elements))?
            }
            WriteBack::DeviceToDisk => {
                let from = slot.on_device.as_ref().ok_or(missing(unit))?.slice(0..elements);
                let to = slot.parameters.held_mut().ok_or(missing(unit))?.slice_mut(0..elements);
                Some(transfers.copy(label, to, from)?)
            }
        };
        Ok(())
    }

    /// Starts to write the parameters of piece number `number` from main memory to the disk.
    fn write(&mut self, number: usize) -> Result<()> {
        let (piece, index) = (&self.pieces[number], self.slot_index(number));
        let (slot, size) = (&mut self.slots[index], self.dtype.size());
        let (start, bytes) = (piece.in_buffer.start * size, span(&piece.in_buffer, size, piece.is_last));
        let extent = self.buffers.parameters.extent(piece.unit)?;
        let staged = slot.parameters.take_held().ok_or(missing(piece.unit))?;
        let label = TransferLabel { class: Class::Parameters, unit: piece.unit };
        let write = self.rank.transfers.write(OnDisk { label, extent, start, bytes }, staged);
        slot.parameters = SlotParameters::Writing(Box::new(write));
        Ok(())
    }

    /// Waits for the copy of piece number `number`'s parameters from the device, and starts to
    /// write them to disk. Does nothing if they are stored elsewhere or the write is in flight
    /// already.
    fn write_copied(&mut self, number: usize) -> Result<()> {
        if self.pieces[number].write_back != WriteBack::DeviceToDisk {
            return Ok(());
        }
        let index = self.slot_index(number);
        let Some(copy) = self.slots[index].outgoing_copy.take() else { return Ok(()) };
        self.rank.transfers.wait(copy)?;
        self.write(number)
    }

    /// Waits until the parameters of piece number `number` are on the device, if they are stored
    /// there. After the last piece of a unit, queues the unit in [`UpdateBuffers::gathers`].
    pub(super) fn land(&mut self, number: usize) -> Result<()> {
        self.write_copied(number)?;
        let (piece, index) = (&self.pieces[number], self.slot_index(number));
        let copy = self.slots[index].outgoing_copy.take();
        if let Some(copy) = copy {
            self.rank.transfers.wait(copy)?;
        }
        if piece.is_last {
            let UpdateBuffers { parameters, gathers, .. } = &mut self.buffers;
            self.units[piece.unit].gather(self.rank, piece.unit, parameters, gathers)?;
        }
        Ok(())
    }
}
