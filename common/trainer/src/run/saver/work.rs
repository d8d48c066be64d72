//! What threads do for a save.

use crate::rank_error::{Result, other};
use checkpoint::{CheckpointError, FileRecord, ShardWriter};
use device::Buffer;
use std::ops::Range;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a rank has written, or why not.
pub(super) type Written = std::result::Result<FileRecord, String>;

/// A thread that writes what a rank saves. It gives the room of a copy back, if it was given one.
pub(super) type Writing = Work<(Option<Buffer>, Written)>;

/// Work of a thread.
pub(super) struct Work<T> {
    thread: JoinHandle<T>,
    began: Instant,
}

impl<T: Send + 'static> Work<T> {
    pub(super) fn start(work: impl FnOnce() -> T + Send + 'static) -> Result<Self> {
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(work).map_err(other)?;
        Ok(Work { thread, began: Instant::now() })
    }

    /// This work, as a part of what began then.
    pub(super) fn since(self, began: Instant) -> Self {
        Work { began, ..self }
    }

    /// True until the work is done or has taken longer than `timeout`.
    pub(super) fn is_busy(&self, timeout: Duration) -> bool {
        !self.is_done() && self.began.elapsed() < timeout
    }

    /// True if [`Work::take`] does not block.
    pub(super) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Blocks until the work is done. Returns what it returned; `Err` with words if it has
    /// panicked.
    pub(super) fn take(self) -> std::result::Result<T, String> {
        self.thread.join().map_err(|_| "the thread that writes it has panicked".into())
    }
}

/// Writes a copy and gives its room back.
pub(super) fn write_copy(
    room: Buffer,
    bytes: usize,
    create: impl FnOnce() -> checkpoint::Result<ShardWriter>,
) -> (Option<Buffer>, Written) {
    match create() {
        Ok(writer) => {
            let elements = 0..room.len();
            let (room, written) = writer.write_all(Elements(room, elements), bytes);
            (room.map(|Elements(buffer, _)| buffer), written.map_err(words))
        }
        Err(error) => (Some(room), Err(words(error))),
    }
}

/// Elements of a buffer of f32.
pub(super) struct Elements(pub(super) Buffer, pub(super) Range<usize>);

impl AsRef<[u8]> for Elements {
    fn as_ref(&self) -> &[u8] {
        let Elements(buffer, Range { start, end }) = self;
        &buffer.bytes()[start * size_of::<f32>()..end * size_of::<f32>()]
    }
}

pub(super) fn words(error: CheckpointError) -> String {
    error.to_string()
}
