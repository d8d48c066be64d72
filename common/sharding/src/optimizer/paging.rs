//! An update of what rests beyond the device, piece by piece: while one piece is updated, the next
//! arrives and the last leaves.
//!
//! What rests in main memory stays there, and the CPU updates it in place. What rests on disk
//! visits main memory, gradients on the device come to it, and updated parameters return. With
//! parameters away alone the update stays on the device, and parameters visit that.

use super::{Operands, OwnSlice, Piece, ReadAhead, ScaledUpdate, States};
use crate::full::UnitBuffers;
use crate::partition::UnitId;
use crate::places::Places;
use crate::rank::Rank;
use crate::{Buckets, Error, Result};
use device::{Buffer, Class, DType, Place};
use events::Pass;
use model::TrainingState;
use offload::transfers::span;
use offload::{Cargo, Crossing, Staged, paged};
use std::ops::Range;

/// A piece of a unit.
#[derive(Clone, Copy)]
struct At {
    unit: UnitId,
    number: usize,
}

/// The buffers of one piece on its way, each present unless it travels or is not needed.
#[derive(Default)]
struct Slot {
    states: Option<[Buffer; TrainingState::ALL.len()]>,
    gradients: Option<Buffer>,
    parameters: Option<Buffer>,
    on_device: Option<Buffer>,
    coming: Coming,
    leaving: Leaving,
}

/// What is on its way to a piece's update.
#[derive(Default)]
struct Coming {
    states: Vec<Staged>,
    parameters: Option<Staged>,
    crossings: Vec<Crossing>,
}

/// What is on its way from it.
#[derive(Default)]
struct Leaving {
    piece: Option<At>,
    states: Vec<Staged>,
    parameters: Option<Staged>,
    crossing: Option<Crossing>,
    /// Whether the parameters go on to the disk once they have crossed.
    to_disk: bool,
}

/// One paged update.
pub(super) struct Pager<'a> {
    rank: &'a Rank,
    places: Places,
    units: &'a mut [OwnSlice],
    parameters: &'a mut UnitBuffers,
    gradients: &'a UnitBuffers,
    update: ScaledUpdate,
    pieces: Vec<At>,
    slots: Vec<Slot>,
}

impl<'a> Pager<'a> {
    /// Allocates the staging buffers; those of the states that were read `ahead` exist.
    ///
    /// # Errors
    /// If there is no room for them.
    pub(super) fn new(
        rank: &'a Rank,
        places: Places,
        units: &'a mut [OwnSlice],
        (parameters, gradients): (&'a mut UnitBuffers, &'a UnitBuffers),
        update: ScaledUpdate,
        ahead: Vec<ReadAhead>,
    ) -> Result<Self> {
        let at = |(unit, own): (UnitId, &OwnSlice)| {
            (0..own.states.pieces.len()).map(move |number| At { unit, number })
        };
        let pieces: Vec<At> = units.iter().enumerate().flat_map(at).collect();
        let slots = places.buffers.min(pieces.len());
        let mut pager =
            Pager { rank, places, units, parameters, gradients, update, pieces, slots: Vec::new() };
        let mut ahead = ahead.into_iter();
        pager.slots = (0..slots).map(|_| pager.slot(ahead.next())).collect::<Result<_>>()?;
        Ok(pager)
    }

    /// Updates all pieces. A unit goes through `gathers` once the last of its pieces is back.
    pub(super) fn run(mut self, gathers: &mut Option<&mut Buckets>) -> Result<()> {
        // One buffer is updated, and from three on one leaves; the others arrive.
        let ahead = match self.slots.len() {
            0 | 1 => 0,
            2 => 1,
            slots => slots - 2,
        };
        let mut issued = 0;
        for next in 0..self.pieces.len() {
            while issued <= (next + ahead).min(self.pieces.len() - 1) {
                self.free(issued, gathers)?;
                self.fetch(issued)?;
                issued += 1;
            }
            self.arrive(next)?;
            self.compute(next)?;
            self.leave(next)?;
        }
        for next in self.pieces.len()..self.pieces.len() + self.slots.len() {
            self.free(next, gathers)?;
        }
        Ok(())
    }

    fn piece(&self, At { unit, number }: At) -> &Piece {
        &self.units[unit].states.pieces[number]
    }

    /// The elements of the unit that a piece has.
    fn range(&self, at: At) -> Range<usize> {
        let (start, piece) = (self.units[at.unit].slice.start, &self.piece(at).range);
        start + piece.start..start + piece.end
    }

    fn is_last(&self, at: At) -> bool {
        at.number + 1 == self.units[at.unit].states.pieces.len()
    }

