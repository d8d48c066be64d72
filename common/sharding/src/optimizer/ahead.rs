//! States that are read ahead of an update, while the step's last backward computes.
//!
//! The norm needs all gradients, so no state can be written before it; but the first pieces can be
//! read, as many as the update has buffers.

use super::{Optimizer, States};
use crate::partition::UnitId;
use crate::rank::Rank;
use crate::{Error, Result};
use device::{Buffer, Class, DType, Place};
use offload::{Cargo, Extent, Staged, paged};

/// The states of one piece, on their way into the update's buffers.
pub(super) type ReadAhead = Vec<Staged>;

impl Optimizer {
    /// Allocates the update's buffers for states that rest on disk, and reads the first pieces into
    /// them; does nothing if they rest elsewhere, or are read already.
    ///
    /// # Errors
    /// If there is no room in main memory.
    pub fn read_ahead(&mut self, rank: &Rank) -> Result<()> {
        if self.places.optimizer != Place::Disk || !self.ahead.is_empty() {
            return Ok(());
        }
        let all = || {
            self.units.iter().enumerate().flat_map(|(unit, own)| {
                own.states
                    .pieces
                    .iter()
                    .enumerate()
                    .map(move |(number, piece)| (unit, number, piece.range.len()))
            })
        };
        let largest = all().map(|(.., elements)| elements).max().unwrap_or(0);
        let read = |(unit, number, elements): (usize, usize, usize)| {
            let States::Disk(extents) = &self.units[unit].states.states else {
                return Err(Error::Missing { unit, what: "optimizer states on disk" });
            };
            let buffers = extents[number].iter().map(|_| rank.transfers.staging(DType::F32, largest));
            let buffers = buffers.collect::<offload::Result<Vec<_>>>()?;
            Ok(read_states(rank, unit, &extents[number], elements, buffers))
        };
        self.ahead = all().take(self.places.buffers).map(read).collect::<Result<_>>()?;
        Ok(())
    }

    /// Ends a step without an update: drops what was read ahead, once it is here.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn stop(&mut self, rank: &Rank) -> Result<()> {
        let mut ahead = std::mem::take(&mut self.ahead).into_iter().flatten();
        Ok(ahead.try_for_each(|state| rank.transfers.settle(state).map(drop))?)
    }
}

/// Begins to read the states of a piece of `unit` with so many elements into `buffers`.
pub(super) fn read_states(
    rank: &Rank,
    unit: UnitId,
    extents: &[Extent],
    elements: usize,
    buffers: impl IntoIterator<Item = Buffer>,
) -> ReadAhead {
    let cargo = Cargo { class: Class::Optimizer, unit };
    let read = |(extent, buffer)| rank.transfers.read(cargo, extent, 0, buffer, paged(4 * elements));
    extents.iter().zip(buffers).map(read).collect()
}
