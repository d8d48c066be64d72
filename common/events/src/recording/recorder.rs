//! Writes a recording.

use crate::event::Event;
use crate::frame::{self, EventBatch, Message};
use crate::header::RunHeader;
use crate::recording::RecordingError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::{Completed, Disk, Publication, Ticket};

/// Writes a recording, frame by frame. Watchers of a run do not wait for its disk: events that
/// cannot be written yet are kept in main memory.
pub struct Recorder {
    file: Publication,
    path: PathBuf,
    /// Encoded events that are not handed to the disk yet.
    buffer: Vec<u8>,
    /// The write in progress; `None` if there is none.
    in_progress: Option<Ticket<Vec<u8>>>,
    pending: EventBatch,
}

/// Maximum number of encoded bytes that wait for the write in progress.
const MOST_WAITING: usize = 256 << 20;

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
        let file = Publication::create(disk, path).map_err(|error| failed("create", path, error.cause))?;
        let mut recorder = Recorder {
            file,
            path: path.into(),
            buffer: frame::preamble().into(),
            in_progress: None,
            pending: EventBatch::default(),
        };
        frame::encode(&Message::Header(Box::new(header.clone())), &mut recorder.buffer);
        recorder.flush()?;
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
                self.advance()?;
            }
        }
        Ok(())
    }

    /// Hands the events added so far to the disk, without waiting for the write.
    ///
    /// # Errors
    /// [`RecordingError::Io`], also if more encoded bytes wait for the disk than main memory should
    /// hold.
    pub fn advance(&mut self) -> Result<(), RecordingError> {
        self.encode_pending();
        if let Some(written) = self.in_progress.as_ref().and_then(|ticket| ticket.wait_for(Duration::ZERO)) {
            self.finish_write(written)?;
        }
        if self.in_progress.is_none() {
            self.write_next();
        }
        if self.buffer.len() <= MOST_WAITING {
            return Ok(());
        }
        let what = format!("the disk is too slow: more than {} MiB wait for it", MOST_WAITING >> 20);
        Err(failed("write", &self.path, io::Error::new(ErrorKind::TimedOut, what)))
    }

    /// Writes the events added so far to the file.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        self.encode_pending();
        loop {
            if let Some(ticket) = self.in_progress.take() {
                self.finish_write(ticket.wait())?;
            }
            if self.buffer.is_empty() {
                return Ok(());
            }
            self.write_next();
        }
    }

    /// Completes the recording. Renames the file once all its bytes have reached the disk.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn finish(&mut self) -> Result<PathBuf, RecordingError> {
        self.encode_pending();
        frame::encode(&Message::End, &mut self.buffer);
        self.flush()?;
        self.file.publish().map_err(|error| failed("complete", &self.path, error.cause))?;
        Ok(self.path.clone())
    }

    fn encode_pending(&mut self) {
        if self.pending.events.is_empty() {
            return;
        }
        let fresh = EventBatch { dropped: self.pending.dropped, events: Vec::new() };
        let batch = std::mem::replace(&mut self.pending, fresh);
        frame::encode(&Message::Batch(batch), &mut self.buffer);
    }

    /// Starts to write the encoded events.
    fn write_next(&mut self) {
        if !self.buffer.is_empty() {
            self.in_progress = Some(self.file.append(std::mem::take(&mut self.buffer)));
        }
    }

    /// Ends a write in progress, and returns its error.
    fn finish_write(&mut self, written: storage::Result<Completed<Vec<u8>>>) -> Result<(), RecordingError> {
        self.in_progress = None;
        written.map(drop).map_err(|error| failed("write", &self.path, error.cause))
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> RecordingError {
    RecordingError::Io { action, path: path.into(), source }
}
