//! The file system: every call to it passes through here.

use crate::Result;
use crate::calls::Calls;
use crate::fault::{Answers, Call, CallKind, DiskFault, Effect};
use crate::file::File;
use crate::journal::{Change, Journal};
use crate::paths::parent;
use crate::queue::{self, Queue, Ticket, Turn, timed};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// The file system as a rank uses it.
pub struct Disk {
    calls: Arc<Calls>,
    queue: Queue,
    journal: Journal,
}

impl Disk {
    /// Returns a disk that transfers data with `threads` threads.
    pub fn new(threads: usize) -> Self {
        Disk::with(threads, Vec::new(), false)
    }

    /// Returns a disk that injects `faults`; without any, it is [`Disk::new`]'s.
    pub fn with_faults(threads: usize, faults: Vec<DiskFault>) -> Self {
        Disk::with(threads, faults, false)
    }

    /// Returns a disk for tests, which injects `faults` and records its calls.
    pub fn recording(threads: usize, faults: Vec<DiskFault>) -> Self {
        Disk::with(threads, faults, true)
    }

    fn with(threads: usize, faults: Vec<DiskFault>, recorded: bool) -> Self {
        let (calls, queue) = (Arc::new(Calls::new(faults, recorded)), Queue::new(threads));
        Disk { calls, queue, journal: Journal::default() }
    }

    /// Injects `effect` into every call from now on: [`Effect::Full`] into those that need room,
    /// [`Effect::Hang`] into reads and writes.
    pub fn fail(&self, effect: Effect) {
        self.calls.fail(effect);
    }

    /// Returns a disk for tests, which keeps a journal of the requested changes.
    pub fn journaled(threads: usize) -> Self {
        Disk { journal: Journal::recording(), ..Disk::new(threads) }
    }

    /// Returns the journal of a disk from [`Disk::journaled`].
    pub fn journal(&self) -> Vec<Change> {
        self.journal.changes()
    }

    /// Returns the calls so far, in order. Only a disk from [`Disk::recording`] records them.
    pub fn record(&self) -> Vec<Call> {
        self.calls.record()
    }

    /// Returns how many calls have returned, and the call in flight for the longest time. While a
    /// disk hangs, neither changes.
    pub fn answers(&self) -> Answers {
        self.calls.answers()
    }

    /// Creates a file for reading and writing, which must not exist.
    ///
    /// # Errors
    /// The file system's error.
    pub fn create(&self, path: &Path) -> Result<Arc<File>> {
        self.journal.note(|| Change::Create(path.into()));
        self.calls.run(CallKind::Create, path, || File::create(path)).map(Arc::new)
    }

    /// Creates a file that has no name any more: it is gone when it is closed, whatever ends the
    /// process.
    ///
    /// # Errors
    /// The file system's error.
    pub fn scratch(&self, path: &Path) -> Result<Arc<File>> {
        let file = self.create(path)?;
        self.unlink(path)?;
        Ok(file)
    }

