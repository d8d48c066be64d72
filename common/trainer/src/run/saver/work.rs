//! The threads that write, publish or remove a checkpoint's files.

use checkpoint::{CheckpointError, FileRecord, ShardWriter};
use device::Buffer;
use settings::machine::not_started;
use std::io;
use std::ops::Range;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The outcome that a rank shares with the others; errors are messages.
pub(super) type PeerResult<T> = std::result::Result<T, String>;

/// A thread that writes a rank's file. It returns the buffer of a copy, if it was given one.
pub(super) type Writing = Work<(Option<Buffer>, PeerResult<FileRecord>)>;

/// A task on a thread of its own.
pub(super) struct Work<T> {
    /// An error if the thread could not be started.
    thread: io::Result<JoinHandle<T>>,
    began: Instant,
}

impl<T: Send + 'static> Work<T> {
    pub(super) fn start(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(work);
        Work { thread, began: Instant::now() }
    }

    /// Returns this work, whose timeout counts from `began`.
    pub(super) fn since(self, began: Instant) -> Self {
        Work { began, ..self }
    }

    /// True if the thread could not be started: the work's closure has been dropped.
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

    /// Blocks until the work is done. Returns its result; `Err` with a message if it panicked, or
    /// its thread could not be started.
    pub(super) fn take(self) -> PeerResult<T> {
        let thread = self.thread.map_err(|error| not_started("a thread", &error))?;
        thread.join().map_err(|_| "the thread that writes it has panicked".into())
    }
}

/// Writes a copy. Returns its buffer.
pub(super) fn write_copy(
    copy: Buffer,
    bytes: usize,
    create: impl FnOnce() -> checkpoint::Result<ShardWriter>,
) -> (Option<Buffer>, PeerResult<FileRecord>) {
    match create() {
        Ok(writer) => {
            let elements = 0..copy.len();
            let (copy, written) = writer.write_all(Elements(copy, elements), bytes);
            (copy.map(|Elements(buffer, _)| buffer), written.map_err(words))
        }
        Err(error) => (Some(copy), Err(words(error))),
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
        assert!(work.take().unwrap_err().starts_with("cannot start a thread: "));
    }
}
