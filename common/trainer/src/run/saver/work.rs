//! What threads do for a save.

use checkpoint::{CheckpointError, FileRecord, ShardWriter};
use device::Buffer;
use std::io;
use std::ops::Range;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a rank tells the others, or why not.
pub(super) type Told<T> = std::result::Result<T, String>;

/// What a rank has written, or why not.
pub(super) type Written = Told<FileRecord>;

/// A thread that writes what a rank saves. It gives the room of a copy back, if it was given one.
pub(super) type Writing = Work<(Option<Buffer>, Written)>;

/// Work of a thread.
pub(super) struct Work<T> {
    /// An error if the system gave no thread.
    thread: io::Result<JoinHandle<T>>,
    began: Instant,
}

impl<T: Send + 'static> Work<T> {
    pub(super) fn start(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(work);
        Work { thread, began: Instant::now() }
    }

    /// This work, as a part of what began then.
    pub(super) fn since(self, began: Instant) -> Self {
        Work { began, ..self }
    }

    /// True if the system gave no thread: what the work was given is dropped.
    pub(super) fn is_lost(&self) -> bool {
        self.thread.is_err()
    }

    /// True until the work is done or has taken longer than `timeout`.
    pub(super) fn is_busy(&self, timeout: Duration) -> bool {
        !self.is_done() && self.began.elapsed() < timeout
    }

    /// True if [`Work::take`] does not block.
    pub(super) fn is_done(&self) -> bool {
        self.thread.as_ref().map_or(true, JoinHandle::is_finished)
    }

    /// Blocks until the work is done. Returns what it returned; `Err` with words if it has
    /// panicked, or the system gave no thread for it.
    pub(super) fn take(self) -> Told<T> {
        let thread = self.thread.map_err(|error| format!("the system gives no thread for it: {error}"))?;
        thread.join().map_err(|_| "the thread that writes it has panicked".into())
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

#[cfg(test)]
mod tests {
    use super::Work;
    use std::io::ErrorKind;
    use std::time::{Duration, Instant};

    #[test]
    fn work_that_gets_no_thread_is_done_and_says_so() {
        let work = Work::<()> { thread: Err(ErrorKind::WouldBlock.into()), began: Instant::now() };
        assert!(!work.is_busy(Duration::MAX));
        assert!(work.take().unwrap_err().starts_with("the system gives no thread for it: "));
    }
}
