//! Writes a recording.

use crate::event::Event;
use crate::frame::{self, EventBatch, Message};
use crate::header::RunHeader;
use crate::recording::RecordingError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{Disk, Publication};

/// Writes a recording, frame by frame.
pub struct Recorder {
    file: Publication,
    path: PathBuf,
    buffer: Vec<u8>,
    pending: EventBatch,
}

/// A frame is written once it has this many events: few enough to decode without delay when a
/// viewer seeks.
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
        recorder.write(&Message::Header(Box::new(header.clone())))?;
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
        self.write(&Message::Batch(batch))
    }

    /// Completes the recording, which gets its name once it has reached the disk.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn finish(&mut self) -> Result<PathBuf, RecordingError> {
        self.flush()?;
        self.write(&Message::End)?;
        self.file.publish().map_err(|error| failed("complete", &self.path, error))?;
        Ok(self.path.clone())
    }

    /// Writes what is in the buffer, and `message` after it.
    fn write(&mut self, message: &Message) -> Result<(), RecordingError> {
        frame::encode(message, &mut self.buffer);
        let written = self.file.append(std::mem::take(&mut self.buffer));
        self.buffer = written.map_err(|error| failed("write", &self.path, error))?;
        self.buffer.clear();
        Ok(())
    }
}

fn failed(action: &'static str, path: &Path, error: storage::Error) -> RecordingError {
    RecordingError::Io { action, path: path.into(), source: error.cause }
}
