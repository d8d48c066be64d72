//! How a rank's states reach its file: through a copy of all, or piece by piece.

use super::work::{Pieces, Writing};
use super::{HEARTBEAT, LEAVING, Saver};
use crate::rank_error::{Result, other};
use checkpoint::ShardWriter;
use device::{Buffer, DType};
use offload::Cargo;
use sharding::{AdamWShard, Optimizer, StateRest, TrainingState, UnitBuffers, read_stretch};
use std::ops::Range;
use std::time::Instant;

impl Saver {
    /// Copies what this rank saves to `room`, as its file has it.
    pub(super) fn copy(
        &self,
        (optimizer, parameters): (&Optimizer, &UnitBuffers),
        room: &mut Buffer,
    ) -> Result<()> {
        let mut at = 0;
        for (unit, part) in self.parts.iter().enumerate() {
            for state in TrainingState::ALL {
                let (slice, rests) = optimizer.state(unit, state, parameters)?;
                let StateRest::Here(here) = rests else { return Err(other("a state on disk is not copied")) };
                let here = here.slice(part.start - slice.start..part.end - slice.start);
                self.rank
                    .kernels()
                    .copy(room.slice_mut(at..at + part.len()), here)
                    .map_err(sharding::Error::from)?;
                at += part.len();
            }
        }
        Ok(())
    }

    /// Writes what this rank saves, piece by piece, on a thread, which is returned. The thread
    /// returns its own failures.
    ///
    /// # Errors
    /// If a state cannot be read, or the group fails.
    pub(super) fn stream(
        &self,
        (optimizer, parameters): (&Optimizer, &UnitBuffers),
        create: impl FnOnce() -> checkpoint::Result<ShardWriter> + Send + 'static,
    ) -> Result<Writing> {
        let pieces = Pieces::write(create)?;
        for (unit, part) in self.parts.iter().enumerate() {
            for state in TrainingState::ALL {
                let (slice, rests) = optimizer.state(unit, state, parameters)?;
                let part = part.start - slice.start..part.end - slice.start;
                match rests {
                    StateRest::Here(here) => self.stream_here(here.slice(part), &pieces)?,
                    StateRest::Disk(class, stretches) => {
                        for (range, extent) in stretches {
                            let read = read_stretch(&self.rank, Cargo { class, unit }, range.len(), extent)?;
                            let (start, end) = (part.start.max(range.start), part.end.min(range.end));
                            if start < end {
                                self.append(&pieces, read, start - range.start..end - range.start)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(pieces.all_given(self.timeout))
    }

    /// Writes elements in memory through a buffer of at most [`Saver::piece`] of them.
    fn stream_here(&self, here: device::View<'_>, pieces: &Pieces) -> Result<()> {
        for range in AdamWShard::cut(here.len(), self.piece) {
            let mut staging = self.rank.transfers.staging(DType::F32, range.len())?;
            let elements = range.len();
            self.rank
                .kernels()
                .copy(staging.slice_mut(0..elements), here.slice(range))
                .map_err(sharding::Error::from)?;
            self.append(pieces, staging, 0..elements)?;
        }
        Ok(())
    }

    /// Has elements `range` of `buffer` written, and frees it. A disk that takes longer than a save
    /// may keeps the buffer; so does one that takes long while the group fails.
    fn append(&self, pieces: &Pieces, buffer: Buffer, range: Range<usize>) -> Result<()> {
        let (mut told, mut failed) = (Ok(()), None::<Instant>);
        if pieces.is_busy(self.timeout) {
            pieces.give(buffer, range);
        }
        while pieces.is_busy(self.timeout) && failed.is_none_or(|since| since.elapsed() < LEAVING) {
            let back = pieces.given_back(HEARTBEAT);
            if told.is_ok() {
                told = self.tell_when_due();
                failed = told.is_err().then(Instant::now);
            }
            if back.is_some() {
                break;
            }
        }
        told
    }
}
