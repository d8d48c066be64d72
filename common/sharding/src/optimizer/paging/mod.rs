//! An update of what rests beyond the device, piece by piece: while one piece is updated, the next
//! arrives and the last leaves.
//!
//! What rests in main memory stays there, and the CPU updates it in place. What rests on disk
//! visits main memory, gradients on the device come to it, and updated parameters return. With
//! parameters away alone the update stays on the device, and parameters visit that.

mod moves;
mod piece;
mod slot;

use super::{Operands, OwnSlice, ReadAhead, ScaledUpdate, States};
use crate::full::UnitBuffers;
use crate::places::Places;
use crate::rank::Rank;
use crate::{Buckets, Result};
use device::{DType, View, ViewMut};
use events::Pass;
use piece::{PagedPiece, WriteBack};
use slot::{Slot, StateBuffers, missing};

/// One paged update.
pub(super) struct Pager<'a> {
    rank: &'a Rank,
    units: &'a mut [OwnSlice],
    parameters: &'a mut UnitBuffers,
    gradients: &'a UnitBuffers,
    update: ScaledUpdate,
    /// Of the parameters.
    dtype: DType,
    pieces: Vec<PagedPiece>,
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
        let dtype = parameters.dtype(0);
        let pieces = piece::pieces(rank, places, units, parameters, dtype);
        let mut ahead = ahead.into_iter();
        let slot = |_| Slot::new(rank, places, &pieces, (gradients, dtype), ahead.next());
        let slots = (0..places.buffers.min(pieces.len())).map(slot).collect::<Result<_>>()?;
        Ok(Pager { rank, units, parameters, gradients, update, dtype, pieces, slots })
    }

    /// Updates all pieces. A unit goes through `gathers` once the last of its pieces is back.
    pub(super) fn run(mut self, gathers: &mut Option<&mut Buckets>) -> Result<()> {
        let (count, slots) = (self.pieces.len(), self.slots.len());
        // One buffer is updated, and from three on one leaves; the others arrive.
        let ahead = match slots {
            0 | 1 => 0,
            2 => 1,
            slots => slots - 2,
        };
        let mut issued = 0;
        for next in 0..count {
            while issued <= (next + ahead).min(count - 1) {
                if let Some(before) = issued.checked_sub(slots) {
                    self.finish(before, gathers)?;
                }
                self.fetch(issued)?;
                issued += 1;
            }
            self.arrive(next)?;
            self.compute(next)?;
            self.leave(next)?;
        }
        (count - slots..count).try_for_each(|last| self.finish(last, gathers))
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
            None => self.gradients.slice(unit, piece.range.clone())?,
        };
        let mut out = match piece.write_back {
            WriteBack::MasterToDevice => None,
            WriteBack::InPlace | WriteBack::IntoDevice => {
                Some(self.parameters.get_mut(unit)?.slice_mut(piece.held.clone()))
            }
            WriteBack::HostToDevice | WriteBack::HostToDisk => {
                Some(parameters.as_mut().ok_or(missing(unit))?.slice_mut(0..elements))
            }
            WriteBack::DeviceToHost | WriteBack::DeviceToDisk => {
                Some(on_device.as_mut().ok_or(missing(unit))?.slice_mut(0..elements))
            }
        };
        let shard = &mut self.units[unit].states;
        let stretches = &shard.pieces[piece.number];
        if let Some(out) = &mut out
            && stretches.is_padded()
            && piece.write_back.leaves_padding(self.dtype)
        {
            self.rank.kernels().fill(out.reborrow(), 0.0)?;
        }
        let operands = operands(piece, &mut shard.states, states, out, gradients)?;
        stretches.update(self.rank, operands, self.update)
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
