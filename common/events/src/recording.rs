//! Recordings: a run in a file.
//!
//! [`Recorder`] appends frames; each reaches the operating system whole, so a killed process loses at most what it had
//! not yet collected. [`Recording`] reads the file back: a file that ends early is read up to its last whole frame.

use crate::catchup::CatchUp;
use crate::event::Event;
use crate::frame::{self, Batch, FrameError, Message, PREAMBLE, RawFrame};
use crate::header::RunHeader;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A recording that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be created, read or written.
    #[error("cannot {action} the recording {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The content is not a recording that this program reads.
    #[error("{} cannot be replayed: {source}", path.display())]
    Frame {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: FrameError,
    },
    /// The file ends before the run's description is complete.
    #[error("{} holds no run: it ends before the run's description", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Writes a recording, frame by frame.
pub struct Recorder {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    pending: Batch,
}

/// Events per frame: small enough to decode at once when somebody seeks there.
const EVENTS_PER_FRAME: usize = 4096;

impl Recorder {
    /// Creates the file and writes the run's description.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn create(path: &Path, header: &RunHeader) -> Result<Self, RecordingError> {
        let failed = |source| RecordingError::Io { action: "create", path: path.into(), source };
        let file = File::create(path).map_err(failed)?;
        let mut recorder =
            Recorder { file, path: path.into(), buffer: frame::preamble().into(), pending: Batch::default() };
        frame::encode(&Message::Header(Box::new(header.clone())), &mut recorder.buffer);
        recorder.write_buffer()?;
        Ok(recorder)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds events, oldest first; `dropped` is the number lost since the run started.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn push(&mut self, dropped: u64, events: &[Event]) -> Result<(), RecordingError> {
        self.pending.dropped = dropped;
        for piece in events.chunks(EVENTS_PER_FRAME) {
            self.pending.events.extend_from_slice(piece);
            if self.pending.events.len() >= EVENTS_PER_FRAME {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Hands everything added so far to the operating system.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        if self.pending.events.is_empty() {
            return Ok(());
        }
        let fresh = Batch { dropped: self.pending.dropped, events: Vec::new() };
        let batch = std::mem::replace(&mut self.pending, fresh);
        frame::encode(&Message::Batch(batch), &mut self.buffer);
        self.write_buffer()
    }

    /// Completes the recording.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn finish(mut self) -> Result<PathBuf, RecordingError> {
        self.flush()?;
        frame::encode(&Message::End, &mut self.buffer);
        self.write_buffer()?;
        Ok(self.path)
    }

    fn write_buffer(&mut self) -> Result<(), RecordingError> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|source| RecordingError::Io { action: "write", path: self.path.clone(), source })
    }
}

/// A run read back from a file. Frames stay encoded until somebody asks for their events.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    header: RunHeader,
    bytes: Vec<u8>,
    batches: Vec<Range<usize>>,
    complete: bool,
}

impl Recording {
    /// Reads and checks `path`.
    ///
    /// # Errors
    /// [`RecordingError`]; a file that merely ends early is no error but [incomplete](Self::is_complete).
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let failed = |source| RecordingError::Io { action: "read", path: path.into(), source };
        Self::parse(path, std::fs::read(path).map_err(failed)?)
    }

    /// Checks the `bytes` of a recording; `path` is what errors call it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn parse(path: &Path, bytes: Vec<u8>) -> Result<Self, RecordingError> {
        let damaged = |source| RecordingError::Frame { path: path.into(), source };
        frame::check_preamble(&bytes).map_err(damaged)?;
        let (mut header, mut batches, mut complete) = (None, Vec::new(), false);
        let mut offset = PREAMBLE;
        while let Some((raw, _)) = RawFrame::split(&bytes[offset..], offset as u64).map_err(damaged)? {
            let frame = offset..offset + raw.len();
            offset = frame.end;
            if raw.is_batch() {
                batches.push(frame);
                continue;
            }
            match raw.decode().map_err(damaged)? {
                Message::Header(found) => header = header.or(Some(*found)),
                Message::End => complete = true,
                _ => {}
            }
        }
        let header = header.ok_or_else(|| RecordingError::Empty { path: path.into() })?;
        Ok(Recording { path: path.into(), header, bytes, batches, complete })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's description.
    pub fn header(&self) -> &RunHeader {
        &self.header
    }

    /// Whether the run ended in order. If not, what was written before the end of the file is all there.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Number of batches.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The events of one batch.
    ///
    /// # Errors
    /// [`RecordingError::Frame`] if its content is unreadable.
    pub fn batch(&self, index: usize) -> Result<Batch, RecordingError> {
        let range = self.batches[index].clone();
        let damaged = |source| RecordingError::Frame { path: self.path.clone(), source };
        let frame = RawFrame::split(&self.bytes[range.clone()], range.start as u64).map_err(damaged)?;
        match frame.map(|(frame, _)| frame.decode()).transpose().map_err(damaged)? {
            Some(Message::Batch(batch)) => Ok(batch),
            _ => Ok(Batch::default()),
        }
    }

    /// All events, in the order in which they were collected: a rank's own by time.
    ///
    /// # Errors
    /// [`RecordingError::Frame`] in place of a batch whose content is unreadable.
    pub fn events(&self) -> impl Iterator<Item = Result<Event, RecordingError>> + '_ {
        (0..self.len()).flat_map(|index| {
            let (events, unreadable) = match self.batch(index) {
                Ok(batch) => (batch.events, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            events.into_iter().map(Ok).chain(unreadable)
        })
    }

    /// Where the run stands after its last event.
    ///
    /// # Errors
    /// [`RecordingError::Frame`].
    pub fn outcome(&self) -> Result<CatchUp, RecordingError> {
        let mut state = CatchUp::new(self.header.world_size, self.header.units.len());
        for index in 0..self.len() {
            let batch = self.batch(index)?;
            batch.events.iter().for_each(|event| state.apply(event));
            state.dropped = batch.dropped;
        }
        Ok(state)
    }
}
