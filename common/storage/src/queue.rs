//! Reads and writes that are queued, and complete out of order.

use crate::block::{Block, PAGE};
use crate::calls::Calls;
use crate::fault::Kind;
use crate::file::File;
use crate::{Error, Result};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A read or write on its way. A ticket that is dropped lets the transfer finish; its block then returns to the pool.
#[must_use = "a transfer may fail; the ticket says so"]
pub struct Ticket(Receiver<Result<Block>>);

impl Ticket {
    /// Blocks until the transfer is done and returns its block.
    ///
    /// # Errors
    /// The file system's.
    pub fn wait(self) -> Result<Block> {
        // A worker sends exactly one result for each job; it is lost only if the worker panics.
        self.0.recv().unwrap_or_else(|_| {
            Err(Error {
                call: Kind::Read,
                path: "queued file".into(),
                offset: None,
                cause: io::Error::other("the thread that carries transfers has panicked"),
            })
        })
    }
}

pub(crate) struct Job {
    pub kind: Kind,
    pub file: Arc<File>,
    pub offset: u64,
    pub block: Block,
}

/// Threads that carry out transfers, in the order in which they are queued.
pub(crate) struct Queue {
    jobs: Option<Sender<(Job, SyncSender<Result<Block>>)>>,
    threads: Vec<JoinHandle<()>>,
}

impl Queue {
    pub(crate) fn new(threads: usize, calls: &Arc<Calls>) -> Self {
        let (jobs, queued) = channel();
        let queued = Arc::new(Mutex::new(queued));
        let thread = |_| {
            let (queued, calls) = (queued.clone(), calls.clone());
            std::thread::spawn(move || carry(&queued, &calls))
        };
        Queue { jobs: Some(jobs), threads: (0..threads.max(1)).map(thread).collect() }
    }

    pub(crate) fn push(&self, job: Job) -> Ticket {
        let (done, ticket) = sync_channel(1);
        if let Some(jobs) = &self.jobs {
            // Fails only if every thread has panicked; the ticket then says so.
            let _ = jobs.send((job, done));
        }
        Ticket(ticket)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // The ticket of a panicked transfer reports the panic.
            let _ = thread.join();
        }
    }
}

type Queued = Mutex<Receiver<(Job, SyncSender<Result<Block>>)>>;

fn carry(queued: &Queued, calls: &Calls) {
    loop {
        let next = queued.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((Job { kind, file, offset, mut block }, done)) = next else { return };
        let outcome = match kind {
            Kind::Read => read(calls, &file, offset, &mut block),
            _ => write(calls, &file, offset, &block),
        };
        // The ticket may have been dropped.
        let _ = done.send(outcome.map(|()| block));
    }
}

fn write(calls: &Calls, file: &File, offset: u64, bytes: &[u8]) -> Result<()> {
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

fn read(calls: &Calls, file: &File, offset: u64, bytes: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        done += calls.transfer(Kind::Read, file.path(), Some(at), |most| {
            let rest = &mut bytes[done..];
            let (address, length) = (rest.as_ptr().addr(), rest.len().min(most));
            moved(file, at, address, length, io::ErrorKind::UnexpectedEof, |from, length| {
                from.read_at(&mut rest[..length], at)
            })
        })?;
    }
    Ok(())
}

/// Moves up to `length` bytes at byte `at`, directly if they begin on pages in file and memory: then as many whole pages
/// as there are. Returns the bytes moved, or `nothing` as an error if there were none.
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
