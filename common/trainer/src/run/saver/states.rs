//! How a rank's states reach its file: through a copy of all, or piece by piece.

use super::work::{Elements, Work, Writing, words};
use super::{HEARTBEAT, LEAVING, LOOK, Saver, room};
use crate::rank_error::{Result, other};
use checkpoint::ShardWriter;
use device::{Buffer, View};
use offload::Cargo;
use sharding::{Optimizer, Rank, StateRest, TrainingState, UnitBuffers, read_stretch};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use storage::Ticket;

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

    /// Writes what this rank saves through `pieces`: while one is copied and hashed, those before are
    /// on their way to the disk. Returns the work that is done once the file has reached it.
    ///
    /// # Errors
    /// If a state cannot be read, or the group fails.
    pub(super) fn stream(
        &mut self,
        (optimizer, parameters): (&Optimizer, &UnitBuffers),
        pieces: PieceBuffers,
        create: impl FnOnce() -> checkpoint::Result<ShardWriter> + Send + 'static,
    ) -> Result<Writing> {
        let mut stream = Stream::open(self, pieces, create)?;
        for (unit, part) in self.parts.iter().enumerate() {
            for state in TrainingState::ALL {
                let (slice, rests) = optimizer.state(unit, state, parameters)?;
                let part = part.start - slice.start..part.end - slice.start;
                match rests {
                    StateRest::Here(here) => stream.add(here.slice(part))?,
                    StateRest::Disk(class, stretches) => {
                        for (range, extent) in stretches {
                            self.tell_when_due()?;
                            let read = read_stretch(&self.rank, Cargo { class, unit }, range.len(), extent)?;
                            let (start, end) = (part.start.max(range.start), part.end.min(range.end));
                            if start < end {
                                stream.add(read.slice(start - range.start..end - range.start))?;
                            }
                        }
                    }
                }
            }
        }
        let (work, pieces) = stream.close()?;
        self.pieces = Some(pieces);
        Ok(work)
    }

    /// Waits while `is_busy`, and tells the other ranks.
    fn wait_while(&self, is_busy: impl Fn() -> bool) -> Result<()> {
        while is_busy() {
            self.tell_when_due()?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Elements that are copied at a time: longer copies pass by the caches, from which they are hashed.
const COPIED: usize = 1 << 18;

/// Buffers through which a rank's data goes to its file, one after the other.
#[derive(Default)]
pub(super) struct PieceBuffers {
    /// Elements of a buffer.
    elements: usize,
    free: Vec<Buffer>,
    /// Those that a disk has not given back in time.
    late: Vec<Ticket<Elements>>,
}

impl PieceBuffers {
    /// Buffers for a part of so many elements.
    ///
    /// # Errors
    /// If main memory is full.
    pub(super) fn new(rank: &Rank, elements: usize) -> Result<Self> {
        let elements =
            elements.div_ceil(planner::MIN_STREAM_PIECES as usize).min(planner::STREAM_BUFFER as usize);
        let mut pieces = PieceBuffers { elements, free: Vec::new(), late: Vec::new() };
        (0..planner::STREAM_BUFFERS).try_for_each(|_| pieces.add(rank))?;
        Ok(pieces)
    }

    /// Allocates one, also in place of one that a failed write has freed.
    fn add(&mut self, rank: &Rank) -> Result<()> {
        self.free.push(room(rank, self.elements)?);
        Ok(())
    }

    /// Takes what the disk has given back since.
    fn reclaim(&mut self, rank: &Rank) -> Result<()> {
        for ticket in std::mem::take(&mut self.late) {
            match ticket.wait_for(Duration::ZERO) {
                Some(Ok(moved)) => self.free.push(moved.memory.0),
                Some(Err(_)) => self.add(rank)?,
                None => self.late.push(ticket),
            }
        }
        Ok(())
    }
}

/// A rank's file that is being written.
struct Stream<'a> {
    saver: &'a Saver,
    began: Instant,
    /// The file, or why there is none any more.
    writer: std::result::Result<ShardWriter, String>,
    pieces: PieceBuffers,
    /// The buffer that is being filled, and its elements so far.
    filling: Option<(Buffer, usize)>,
    /// What is on its way, the oldest first.
    queued: VecDeque<Ticket<Elements>>,
}

impl<'a> Stream<'a> {
    /// Lets a thread create the file.
    fn open(
        saver: &'a Saver,
        mut pieces: PieceBuffers,
        create: impl FnOnce() -> checkpoint::Result<ShardWriter> + Send + 'static,
    ) -> Result<Self> {
        let began = Instant::now();
        pieces.reclaim(&saver.rank)?;
        let created = Work::start(create);
        saver.wait_while(|| created.is_busy(saver.timeout))?;
        let writer = match created.is_done() {
            true => created.take().and_then(|writer| writer.map_err(words)),
            false => Err(saver.lateness()),
        };
        Ok(Stream { saver, began, writer, pieces, filling: None, queued: VecDeque::new() })
    }

    /// Appends f32 elements. A file that has failed takes none.
    fn add(&mut self, elements: View<'_>) -> Result<()> {
        let mut done = 0;
        while done < elements.len() && self.writer.is_ok() {
            let Some((mut buffer, filled)) = self.take_filling()? else { break };
            let count = (elements.len() - done).min(buffer.len() - filled).min(COPIED);
            let to = buffer.slice_mut(filled..filled + count);
            let from = elements.slice(done..done + count);
            self.saver.rank.kernels().copy(to, from).map_err(sharding::Error::from)?;
            done += count;
            let is_full = filled + count == buffer.len();
            self.filling = Some((buffer, filled + count));
            if is_full {
                self.send();
            }
        }
        Ok(())
    }

    /// Returns the buffer that is being filled, or one that is free; none if the file has failed.
    fn take_filling(&mut self) -> Result<Option<(Buffer, usize)>> {
        if self.filling.is_none() && self.pieces.free.is_empty() {
            self.settle_oldest()?;
        }
        let next = self.filling.take().or_else(|| Some((self.pieces.free.pop()?, 0)));
        if next.is_none() {
            self.fail("the disk has not given back the save before".into());
        }
        Ok(next)
    }

    /// Hashes what has been filled, and queues its write.
    fn send(&mut self) {
        if let Ok(writer) = &mut self.writer
            && let Some((buffer, filled)) = self.filling.take()
        {
            self.queued.push_back(writer.append(Elements(buffer, 0..filled)));
        }
    }

    /// Waits for the oldest write. Tells the other ranks even if the write is done, since they may
    /// be waiting for that. If the write takes longer than a save may, or long while the group
    /// fails, the disk keeps the buffer; a later save takes it back.
    fn settle_oldest(&mut self) -> Result<()> {
        let Some(ticket) = self.queued.pop_front() else { return Ok(()) };
        let mut told = self.saver.tell_when_due();
        let mut failed = told.is_err().then(Instant::now);
        let outcome = loop {
            let outcome = ticket.wait_for(HEARTBEAT);
            let leaves = failed.is_some_and(|since| since.elapsed() >= LEAVING);
            if outcome.is_some() || leaves || self.began.elapsed() >= self.saver.timeout {
                break outcome;
            }
            if told.is_ok() {
                told = self.saver.tell_when_due();
                failed = told.is_err().then(Instant::now);
            }
        };
        match outcome {
            Some(Ok(moved)) => self.pieces.free.push(moved.memory.0),
            Some(Err(error)) => {
                self.fail(words(error.into()));
                self.pieces.add(&self.saver.rank)?;
            }
            None => {
                self.fail(self.saver.lateness());
                self.pieces.late.push(ticket);
            }
        }
        if self.began.elapsed() >= self.saver.timeout {
            self.fail(self.saver.lateness());
        }
        told
    }

    /// Notes why there is no file, unless it has failed before.
    fn fail(&mut self, why: String) {
        if self.writer.is_ok() {
            self.writer = Err(why);
        }
    }

    /// Sends the rest, waits for all that is on its way, and lets a thread flush the file.
    fn close(mut self) -> Result<(Writing, PieceBuffers)> {
        self.send();
        while !self.queued.is_empty() {
            self.settle_oldest()?;
        }
        let writer = std::mem::replace(&mut self.writer, Err(String::new()));
        let finish = || (None, writer.and_then(|writer| writer.finish().map_err(words)));
        let work = Work::start(finish).since(self.began);
        self.pieces.free.extend(self.filling.take().map(|(buffer, _)| buffer));
        Ok((work, std::mem::take(&mut self.pieces)))
    }
}

impl Drop for Stream<'_> {
    /// Waits for what is on its way, unless the disk takes long.
    fn drop(&mut self) {
        let since = Instant::now();
        for ticket in self.queued.drain(..) {
            drop(ticket.wait_for(LEAVING.saturating_sub(since.elapsed())));
        }
    }
}