    /// Opens an existing file for reading and writing. It may have been created and closed before.
    ///
    /// # Errors
    /// The file system's error.
    pub fn reopen(&self, path: &Path) -> Result<Arc<File>> {
        self.calls.run(CallKind::Open, path, || File::reopen(path)).map(Arc::new)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The file system's error.
    pub fn open(&self, path: &Path) -> Result<Arc<File>> {
        self.calls.run(CallKind::Open, path, || File::open(path)).map(Arc::new)
    }

    /// Queues a read that fills `memory` from byte `offset` on. A file that ends earlier is an
    /// error.
    pub fn read<M>(&self, file: &Arc<File>, offset: u64, memory: M) -> Ticket<M>
    where
        M: AsMut<[u8]> + Send + 'static,
    {
        self.queue_read(Turn::Last, file, offset, memory)
    }

    /// Queues a read like [`Disk::read`], ahead of all queued transfers that are not first
    /// themselves.
    pub fn read_first<M>(&self, file: &Arc<File>, offset: u64, memory: M) -> Ticket<M>
    where
        M: AsMut<[u8]> + Send + 'static,
    {
        self.queue_read(Turn::First, file, offset, memory)
    }

    fn queue_read<M>(&self, turn: Turn, file: &Arc<File>, offset: u64, mut memory: M) -> Ticket<M>
    where
        M: AsMut<[u8]> + Send + 'static,
    {
        let (calls, from) = (self.calls.clone(), file.clone());
        let read = move || queue::read(&calls, &from, offset, memory.as_mut()).map(|()| memory);
        self.queue.push(turn, (CallKind::Read, file.clone()), read)
    }

    /// Queues a write of all of `memory` at byte `offset`.
    pub fn write<M>(&self, file: &Arc<File>, offset: u64, memory: M) -> Ticket<M>
    where
        M: AsRef<[u8]> + Send + 'static,
    {
        self.journal.note(|| Change::Write(file.path().into(), offset, memory.as_ref().to_vec()));
        let (calls, to) = (self.calls.clone(), file.clone());
        let write = move || queue::write(&calls, &to, offset, memory.as_ref()).map(|()| memory);
        self.queue.push(Turn::Last, (CallKind::Write, file.clone()), write)
    }

    /// Queues a write of all of `memory` at byte `to`, followed by a read that fills the same
    /// memory from byte `from` on. The disk continues without waiting for the caller. If the write
    /// fails, its ticket reports the error and nothing is read.
    pub fn write_then_read<M>(
        &self,
        file: &Arc<File>,
        (to, from): (u64, u64),
        mut memory: M,
    ) -> (Ticket<()>, Ticket<M>)
    where
        M: AsRef<[u8]> + AsMut<[u8]> + Send + 'static,
    {
        self.journal.note(|| Change::Write(file.path().into(), to, memory.as_ref().to_vec()));
        let [to_write, to_read, file] = [file; 3].map(Arc::clone);
        let calls = self.calls.clone();
        let ((written, leaves), (filled, arrives)) = (sync_channel(1), sync_channel(1));
        self.queue.send(Turn::Last, move || {
            let outcome = timed(|| queue::write(&calls, &file, to, memory.as_ref()));
            let is_written = outcome.is_ok();
            // A ticket may have been dropped.
            let _ = written.send(outcome);
            if is_written {
                let read = || queue::read(&calls, &file, from, memory.as_mut()).map(|()| memory);
                let _ = filled.send(timed(read));
            }
        });
        (
            Ticket { outcome: leaves, call: CallKind::Write, file: to_write },
            Ticket { outcome: arrives, call: CallKind::Read, file: to_read },
        )
    }

    /// Fills `bytes` from byte `offset` on, in the calling thread.
    ///
    /// # Errors
    /// The file system's. A file that ends earlier is an error.
    pub fn read_now(&self, file: &File, offset: u64, bytes: &mut [u8]) -> Result<()> {
        queue::read(&self.calls, file, offset, bytes)
    }

    /// Writes all of `bytes` at byte `offset`, in the calling thread.
    ///
    /// # Errors
    /// The file system's.
    pub fn write_now(&self, file: &File, offset: u64, bytes: &[u8]) -> Result<()> {
        self.journal.note(|| Change::Write(file.path().into(), offset, bytes.to_vec()));
        queue::write(&self.calls, file, offset, bytes)
    }

    /// Reserves `bytes` bytes of disk space for the file, from byte `offset` on, so that writes
    /// there cannot run out of space. They read as zero at first.
    ///
    /// # Errors
    /// The file system's. A file system that cannot reserve space lengthens the file instead.
    pub fn reserve(&self, file: &File, offset: u64, bytes: u64) -> Result<()> {
        self.calls.run(CallKind::Reserve, file.path(), || file.reserve(offset, bytes))
    }

    /// Returns the file's length in bytes.
    ///
    /// # Errors
    /// The file system's error.
    pub fn length(&self, file: &File) -> Result<u64> {
        self.calls.run(CallKind::Length, file.path(), || Ok(file.buffered.metadata()?.len()))
    }

    /// Blocks until all completed writes have reached the disk.
    ///
    /// # Errors
    /// The file system's error.
    pub fn flush(&self, file: &File) -> Result<()> {
        self.calls.run(CallKind::Flush, file.path(), || file.buffered.sync_all())?;
        self.journal.note(|| Change::Flush(file.path().into()));
        Ok(())
    }

    /// Creates a directory and its parents, unless they exist.
    ///
    /// # Errors
    /// The file system's error.
    pub fn create_directory(&self, path: &Path) -> Result<()> {
        self.journal.note(|| Change::CreateDirectory(path.into()));
        self.calls.run(CallKind::CreateDirectory, path, || fs::create_dir_all(path))
    }

    /// Creates a directory and its parents, unless they exist. Blocks until the names of the new
    /// ones have reached the disk.
    ///
    /// # Errors
    /// The file system's error.
    pub fn create_directory_durably(&self, path: &Path) -> Result<()> {
        let ancestors = path.ancestors().filter(|one| !one.as_os_str().is_empty());
        let new: Vec<&Path> = ancestors.take_while(|one| !one.exists()).collect();
        self.create_directory(path)?;
        // Outermost first: flushing an inner directory is useless if the outer one's name is lost.
        new.into_iter().rev().try_for_each(|one| self.flush_directory(parent(one)))
    }

    /// Blocks until the entries of a directory have reached the disk.
    ///
    /// # Errors
    /// The file system's error.
    pub fn flush_directory(&self, path: &Path) -> Result<()> {
        self.calls.run(CallKind::FlushDirectory, path, || fs::File::open(path)?.sync_all())?;
        self.journal.note(|| Change::FlushDirectory(path.into()));
        Ok(())
    }

    /// Renames a file or directory. An existing file with the new name is replaced.
    ///
    /// # Errors
    /// The file system's error.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.journal.note(|| Change::Rename(from.into(), to.into()));
        self.calls.run(CallKind::Rename, from, || fs::rename(from, to))
    }

