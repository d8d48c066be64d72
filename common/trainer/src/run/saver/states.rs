//! How a rank's states reach its file: through a full copy, or piece by piece.

use super::work::{Elements, Work, Writing, words};
use super::{HEARTBEAT, POLL_INTERVAL, SHUTDOWN_GRACE, Saver, copy_buffer};
use crate::rank_error::{Result, other};
use crate::stage::StageStates;
use checkpoint::ShardWriter;
use device::{Buffer, View};
use offload::TransferLabel;
use sharding::{Rank, StateStorage, TrainingState, read_extent};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use storage::Ticket;

impl Saver {
    /// Copies the states that this rank saves to `copy`, in the layout of its file.
    pub(super) fn copy(&self, states: &StageStates<'_>, copy: &mut Buffer) -> Result<()> {
        let mut at = 0;
        for (unit, part) in self.parts.iter().enumerate() {
            for state in TrainingState::ALL {
                let (slice, storage) = states.optimizer.state(unit, state, states.parameters)?;
                let StateStorage::Memory(state) = storage else {
                    return Err(other(format!(
                        "unit {unit}: its {state:?} is on disk, but this checkpoint copies states in memory; \
                         this is a bug in this program"
                    )));
                };
                let state = state.slice(part.start - slice.start..part.end - slice.start);
                self.rank
                    .kernels()
                    .copy(copy.slice_mut(at..at + part.len()), state)
                    .map_err(sharding::Error::from)?;
                at += part.len();
            }
        }
        Ok(())
    }

