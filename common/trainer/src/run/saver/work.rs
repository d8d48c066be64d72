//! What threads do for a save.

use crate::rank_error::{Result, other};
use checkpoint::{CheckpointError, FileRecord, ShardWriter};
use device::Buffer;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
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

/// A buffer in main memory that a thread reads.
struct Room(Buffer);

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
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
            let (room, written) = writer.write_all(Room(room), bytes);
            (room.map(|Room(buffer)| buffer), written.map_err(words))
        }
        Err(error) => (Some(room), Err(words(error))),
    }
}

/// Elements of a buffer of f32.
struct Elements(Buffer, Range<usize>);

impl AsRef<[u8]> for Elements {
    fn as_ref(&self) -> &[u8] {
        let Elements(buffer, Range { start, end }) = self;
        &buffer.bytes()[start * size_of::<f32>()..end * size_of::<f32>()]
    }
}

/// A thread that writes pieces of a file as they are given to it, and gives each buffer back.
pub(super) struct Pieces {
    /// None once all have been given.
    given: Sender<Option<Elements>>,
    back: Receiver<Option<Buffer>>,
    work: Writing,
}

impl Pieces {
    /// Starts the thread, which creates the file with `create`.
    pub(super) fn write(
        create: impl FnOnce() -> checkpoint::Result<ShardWriter> + Send + 'static,
    ) -> Result<Self> {
        let (given, pieces) = channel();
        let (done, back) = channel();
        let work = Work::start(move || {
            let mut writer = create();
            let written = loop {
                match pieces.recv() {
                    // The rank no longer waits if the disk was late.
                    Ok(Some(piece)) => drop(done.send(append(&mut writer, piece))),
                    Ok(None) => break writer.and_then(ShardWriter::finish).map_err(words),
                    Err(_) => break Err("the rank has not given all of it".into()),
                }
            };
            (None, written)
        })?;
        Ok(Pieces { given, back, work })
    }

    /// True until the thread is done or has taken longer than `timeout`.
    pub(super) fn is_busy(&self, timeout: Duration) -> bool {
        self.work.is_busy(timeout)
    }

    /// Gives the file's next elements to the thread.
    pub(super) fn give(&self, buffer: Buffer, range: Range<usize>) {
        // Fails only if the thread has panicked, which its work says.
        let _ = self.given.send(Some(Elements(buffer, range)));
    }

    /// Blocks until the thread gives a buffer back, for at most `time`. Returns `Some(None)` if
    /// there is no buffer any more.
    pub(super) fn given_back(&self, time: Duration) -> Option<Option<Buffer>> {
        self.back.recv_timeout(time).ok()
    }

    /// Returns the work, which is done once the file has reached the disk. It fails if the work has
    /// taken longer than `timeout`, so that elements are missing.
    pub(super) fn all_given(self, timeout: Duration) -> Writing {
        if self.is_busy(timeout) {
            // Fails only if the thread has panicked.
            let _ = self.given.send(None);
        }
        self.work
    }
}

/// Writes a piece, unless the writer has failed. Returns its buffer, unless writing it fails.
fn append(writer: &mut checkpoint::Result<ShardWriter>, piece: Elements) -> Option<Buffer> {
    let Ok(open) = writer else { return Some(piece.0) };
    match open.append(piece).wait() {
        Ok(moved) => Some(moved.memory.0),
        Err(error) => {
            *writer = Err(error.into());
            None
        }
    }
}

pub(super) fn words(error: CheckpointError) -> String {
    error.to_string()
}
