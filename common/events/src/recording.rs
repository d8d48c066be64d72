//! Recordings: the events of a run in a file.
//!
//! [`Recorder`] appends frames to a file under a temporary name, which gets its own when the
//! recording is complete. It hands each frame to the operating system at once, so a killed process
//! loses only events that it had not written yet, and leaves `NAME.partial`. [`Recording`] reads
//! the file back, up to the last complete frame if the file ends early.

use crate::catchup::CatchUp;
use crate::event::Event;
use crate::frame::{self, EventBatch, FrameError, Message, PREAMBLE, RawFrame};
use crate::header::RunHeader;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{Disk, Publication};

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be created, read, written or completed.
    #[error("cannot {action} the recording {}: {source}", path.display())]
    Io {
        /// The verb of what failed: `create`, `read`, `write` or `complete`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file is damaged, or is not a recording of this version.
    #[error("{} cannot be replayed: {source}", path.display())]
    Frame {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: FrameError,
    },
    /// The file ends before the header is complete.
    #[error("{} holds no run: it ends before the run's header", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Writes a recording, frame by frame.
pub struct Recorder {
    file: Publication,
    path: PathBuf,
    buffer: Vec<u8>,
    pending: EventBatch,
}

/// The most events per frame: few enough to decode without delay when a viewer seeks.
const EVENTS_PER_FRAME: usize = 4096;

impl Recorder {
    /// Creates the file and writes the run's header.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn create(path: &Path, header: &RunHeader) -> Result<Self, RecordingError> {
        Self::create_on(&Arc::new(Disk::new(1)), path, header)
    }

    /// Creates the file on `disk` and writes the run's header.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_on(disk: &Arc<Disk>, path: &Path, header: &RunHeader) -> Result<Self, RecordingError> {
        let file = Publication::create(disk, path).map_err(|error| failed("create", path, error))?;
        let mut recorder = Recorder {
            file,
            path: path.into(),
            buffer: frame::preamble().into(),
            pending: EventBatch::default(),
        };
        frame::encode(&Message::Header(Box::new(header.clone())), &mut recorder.buffer);
        recorder.write_buffer()?;
        Ok(recorder)
    }

    /// Returns the path of the file until the recording is complete.
    pub fn partial(&self) -> &Path {
        self.file.partial()
    }

    /// Adds events, oldest first. `dropped` is the number of events lost since the run started.
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

    /// Writes the events added so far to the file.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        if self.pending.events.is_empty() {
            return Ok(());
        }
        let fresh = EventBatch { dropped: self.pending.dropped, events: Vec::new() };
        let batch = std::mem::replace(&mut self.pending, fresh);
        frame::encode(&Message::Batch(batch), &mut self.buffer);
        self.write_buffer()
    }

    /// Completes the recording, which gets its name once it has reached the disk.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn finish(&mut self) -> Result<PathBuf, RecordingError> {
        self.flush()?;
        frame::encode(&Message::End, &mut self.buffer);
        self.write_buffer()?;
        self.file.publish().map_err(|error| failed("complete", &self.path, error))?;
        Ok(self.path.clone())
    }

    fn write_buffer(&mut self) -> Result<(), RecordingError> {
        let written = self.file.append(std::mem::take(&mut self.buffer));
        self.buffer = written.map_err(|error| failed("write", &self.path, error))?;
        self.buffer.clear();
        Ok(())
    }
}

fn failed(action: &'static str, path: &Path, error: storage::Error) -> RecordingError {
    RecordingError::Io { action, path: path.into(), source: error.cause }
}

/// A recording read from a file. Batches stay encoded until [`Recording::batch`] decodes one.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    header: RunHeader,
    bytes: Vec<u8>,
    batches: Vec<Range<usize>>,
    complete: bool,
}

impl Recording {
    /// Reads `path` and verifies its checksums.
    ///
    /// # Errors
    /// [`RecordingError`]. A file that only ends early is no error but
    /// [incomplete](Self::is_complete).
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let failed = |source| RecordingError::Io { action: "read", path: path.into(), source };
        Self::parse(path, std::fs::read(path).map_err(failed)?)
    }

    /// Verifies the `bytes` of a recording. Errors name it `path`.
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

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the run's header.
    pub fn header(&self) -> &RunHeader {
        &self.header
    }

    /// True if the recording was completed. If not, it holds all frames that were written
    /// completely.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the number of batches.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// True if the recording holds no batch.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Decodes the batch at `index`.
    ///
    /// # Errors
    /// [`RecordingError::Frame`] if its content is unreadable.
    pub fn batch(&self, index: usize) -> Result<EventBatch, RecordingError> {
        let range = self.batches[index].clone();
        let damaged = |source| RecordingError::Frame { path: self.path.clone(), source };
        let frame = RawFrame::split(&self.bytes[range.clone()], range.start as u64).map_err(damaged)?;
        match frame.map(|(frame, _)| frame.decode()).transpose().map_err(damaged)? {
            Some(Message::Batch(batch)) => Ok(batch),
            _ => Ok(EventBatch::default()),
        }
    }

    /// Returns all events in the order in which they were collected. Each rank's events are sorted
    /// by time.
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

    /// Returns the state of the run after its last event.
    ///
    /// # Errors
    /// [`RecordingError::Frame`].
    pub fn final_state(&self) -> Result<CatchUp, RecordingError> {
        let mut state = CatchUp::new(self.header.world_size, self.header.units.len());
        for index in 0..self.len() {
            let batch = self.batch(index)?;
            batch.events.iter().for_each(|event| state.apply(event));
            state.dropped = batch.dropped;
        }
        Ok(state)
    }
}
