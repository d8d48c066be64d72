//! Reads a recording.

use crate::event::Event;
use crate::frame::{self, EventBatch, FrameError, Message, PREAMBLE, RawFrame};
use crate::header::RunHeader;
use crate::history::CatchUp;
use crate::recording::{RecordingError, open, salvage, unreadable};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A recording read from a file. Batches stay encoded until [`Recording::batch`] decodes one.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    header: RunHeader,
    bytes: Vec<u8>,
    contents: Contents,
}

/// A damaged part of a recording, which is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The number of batches before it.
    pub batch: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// The frames found in a recording, up to some byte.
#[derive(Debug, Default)]
struct Contents {
    batches: Vec<Range<usize>>,
    /// The damaged parts, in the order of the file.
    gaps: Vec<Gap>,
    complete: bool,
    /// The end of the last frame.
    end: usize,
    /// Number of bytes that were searched for frames without success.
    checked: usize,
}

impl Contents {
    /// Reads the frames of `bytes` from the end of the last one on. Returns the first header among
    /// them.
    fn read_new(&mut self, bytes: &[u8]) -> Result<Option<RunHeader>, FrameError> {
        let mut header = None;
        while let Some((start, frame)) = salvage::next(bytes, self.end, &mut self.checked) {
            self.skip_to(start);
            self.end += frame.len();
            if frame.is_batch() {
                self.batches.push(start..self.end);
                continue;
            }
            match frame.decode()? {
                Message::Header(found) => header = header.or(Some(*found)),
                Message::End => self.complete = true,
                _ => {}
            }
        }
        // A frame that is only cut short may become complete.
        if RawFrame::first(&bytes[self.end..], self.end as u64).is_err() {
            self.skip_to(bytes.len());
        }
        Ok(header)
    }

    fn skip_to(&mut self, start: usize) {
        let skipped = start - self.end;
        self.end = start;
        match self.gaps.last_mut().filter(|gap| gap.batch == self.batches.len()) {
            Some(gap) => gap.bytes += skipped,
            None if skipped > 0 => self.gaps.push(Gap { batch: self.batches.len(), bytes: skipped }),
            None => {}
        }
    }

    /// Returns the error that says why there is no header.
    fn missing_header(&self, path: &Path) -> RecordingError {
        let path = path.into();
        if self.gaps.is_empty() {
            return RecordingError::Empty { path };
        }
        let problem = "this is the run's header, without which nothing can be shown";
        RecordingError::Frame { path, source: frame::corrupt(PREAMBLE as u64, problem) }
    }
}

impl Recording {
    /// Reads `path` and verifies its checksums.
    ///
    /// # Errors
    /// [`RecordingError`], also if the header is damaged. A file that only ends early is not an
    /// error: it is [incomplete](Self::is_complete). Other damage results in [gaps](Self::gaps).
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let mut bytes = Vec::new();
        open(path)?.read_to_end(&mut bytes).map_err(unreadable(path))?;
        Self::parse(path, bytes)
    }

    /// Verifies the `bytes` of a recording. Errors name it `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn parse(path: &Path, bytes: Vec<u8>) -> Result<Self, RecordingError> {
        let damaged = |source| RecordingError::Frame { path: path.into(), source };
        frame::check_preamble(&bytes).map_err(damaged)?;
        let mut contents = Contents { end: PREAMBLE, ..Contents::default() };
        let header = contents.read_new(&bytes).map_err(damaged)?;
        let header = header.ok_or_else(|| contents.missing_header(path))?;
        Ok(Recording { path: path.into(), header, bytes, contents })
    }

    /// Adds the bytes by which the recording's file has grown.
    ///
    /// # Errors
    /// [`RecordingError::Frame`].
    pub fn grow(&mut self, bytes: &[u8]) -> Result<(), RecordingError> {
        self.bytes.extend_from_slice(bytes);
        let damaged = |source| RecordingError::Frame { path: self.path.clone(), source };
        self.contents.read_new(&self.bytes).map(drop).map_err(damaged)
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
        self.contents.complete
    }

    /// Returns the damaged parts that were skipped, in the order of the file.
    pub fn gaps(&self) -> &[Gap] {
        &self.contents.gaps
    }

    /// True if a damaged part was skipped right before the batch at `index`.
    pub fn has_gap_before(&self, index: usize) -> bool {
        self.gaps().binary_search_by_key(&index, |gap| gap.batch).is_ok()
    }

    /// Returns the number of bytes that were skipped.
    pub fn damaged_bytes(&self) -> u64 {
        self.gaps().iter().map(|gap| gap.bytes as u64).sum()
    }

    /// Returns the number of batches.
    pub fn len(&self) -> usize {
        self.contents.batches.len()
    }

    /// True if the recording holds no batch.
    pub fn is_empty(&self) -> bool {
        self.contents.batches.is_empty()
    }

    /// Decodes the batch at `index`.
    ///
    /// # Errors
    /// [`RecordingError::Frame`] if its content is unreadable.
    pub fn batch(&self, index: usize) -> Result<EventBatch, RecordingError> {
        let range = self.contents.batches[index].clone();
        let damaged = |source| RecordingError::Frame { path: self.path.clone(), source };
        let frame = RawFrame::first(&self.bytes[range.clone()], range.start as u64).map_err(damaged)?;
        match frame.map(|frame| frame.decode()).transpose().map_err(damaged)? {
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
            if self.has_gap_before(index) {
                state.snapshot.lose_track();
            }
            batch.events.iter().for_each(|event| state.apply(event));
            state.dropped = batch.dropped;
        }
        Ok(state)
    }
}