    /// Where a unit's parameters rest.
    fn home(&self, unit: UnitId) -> Place {
        self.parameters.place(unit).unwrap_or(Place::Device)
    }

    fn on_cpu(&self) -> bool {
        self.places.optimizer != Place::Device
    }

    /// Whether the CPU's update writes a unit's parameters where they rest on the device, since that
    /// lies in main memory: the copy that would follow would be of the same memory.
    fn writes_device(&self, unit: UnitId) -> bool {
        self.on_cpu() && self.home(unit) == Place::Device && self.rank.device.gpu().is_none()
    }

    /// Whether a unit's parameters leave their update through a buffer in main memory. A CPU device
    /// does not need it, and has it so that every device takes the same main memory.
    fn stages_parameters(&self, unit: UnitId, dtype: DType) -> bool {
        match self.home(unit) {
            Place::Device => self.on_cpu() && dtype != DType::F32,
            Place::Host => false,
            Place::Disk => true,
        }
    }

    /// The buffers of one slot, each with room for the largest piece of the units that need it.
    fn slot(&self, ahead: Option<ReadAhead>) -> Result<Slot> {
        let (device, transfers) = (&self.rank.device, &self.rank.transfers);
        let largest = |needs: &dyn Fn(UnitId) -> bool| {
            let needed = self.pieces.iter().filter(|at| needs(at.unit));
            needed.map(|&at| self.piece(at).range.len()).max()
        };
        let mut slot = Slot::default();
        let all = largest(&|_| true).unwrap_or(0);
        if let Some(states) = ahead {
            slot.coming.states = states;
        } else if self.places.optimizer == Place::Disk {
            let state = || transfers.staging(DType::F32, all);
            slot.states = Some([state()?, state()?, state()?]);
        }
        let gradients = self.gradients.get(0)?;
        if self.on_cpu() && gradients.place() == Place::Device {
            slot.gradients = Some(device.allocate_host(Class::Workspace, gradients.dtype(), all)?);
        }
        let dtype = self.parameters.dtype(0);
        if let Some(elements) = largest(&|unit| self.stages_parameters(unit, dtype)) {
            slot.parameters = Some(match self.places.parameters {
                Place::Disk => transfers.staging(dtype, elements)?,
                _ => device.allocate_host(Class::Workspace, dtype, elements)?,
            });
        }
        let visits = |unit| !self.on_cpu() && self.home(unit) != Place::Device;
        if let Some(elements) = largest(&visits) {
            slot.on_device = Some(device.allocate(Class::Workspace, dtype, elements)?);
        }
        Ok(slot)
    }

    /// Issues what piece number `next` needs for its update.
    fn fetch(&mut self, next: usize) -> Result<()> {
        let at = self.pieces[next];
        let (range, elements) = (self.range(at), self.piece(at).range.len());
        let within = self.parameters.within(at.unit, range.clone());
        let (home, on_cpu, last) = (self.home(at.unit), self.on_cpu(), self.is_last(at));
        let (transfers, index) = (&self.rank.transfers, next % self.slots.len());
        let slot = &mut self.slots[index];
        if let (States::Disk(extents), Some(states)) =
            (&self.units[at.unit].states.states, slot.states.take())
        {
            let cargo = Cargo { class: Class::Optimizer, unit: at.unit };
            let read = |(state, extent)| transfers.read(cargo, extent, 0, state, paged(4 * elements));
            slot.coming.states = states.into_iter().zip(&extents[at.number]).map(read).collect();
        }
        if let Some(gradients) = &mut slot.gradients {
            let cargo = Cargo { class: Class::Gradients, unit: at.unit };
            let from = self.gradients.slice(at.unit, range)?;
            slot.coming.crossings.push(transfers.copy(cargo, gradients.slice_mut(0..elements), from)?);
        }
        let dtype = self.parameters.dtype(at.unit);
        if on_cpu || home == Place::Device || dtype != DType::F32 {
            return Ok(());
        }
        // The parameters, f32, are the master weights that the device updates.
        let cargo = Cargo { class: Class::Parameters, unit: at.unit };
        if home == Place::Disk {
            let (extent, bytes) = (self.parameters.extent(at.unit)?, span(&within, dtype.size(), last));
            let staged = slot.parameters.take().ok_or(missing(at.unit))?;
            slot.coming.parameters =
                Some(transfers.read(cargo, extent, within.start * dtype.size(), staged, bytes));
        } else {
            let on_device = slot.on_device.as_mut().ok_or(missing(at.unit))?;
            let from = self.parameters.get(at.unit)?.slice(within);
            slot.coming.crossings.push(transfers.copy(cargo, on_device.slice_mut(0..elements), from)?);
        }
        Ok(())
    }

