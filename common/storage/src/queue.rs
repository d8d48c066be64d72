//! Reads and writes that are queued, and complete out of order.

use crate::block::PAGE;
use crate::calls::Calls;
use crate::fault::Kind;
use crate::file::File;
use crate::{Error, Result};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a queue that is dropped waits for its threads. One whose disk hangs is left behind.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// A read or write on its way, of memory `M`. A ticket that is dropped lets the transfer finish;
/// its memory is then freed.
#[must_use = "a transfer may fail; the ticket says so"]
pub struct Ticket<M>(Receiver<Result<Moved<M>>>);

/// A transfer that is done.
pub struct Moved<M> {
    /// The memory, given back.
    pub memory: M,
    /// When the bytes began to move.
    pub began: Instant,
    /// When they had arrived.
    pub ended: Instant,
}

impl<M> Ticket<M> {
    /// Blocks until the transfer is done and gives its memory back.
    ///
    /// # Errors
    /// The file system's error.
    pub fn wait(self) -> Result<Moved<M>> {
        self.0.recv().unwrap_or_else(|_| Err(panicked()))
    }

    /// Blocks until the transfer is done, as [`Ticket::wait`] does, but for at most `time`: `None`
    /// if it is still under way then. Call it no more once it has returned an outcome.
    pub fn wait_for(&self, time: Duration) -> Option<Result<Moved<M>>> {
        match self.0.recv_timeout(time) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(panicked())),
        }
    }
}

/// A worker sends exactly one result for each job; it is lost only if the worker panics.
fn panicked() -> Error {
    Error {
        call: Kind::Read,
        path: "queued file".into(),
        offset: None,
        cause: io::Error::other("the thread that carries transfers has panicked"),
    }
}

/// A transfer, to be carried out by a thread of the queue.
type Job = Box<dyn FnOnce() + Send>;

/// Threads that carry out transfers, in the order in which they are queued.
pub(crate) struct Queue {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    /// Disconnected once all threads have ended.
    ended: Mutex<Receiver<()>>,
    calls: Arc<Calls>,
}

impl Queue {
    pub(crate) fn new(threads: usize, calls: &Arc<Calls>) -> Self {
        let (jobs, queued) = channel::<Job>();
        let queued = Arc::new(Mutex::new(queued));
        let (running, ended) = channel();
        let thread = |_| {
            let (queued, running) = (queued.clone(), running.clone());
            std::thread::spawn(move || {
                let _running: Sender<()> = running;
                loop {
                    let next = queued.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = next else { return };
                    job();
                }
            })
        };
        let threads = (0..threads.max(1)).map(thread).collect();
        Queue { jobs: Some(jobs), threads, ended: Mutex::new(ended), calls: calls.clone() }
    }

    pub(crate) fn read<M: AsMut<[u8]> + Send + 'static>(
        &self,
        file: &Arc<File>,
        offset: u64,
        mut memory: M,
    ) -> Ticket<M> {
        let (file, calls) = (file.clone(), self.calls.clone());
        self.push(move || read(&calls, &file, offset, memory.as_mut()).map(|()| memory))
    }

    pub(crate) fn write<M: AsRef<[u8]> + Send + 'static>(
        &self,
        file: &Arc<File>,
        offset: u64,
        memory: M,
    ) -> Ticket<M> {
        let (file, calls) = (file.clone(), self.calls.clone());
        self.push(move || write(&calls, &file, offset, memory.as_ref()).map(|()| memory))
    }

    pub(crate) fn write_then_read<M>(
        &self,
        file: &Arc<File>,
        (to, from): (u64, u64),
        mut memory: M,
    ) -> (Ticket<()>, Ticket<M>)
    where
        M: AsRef<[u8]> + AsMut<[u8]> + Send + 'static,
    {
        let (file, calls) = (file.clone(), self.calls.clone());
        let ((written, leaves), (filled, arrives)) = (sync_channel(1), sync_channel(1));
        self.send(Box::new(move || {
            let outcome = timed(|| write(&calls, &file, to, memory.as_ref()));
            let is_written = outcome.is_ok();
            // A ticket may have been dropped.
            let _ = written.send(outcome);
            if is_written {
                let _ = filled.send(timed(|| read(&calls, &file, from, memory.as_mut()).map(|()| memory)));
            }
        }));
        (Ticket(leaves), Ticket(arrives))
    }

    fn push<M: Send + 'static>(&self, transfer: impl FnOnce() -> Result<M> + Send + 'static) -> Ticket<M> {
        let (done, ticket) = sync_channel(1);
        self.send(Box::new(move || {
            // The ticket may have been dropped.
            let _ = done.send(timed(transfer));
        }));
        Ticket(ticket)
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // Fails only if every thread has panicked; the ticket then says so.
            let _ = jobs.send(job);
        }
    }
}

fn timed<M>(transfer: impl FnOnce() -> Result<M>) -> Result<Moved<M>> {
    let began = Instant::now();
    transfer().map(|memory| Moved { memory, began, ended: Instant::now() })
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.jobs = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(LAST_WAIT) == Err(RecvTimeoutError::Timeout) {
            return;
        }
        for thread in self.threads.drain(..) {
            // The ticket of a panicked transfer reports the panic.
            let _ = thread.join();
        }
    }
}

pub(crate) fn write(calls: &Calls, file: &File, offset: u64, bytes: &[u8]) -> Result<()> {
    check_length(Kind::Write, file, offset)?;
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        done += calls.transfer(Kind::Write, file.path(), Some(at), |most| {
            let rest = &bytes[done..];
            moved(
                file,
                at,
                rest.as_ptr().addr(),
                rest.len().min(most),
                io::ErrorKind::WriteZero,
                |to, length| to.write_at(&rest[..length], at),
            )
        })?;
    }
    Ok(())
}

pub(crate) fn read(calls: &Calls, file: &File, offset: u64, bytes: &mut [u8]) -> Result<()> {
    check_length(Kind::Read, file, offset)?;
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let moved = calls.transfer(Kind::Read, file.path(), Some(at), |most| {
            let rest = &mut bytes[done..];
            let (address, length) = (rest.as_ptr().addr(), rest.len().min(most));
            moved(file, at, address, length, io::ErrorKind::UnexpectedEof, |from, length| {
                from.read_at(&mut rest[..length], at)
            })
        });
        // The file may have been truncated since its length was checked.
        done += moved.or_else(|error| check_length(Kind::Read, file, at).and(Err(error)))?;
    }
    Ok(())
}

fn check_length(call: Kind, file: &File, offset: u64) -> Result<()> {
    let path = || file.path().to_path_buf();
    file.check_length().map_err(|cause| Error { call, path: path(), offset: Some(offset), cause })
}

/// Moves up to `length` bytes at byte `at`, directly if they begin on pages in file and memory:
/// then as many whole pages as there are. Returns the bytes moved, or `nothing` as an error if
/// there were none.
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
