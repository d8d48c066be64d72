//! Queued reads and writes, which complete out of order.

use crate::calls::Calls;
use crate::fault::CallKind;
use crate::file::{File, PAGE};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a dropped queue waits for its threads. A thread whose disk hangs is left behind.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// A read or write in flight, of memory `M`. Dropping the ticket lets the transfer finish; its
/// memory is then freed.
#[must_use = "a transfer may fail; the ticket says so"]
pub struct Ticket<M> {
    pub(crate) outcome: Receiver<Result<Completed<M>>>,
    pub(crate) call: CallKind,
    pub(crate) file: Arc<File>,
}

/// A completed transfer.
pub struct Completed<M> {
    /// The memory, returned.
    pub memory: M,
    /// When the transfer began.
    pub began: Instant,
    /// When the transfer ended.
    pub ended: Instant,
}

impl<M> Ticket<M> {
    /// Blocks until the transfer is done and returns its memory.
    ///
    /// # Errors
    /// The file system's error.
    pub fn wait(self) -> Result<Completed<M>> {
        self.outcome.recv().unwrap_or_else(|_| Err(self.no_thread()))
    }

    /// Blocks like [`Ticket::wait`], but for at most `time`. Returns `None` if the transfer is
    /// still in flight. Do not call it again once it has returned an outcome.
    pub fn wait_for(&self, time: Duration) -> Option<Result<Completed<M>>> {
        match self.outcome.recv_timeout(time) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(self.no_thread())),
        }
    }

    /// Returns the error of a lost result. A worker sends exactly one result for each job; it is
    /// lost only if the worker panics.
    fn no_thread(&self) -> Error {
        let cause = "no thread carries transfers: it has panicked, or the system gave none";
        let path = self.file.path().to_path_buf();
        Error { call: self.call, path, offset: None, cause: io::Error::other(cause) }
    }
}

/// A transfer, to be carried out by a thread of the queue.
type Job = Box<dyn FnOnce() + Send>;

/// When a transfer begins: `First` before `Last`, and within each in the order of queueing.
#[derive(Clone, Copy)]
pub(crate) enum Turn {
    First,
    Last,
}

/// Transfers that no thread has begun, in the order of queueing.
#[derive(Default)]
struct Jobs {
    first: VecDeque<Job>,
    last: VecDeque<Job>,
    /// True once no more transfers are accepted.
    closed: bool,
    /// Number of threads that have not ended.
    threads: usize,
}

/// The shared state from which a queue's threads take their transfers.
#[derive(Default)]
struct Waiting {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until a transfer can begin. Returns `None` if no more will come.
    fn next(&self) -> Option<Job> {
        let idle = |jobs: &mut Jobs| jobs.first.is_empty() && jobs.last.is_empty() && !jobs.closed;
        let mut jobs = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        jobs.first.pop_front().or_else(|| jobs.last.pop_front())
    }
}

/// A thread that has not ended. If the last one panics or cannot start, tickets report it.
struct Running(Arc<Waiting>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut jobs = self.0.lock();
        jobs.threads -= 1;
        let closed = Jobs { closed: true, ..Jobs::default() };
        let left = (jobs.threads == 0).then(|| std::mem::replace(&mut *jobs, closed));
        drop(jobs);
        self.0.changed.notify_all();
        drop(left);
    }
}

/// A queue of transfers, with the threads that carry them out.
pub(crate) struct Queue {
    waiting: Arc<Waiting>,
}

impl Queue {
    pub(crate) fn new(threads: usize) -> Self {
        let queue = Queue { waiting: Arc::default() };
        for _ in 0..threads.max(1) {
            queue.waiting.lock().threads += 1;
            let running = Running(queue.waiting.clone());
            let work = move || {
                while let Some(job) = running.0.next() {
                    job();
                }
            };
            // Fewer threads suffice. Without any, tickets report it.
            if std::thread::Builder::new().name("transfers".into()).spawn(work).is_err() {
                break;
            }
        }
        queue
    }