    /// Exchanges the names of the directories `new` and `old` atomically.
    ///
    /// # Errors
    /// The file system's; [`ErrorKind::Unsupported`] if it cannot exchange names.
    pub fn exchange(&self, new: &Path, old: &Path) -> Result<()> {
        self.journal.note(|| Change::Exchange(new.into(), old.into()));
        self.calls.run(CallKind::Exchange, old, || exchange(new, old))
    }

    /// Gives the file `from` the second name `to`. If `from` is a symbolic link, the link itself
    /// gets it.
    ///
    /// # Errors
    /// The file system's.
    pub fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.journal.note(|| Change::Link(from.into(), to.into()));
        self.calls.run(CallKind::Link, from, || fs::hard_link(from, to))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The file system's error.
    pub fn unlink(&self, path: &Path) -> Result<()> {
        self.journal.note(|| Change::Remove(path.into()));
        self.calls.run(CallKind::Unlink, path, || fs::remove_file(path))
    }

    /// Returns the names in a directory, sorted; none if the directory does not exist. Omits names
    /// that are not UTF-8.
    ///
    /// # Errors
    /// The file system's.
    pub fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.calls.run(CallKind::List, path, || {
            let entries = match fs::read_dir(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries?,
            };
            let mut names = Vec::new();
            for entry in entries {
                names.extend(entry?.file_name().into_string().ok());
            }
            names.sort();
            Ok(names)
        })
    }

    /// Removes a directory and its contents.
    ///
    /// # Errors
    /// The file system's.
    pub fn remove_directory(&self, path: &Path) -> Result<()> {
        self.journal.note(|| Change::Remove(path.into()));
        self.calls.run(CallKind::RemoveDirectory, path, || fs::remove_dir_all(path))
    }

    /// Removes a directory, which must be empty.
    ///
    /// # Errors
    /// The file system's.
    pub fn remove_empty_directory(&self, path: &Path) -> Result<()> {
        self.journal.note(|| Change::Remove(path.into()));
        self.calls.run(CallKind::RemoveDirectory, path, || fs::remove_dir(path))
    }

    /// Returns the free space, in bytes, that this user has on the file system of `path`.
    ///
    /// # Errors
    /// The file system's.
    pub fn free_bytes(&self, path: &Path) -> Result<u64> {
        self.calls.run(CallKind::Room, path, || {
            let found = rustix::fs::statvfs(path)?;
            // File systems in memory without a limit count no blocks.
            match found.f_blocks {
                0 => Ok(u64::MAX),
                _ => Ok(found.f_bavail.saturating_mul(found.f_frsize)),
            }
        })
    }
}

#[cfg(target_os = "linux")]
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL) => Err(ErrorKind::Unsupported.into()),
        outcome => Ok(outcome?),
    }
}

#[cfg(not(target_os = "linux"))]
fn exchange(_new: &Path, _old: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