    /// Waits for what [`Pager::fetch`] has issued.
    fn arrive(&mut self, next: usize) -> Result<()> {
        let at = self.pieces[next];
        let elements = self.piece(at).range.len();
        let (transfers, index) = (&self.rank.transfers, next % self.slots.len());
        let slot = &mut self.slots[index];
        let Coming { states, parameters, crossings } = std::mem::take(&mut slot.coming);
        if let Some(parameters) = parameters {
            let arrived = transfers.settle(parameters)?;
            let on_device = slot.on_device.as_mut().ok_or(missing(at.unit))?;
            let cargo = Cargo { class: Class::Parameters, unit: at.unit };
            transfers.wait(transfers.forward(cargo, on_device.slice_mut(0..elements), &arrived)?)?;
            slot.parameters = Some(arrived.buffer);
        }
        crossings.into_iter().try_for_each(|crossing| transfers.wait(crossing))?;
        if !states.is_empty() {
            slot.states = Some(settled(self.rank, states, at.unit)?);
        }
        Ok(())
    }

    /// Updates a piece that is here.
    fn compute(&mut self, next: usize) -> Result<()> {
        let at = self.pieces[next];
        let _bracket = self.rank.bracket(Pass::Step, at.unit, at.number);
        let (range, home, on_cpu) = (self.range(at), self.home(at.unit), self.on_cpu());
        let within = self.parameters.within(at.unit, range.clone());
        let dtype = self.parameters.dtype(at.unit);
        let direct = self.writes_device(at.unit);
        let returns_master = on_cpu && home == Place::Device && dtype == DType::F32 && !direct;
        let index = next % self.slots.len();
        let Slot { states, gradients, parameters, on_device, .. } = &mut self.slots[index];
        let shard = &mut self.units[at.unit].states;
        let piece = &shard.pieces[at.number];
        let (own, elements) = (piece.range.clone(), piece.range.len());
        let gradients = match gradients {
            Some(gradients) => gradients.slice(0..elements),
            None => self.gradients.slice(at.unit, range)?,
        };
        // Where the updated parameters go, or where they are, if they are f32 and no others are.
        let mut out = if returns_master {
            None
        } else if let Some(staged) = on_device.as_mut().filter(|_| home != Place::Device) {
            Some(staged.slice_mut(0..elements))
        } else if let Some(staged) = parameters.as_mut().filter(|_| on_cpu && home != Place::Host && !direct)
        {
            Some(staged.slice_mut(0..elements))
        } else {
            Some(self.parameters.get_mut(at.unit)?.slice_mut(within))
        };
        let stays = home == Place::Host && on_cpu || home == Place::Device && !on_cpu || direct;
        if let Some(out) =
            out.as_mut().filter(|_| piece.is_padded() && !stays && (on_cpu || dtype != DType::F32))
        {
            self.rank.kernels().fill(out.reborrow(), 0.0)?;
        }
        let operands = match (&mut shard.states, states) {
            (States::Here { master, moments }, _) => {
                let (momentum, variance) =
                    (moments.momentum.slice_mut(own.clone()), moments.variance.slice_mut(own.clone()));
                let (parameters, master) = match master {
                    Some(master) => (out, master.slice_mut(own)),
                    None => (None, out.take().ok_or(missing(at.unit))?),
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
            (States::Disk(_), None) => return Err(missing(at.unit)),
        };
        piece.update(self.rank, operands, self.update)
    }

    /// Issues what leaves an updated piece.
    fn leave(&mut self, next: usize) -> Result<()> {
        let at = self.pieces[next];
        let (range, elements, last) = (self.range(at), self.piece(at).range.len(), self.is_last(at));
        let within = self.parameters.within(at.unit, range);
        let (home, on_cpu, dtype) = (self.home(at.unit), self.on_cpu(), self.parameters.dtype(at.unit));
        let (transfers, index) = (&self.rank.transfers, next % self.slots.len());
        // What crossed from the device since the piece before goes on to the disk.
        if let Some(before) = next.checked_sub(1) {
            self.go_on(before)?;
        }
        let (own, direct) = (self.piece(at).range.clone(), self.writes_device(at.unit));
        let slot = &mut self.slots[index];
        let cargo = Cargo { class: Class::Parameters, unit: at.unit };
        let mut leaving = Leaving { piece: Some(at), ..Leaving::default() };
        match (on_cpu, home) {
            (true, Place::Device) if direct => {
                leaving.crossing = Some(transfers.written(cargo, elements * dtype.size()));
            }
            (true, Place::Device) => {
                let to = self.parameters.get_mut(at.unit)?.slice_mut(within);
                let from = match (&self.units[at.unit].states.states, &slot.states, &slot.parameters) {
                    _ if dtype != DType::F32 => {
                        slot.parameters.as_ref().ok_or(missing(at.unit))?.slice(0..elements)
                    }
                    (States::Here { master: Some(master), .. }, ..) => master.slice(own),
                    (_, Some([master, ..]), _) => master.slice(0..elements),
                    _ => return Err(missing(at.unit)),
                };
                leaving.crossing = Some(transfers.copy(cargo, to, from)?);
            }
            (true, Place::Disk) => {
                let (extent, bytes) = (self.parameters.extent(at.unit)?, span(&within, dtype.size(), last));
                let staged = slot.parameters.take().ok_or(missing(at.unit))?;
                leaving.parameters =
                    Some(transfers.write(cargo, extent, within.start * dtype.size(), staged, bytes));
            }
            (false, Place::Host | Place::Disk) => {
                let from = slot.on_device.as_ref().ok_or(missing(at.unit))?.slice(0..elements);
                let to = match &mut slot.parameters {
                    Some(staged) if home == Place::Disk => staged.slice_mut(0..elements),
                    _ => self.parameters.get_mut(at.unit)?.slice_mut(within),
                };
                leaving.crossing = Some(transfers.copy(cargo, to, from)?);
                leaving.to_disk = home == Place::Disk;
            }
            (true, Place::Host) | (false, Place::Device) => {}
        }
        if let States::Disk(extents) = &self.units[at.unit].states.states {
            let cargo = Cargo { class: Class::Optimizer, unit: at.unit };
            let states = slot.states.take().into_iter().flatten();
            let write = |(state, extent)| transfers.write(cargo, extent, 0, state, paged(4 * elements));
            leaving.states = states.zip(&extents[at.number]).map(write).collect();
        }
        slot.leaving = leaving;
        Ok(())
    }

    /// Writes parameters that have crossed from the device to the disk, if piece number `next` has any.
    fn go_on(&mut self, next: usize) -> Result<()> {
        let at = self.pieces[next];
        let index = next % self.slots.len();
        if !std::mem::take(&mut self.slots[index].leaving.to_disk) {
            return Ok(());
        }
        let within = self.parameters.within(at.unit, self.range(at));
        let size = self.parameters.dtype(at.unit).size();
        let (extent, bytes) = (self.parameters.extent(at.unit)?, span(&within, size, self.is_last(at)));
        let (transfers, slot) = (&self.rank.transfers, &mut self.slots[index]);
        slot.leaving.crossing.take().map_or(Ok(()), |crossing| transfers.wait(crossing))?;
        let staged = slot.parameters.take().ok_or(missing(at.unit))?;
        let cargo = Cargo { class: Class::Parameters, unit: at.unit };
        slot.leaving.parameters = Some(transfers.write(cargo, extent, within.start * size, staged, bytes));
        Ok(())
    }

    /// Waits until the slot of piece number `next` is free.
    fn free(&mut self, next: usize, gathers: &mut Option<&mut Buckets>) -> Result<()> {
        let Some(before) = next.checked_sub(self.slots.len()) else { return Ok(()) };
        if before < self.pieces.len() {
            self.go_on(before)?;
        }
        let (transfers, index) = (&self.rank.transfers, next % self.slots.len());
        let slot = &mut self.slots[index];
        let Leaving { piece, states, parameters, crossing, .. } = std::mem::take(&mut slot.leaving);
        crossing.map_or(Ok(()), |crossing| transfers.wait(crossing))?;
        if let Some(parameters) = parameters {
            slot.parameters = Some(transfers.settle(parameters)?.buffer);
        }
        let Some(at) = piece else { return Ok(()) };
        if !states.is_empty() {
            slot.states = Some(settled(self.rank, states, at.unit)?);
        }
        if self.is_last(at) {
            self.units[at.unit].gather(self.rank, at.unit, self.parameters, gathers)?;
        }
        Ok(())
    }
}

/// Waits for the states of a piece of `unit`.
fn settled(rank: &Rank, states: Vec<Staged>, unit: UnitId) -> Result<[Buffer; TrainingState::ALL.len()]> {
    let arrived = states.into_iter().map(|state| rank.transfers.settle(state));
    let buffers = arrived.map(|state| Ok(state?.buffer)).collect::<Result<Vec<_>>>()?;
    buffers.try_into().map_err(|_| missing(unit))
}

fn missing(unit: UnitId) -> Error {
    Error::Missing { unit, what: "a staging buffer" }
}