    /// Writes the states that this rank saves through `pieces`: while one piece is copied and
    /// hashed, writes of earlier ones are in flight. Returns the work that is done once the file is
    /// on disk.
    ///
    /// # Errors
    /// If a state cannot be read, or the group fails.
    pub(super) fn stream(
        &mut self,
        states: &StageStates<'_>,
        pieces: PieceBuffers,
        create: impl FnOnce() -> checkpoint::Result<ShardWriter> + Send + 'static,
    ) -> Result<Writing> {
        let mut stream = Stream::open(self, pieces, create)?;
        for (unit, part) in self.parts.iter().enumerate() {
            for state in TrainingState::ALL {
                let (slice, storage) = states.optimizer.state(unit, state, states.parameters)?;
                let part = part.start - slice.start..part.end - slice.start;
                match storage {
                    StateStorage::Memory(state) => stream.add(state.slice(part))?,
                    StateStorage::Disk(class, extents) => {
                        for (range, extent) in extents {
                            self.send_heartbeat_if_due()?;
                            let read =
                                read_extent(&self.rank, TransferLabel { class, unit }, range.len(), extent)?;
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

    /// Waits while `is_busy`, and sends the other ranks heartbeats.
    fn wait_while(&self, is_busy: impl Fn() -> bool) -> Result<()> {
        while is_busy() {
            self.send_heartbeat_if_due()?;
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Number of elements that are copied at a time. Longer copies bypass the caches, from which the
/// elements are hashed.
const COPY_CHUNK: usize = 1 << 18;

/// Buffers through which a rank's data is written to its file, one after the other.
#[derive(Default)]
pub(super) struct PieceBuffers {
    /// Number of elements of a buffer.
    elements: usize,
    free: Vec<Buffer>,
    /// Buffers whose write has missed the timeout.
    late: Vec<Ticket<Elements>>,
}

impl PieceBuffers {
    /// Allocates buffers for a rank that saves `elements` elements.
    ///
    /// # Errors
    /// If main memory is full.
    pub(super) fn new(rank: &Rank, elements: usize) -> Result<Self> {
        let elements =
            elements.div_ceil(prediction::MIN_STREAM_PIECES as usize).min(prediction::STREAM_BUFFER as usize);
        let mut pieces = PieceBuffers { elements, free: Vec::new(), late: Vec::new() };
        (0..prediction::STREAM_BUFFERS).try_for_each(|_| pieces.add(rank))?;
        Ok(pieces)
    }

    /// Allocates one buffer; also to replace one that a failed write has freed.
    fn add(&mut self, rank: &Rank) -> Result<()> {
        self.free.push(copy_buffer(rank, self.elements)?);
        Ok(())
    }

    /// Takes back the buffers of late writes that are done by now.
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
    /// The file, or why its write failed.
    writer: std::result::Result<ShardWriter, String>,
    pieces: PieceBuffers,
    /// The buffer that is being filled, and the number of its elements so far.
    filling: Option<(Buffer, usize)>,
    /// Writes in flight, the oldest first.
    queued: VecDeque<Ticket<Elements>>,
}

impl<'a> Stream<'a> {
    /// Creates the file on a thread, and waits for it.
    fn open(
        saver: &'a Saver,
        mut pieces: PieceBuffers,
        create: impl FnOnce() -> checkpoint::Result<ShardWriter> + Send + 'static,
    ) -> Result<Self> {
        let began = Instant::now();
        pieces.reclaim(&saver.rank)?;
        let created = Work::start(create);
        saver.wait_while(|| created.is_busy(saver.timeout))?;
        let writer = if created.is_done() {
            created.take().and_then(|writer| writer.map_err(words))
        } else {
            Err(saver.timeout_message())
        };
        Ok(Stream { saver, began, writer, pieces, filling: None, queued: VecDeque::new() })
    }

    /// Appends f32 elements. Does nothing if a write has failed.
    fn add(&mut self, elements: View<'_>) -> Result<()> {
        let mut done = 0;
        while done < elements.len() && self.writer.is_ok() {
            let Some((mut buffer, filled)) = self.take_filling()? else { break };
            let count = (elements.len() - done).min(buffer.len() - filled).min(COPY_CHUNK);
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

    /// Returns the buffer that is being filled, or one that is free; `None` if a write has failed.
    fn take_filling(&mut self) -> Result<Option<(Buffer, usize)>> {
        if self.filling.is_none() && self.pieces.free.is_empty() {
            self.wait_for_oldest()?;
        }
        let next = self.filling.take().or_else(|| Some((self.pieces.free.pop()?, 0)));
        if next.is_none() {
            self.fail("a write of the previous checkpoint still hangs".into());
        }
        Ok(next)
    }

    /// Hashes the buffer that has been filled, and queues its write.
    fn send(&mut self) {
        if let Ok(writer) = &mut self.writer
            && let Some((buffer, filled)) = self.filling.take()
        {
            self.queued.push_back(writer.append(Elements(buffer, 0..filled)));
        }
    }

    /// Waits for the oldest write. Sends the other ranks a heartbeat even if the write is done,
    /// since they may be waiting for one. If the write misses the save's timeout, or takes long
    /// after the group has failed, its buffer counts as late; a later save takes it back.
    fn wait_for_oldest(&mut self) -> Result<()> {
        let Some(ticket) = self.queued.pop_front() else { return Ok(()) };
        let mut sent = self.saver.send_heartbeat_if_due();
        let mut failed = sent.is_err().then(Instant::now);
        let outcome = loop {
            let outcome = ticket.wait_for(HEARTBEAT);
            let leaves = failed.is_some_and(|since| since.elapsed() >= SHUTDOWN_GRACE);
            if outcome.is_some() || leaves || self.began.elapsed() >= self.saver.timeout {
                break outcome;
            }
            if sent.is_ok() {
                sent = self.saver.send_heartbeat_if_due();
                failed = sent.is_err().then(Instant::now);
            }
        };
        match outcome {
            Some(Ok(moved)) => self.pieces.free.push(moved.memory.0),
            Some(Err(error)) => {
                self.fail(words(error.into()));
                self.pieces.add(&self.saver.rank)?;
            }
            None => {
                self.fail(self.saver.timeout_message());
                self.pieces.late.push(ticket);
            }
        }
        if self.began.elapsed() >= self.saver.timeout {
            self.fail(self.saver.timeout_message());
        }
        sent
    }

    /// Records why the file failed, unless it has failed before.
    fn fail(&mut self, why: String) {
        if self.writer.is_ok() {
            self.writer = Err(why);
        }
    }

    /// Sends the last buffer, waits for all writes in flight, and flushes the file on a thread.
    fn close(mut self) -> Result<(Writing, PieceBuffers)> {
        self.send();
        while !self.queued.is_empty() {
            self.wait_for_oldest()?;
        }
        let writer = std::mem::replace(&mut self.writer, Err(String::new()));
        let finish = || (None, writer.and_then(|writer| writer.finish().map_err(words)));
        let work = Work::start(finish).since(self.began);
        self.pieces.free.extend(self.filling.take().map(|(buffer, _)| buffer));
        Ok((work, std::mem::take(&mut self.pieces)))
    }
}

impl Drop for Stream<'_> {
    /// Waits for the writes in flight, unless the disk takes long.
    fn drop(&mut self) {
        let since = Instant::now();
        for ticket in self.queued.drain(..) {
            drop(ticket.wait_for(SHUTDOWN_GRACE.saturating_sub(since.elapsed())));
        }
    }
}
