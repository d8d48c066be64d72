//! Writes the file of one rank.

use super::blocks::BlockHasher;
use super::manifest::FileRecord;
use super::shard::ShardLayout;
use crate::{CheckpointError, Result};
use device::floats;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use storage::{Disk, File, Ticket};

/// Size of a write, in bytes, from memory that holds all of a file's data.
const WRITE_BYTES: usize = 4 << 20;
/// Maximum number of these writes in flight.
const QUEUED: usize = 4;
/// Size of a piece, in bytes, that is hashed and then checked. The check finds it in a core's
/// cache.
const CACHED: usize = 256 << 10;

/// Writes a rank's file from its start to its end, and hashes it.
pub struct ShardWriter {
    disk: Arc<Disk>,
    file: Arc<File>,
    name: String,
    expected: u64,
    written: u64,
    hasher: BlockHasher,
    is_finite: bool,
}

impl ShardWriter {
    /// Creates the file `name` in the checkpoint's `directory`, reserves disk space for all of it,
    /// and writes its header.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`].
    pub fn create(disk: &Arc<Disk>, directory: &Path, name: &str, layout: &ShardLayout) -> Result<Self> {
        let file = disk.create(&directory.join(name))?;
        let expected = (layout.header().len() + layout.data_bytes()) as u64;
        disk.reserve(&file, 0, expected)?;
        disk.write_now(&file, 0, layout.header())?;
        let mut hasher = BlockHasher::default();
        hasher.update(layout.header());
        let written = layout.header().len() as u64;
        let (disk, name) = (disk.clone(), name.to_string());
        Ok(ShardWriter { disk, file, name, expected, written, hasher, is_finite: true })
    }

    /// Queues a write of the next data, in f32.
    pub fn append<M: AsRef<[u8]> + Send + 'static>(&mut self, memory: M) -> Ticket<M> {
        let bytes = memory.as_ref();
        for part in bytes.chunks(CACHED) {
            self.hasher.update(part);
            self.is_finite &= floats::are_finite(part);
        }
        let offset = self.written;
        self.written += bytes.len() as u64;
        self.disk.write(&self.file, offset, memory)
    }

    /// Appends `data`, which holds all of the file's data, and finishes the file. Returns the
    /// memory in any case.
    ///
    /// # Errors
    /// As [`ShardWriter::finish`], plus the errors of the tickets of [`ShardWriter::append`].
    pub fn write_all<M: AsRef<[u8]> + Send + Sync + 'static>(
        mut self,
        data: M,
        bytes: usize,
    ) -> (Option<M>, Result<FileRecord>) {
        let data = Arc::new(data);
        let written = self.write_parts(&data, bytes);
        let finished = written.and_then(|()| self.finish());
        // Every ticket has been waited for, so no write from the memory is in flight.
        (Arc::into_inner(data), finished)
    }

    fn write_parts<M: AsRef<[u8]> + Send + Sync + 'static>(
        &mut self,
        data: &Arc<M>,
        bytes: usize,
    ) -> Result<()> {
        let mut queued = VecDeque::new();
        let mut outcome = Ok(());
        for start in (0..bytes).step_by(WRITE_BYTES) {
            if outcome.is_err() {
                break;
            }
            let range = start..bytes.min(start + WRITE_BYTES);
            queued.push_back(self.append(Part { data: data.clone(), range }));
            if queued.len() > QUEUED {
                outcome = wait(queued.pop_front());
            }
        }
        // Wait for all of them, whatever the first error is.
        let rest: Vec<_> = queued.into_iter().map(|ticket| wait(Some(ticket))).collect();
        rest.into_iter().fold(outcome, Result::and)
    }

    /// Blocks until the file has reached the disk. All tickets must have been waited for.
    ///
    /// # Errors
    /// [`CheckpointError::NotFinite`] if an element is infinite or NaN; [`CheckpointError::Disk`].
    ///
    /// # Panics
    /// If the number of appended bytes differs from the layout's.
    pub fn finish(self) -> Result<FileRecord> {
        assert_eq!(self.written, self.expected, "bytes of {}", self.name);
        if !self.is_finite {
            return Err(CheckpointError::NotFinite(self.file.path().to_path_buf()));
        }
        self.disk.flush(&self.file)?;
        Ok(FileRecord { name: self.name, bytes: self.expected, blocks: self.hasher.finish() })
    }
}

fn wait<M>(ticket: Option<Ticket<M>>) -> Result<()> {
    match ticket.map(Ticket::wait) {
        Some(Err(error)) => Err(error.into()),
        Some(Ok(_)) | None => Ok(()),
    }
}

/// A part of a buffer that several writes share.
struct Part<M> {
    data: Arc<M>,
    range: Range<usize>,
}

impl<M: AsRef<[u8]>> AsRef<[u8]> for Part<M> {
    fn as_ref(&self) -> &[u8] {
        &(*self.data).as_ref()[self.range.clone()]
    }
}