    /// Queues a transfer to or from `file`, which returns its memory.
    pub(crate) fn push<M: Send + 'static>(
        &self,
        turn: Turn,
        (call, file): (CallKind, Arc<File>),
        transfer: impl FnOnce() -> Result<M> + Send + 'static,
    ) -> Ticket<M> {
        let (done, outcome) = sync_channel(1);
        self.send(turn, move || {
            // The ticket may have been dropped.
            let _ = done.send(timed(transfer));
        });
        Ticket { outcome, call, file }
    }

    pub(crate) fn send(&self, turn: Turn, job: impl FnOnce() + Send + 'static) {
        let mut jobs = self.waiting.lock();
        match turn {
            // Dropping the transfer makes its ticket report that no thread is left.
            _ if jobs.closed => return,
            Turn::First => jobs.first.push_back(Box::new(job)),
            Turn::Last => jobs.last.push_back(Box::new(job)),
        }
        drop(jobs);
        self.waiting.changed.notify_one();
    }
}

/// Carries out a transfer. Returns its result, and when it began and ended.
pub(crate) fn timed<M>(transfer: impl FnOnce() -> Result<M>) -> Result<Completed<M>> {
    let began = Instant::now();
    transfer().map(|memory| Completed { memory, began, ended: Instant::now() })
}

impl Drop for Queue {
    fn drop(&mut self) {
        let Waiting { changed, .. } = &*self.waiting;
        let mut jobs = self.waiting.lock();
        jobs.closed = true;
        changed.notify_all();
        // A poisoned lock is ignored: the tickets of the panicked thread report it.
        drop(changed.wait_timeout_while(jobs, LAST_WAIT, |jobs| jobs.threads > 0));
    }
}

/// Maximum number of bytes in one call, so that a thread waiting for a slow disk sees calls return.
const CALL: usize = 64 << 20;

pub(crate) fn write(calls: &Calls, file: &File, offset: u64, bytes: &[u8]) -> Result<()> {
    check_length(CallKind::Write, file, offset)?;
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        done += calls.transfer(CallKind::Write, file.path(), Some(at), |most| {
            let rest = &bytes[done..];
            moved(
                file,
                at,
                rest.as_ptr().addr(),
                rest.len().min(most).min(CALL),
                io::ErrorKind::WriteZero,
                |to, length| to.write_at(&rest[..length], at),
            )
        })?;
    }
    Ok(())
}

pub(crate) fn read(calls: &Calls, file: &File, offset: u64, bytes: &mut [u8]) -> Result<()> {
    check_length(CallKind::Read, file, offset)?;
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let moved = calls.transfer(CallKind::Read, file.path(), Some(at), |most| {
            let rest = &mut bytes[done..];
            let (address, length) = (rest.as_ptr().addr(), rest.len().min(most).min(CALL));
            moved(file, at, address, length, io::ErrorKind::UnexpectedEof, |from, length| {
                from.read_at(&mut rest[..length], at)
            })
        });
        // The file may have been truncated since its length was checked.
        done += moved.or_else(|error| check_length(CallKind::Read, file, at).and(Err(error)))?;
    }
    Ok(())
}

fn check_length(call: CallKind, file: &File, offset: u64) -> Result<()> {
    let path = || file.path().to_path_buf();
    file.check_length().map_err(|cause| Error { call, path: path(), offset: Some(offset), cause })
}

/// Moves up to `length` bytes at byte `at`. Uses direct I/O for as many whole pages as possible if
/// the bytes begin on pages in file and memory. Returns the number of bytes moved, or `nothing` as
/// an error if it is 0.
fn moved(
    file: &File,
    at: u64,
    address: usize,
    length: usize,
    nothing: io::ErrorKind,
    mut call: impl FnMut(&fs::File, usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let pages = length / PAGE * PAGE;
    let aligned = at.is_multiple_of(PAGE as u64) && address.is_multiple_of(PAGE) && pages > 0;
    loop {
        let direct = file.direct().filter(|_| aligned);
        let outcome = match direct {
            Some(handle) => call(handle, pages),
            None => call(&file.buffered, length),
        };
        match outcome {
            Ok(0) => return Err(nothing.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && direct.is_some() => {
                file.refuse_direct();
            }
            outcome => return outcome,
        }
    }
}
