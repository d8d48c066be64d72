//! The lock of a directory of checkpoints. A run's rank 0 holds it for the life of the run.
//!
//! The file `lock` names its owner. Where the file system supports locks (`flock`), it is locked
//! with one, and the system releases the lock when the owner dies. Elsewhere the owner writes a
//! heartbeat to the file every [`LockOptions::heartbeat`]. Another run waits for
//! [`LockOptions::timeout`]: if no heartbeat comes, the owner is dead. The run then writes its own
//! name and waits for one more heartbeat interval. If two runs do so at once, the one whose name
//! remains has the lock. An owner that was suspended for longer finds another name in the file
//! before it publishes ([`RunLock::check`]).

use crate::{CheckpointError, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The file's name.
const LOCK: &str = "lock";
/// How long a run waits for a file system's lock, which other processes may hold briefly to look.
const BUSY: Duration = Duration::from_secs(5);
/// Interval at which the file is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A held lock. Dropping it releases it.
#[derive(Debug)]
pub struct RunLock {
    directory: PathBuf,
    token: String,
    file: Arc<File>,
    heartbeat: Option<HeartbeatThread>,
}

/// Settings for taking a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockOptions {
    /// Whether to use the file system's locks where they exist.
    pub flock: bool,
    /// Interval between an owner's heartbeats where the file system has no locks.
    pub heartbeat: Duration,
    /// Time without a heartbeat after which an owner counts as dead.
    pub timeout: Duration,
}

impl Default for LockOptions {
    fn default() -> Self {
        LockOptions { flock: true, heartbeat: Duration::from_secs(2), timeout: Duration::from_secs(10) }
    }
}

impl RunLock {
    /// Takes the lock of `directory`, which must exist, for the run that `token` names: a line of
    /// text that no other run has.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if another run holds it, [`CheckpointError::Io`].
    pub fn acquire(directory: &Path, token: &str, options: LockOptions) -> Result<Self> {
        let path = directory.join(LOCK);
        let mut opened = OpenOptions::new();
        opened.read(true).write(true).create(true).truncate(false);
        let file = storage::open_regular(&mut opened, &path);
        let file = Arc::new(file.map_err(CheckpointError::io("open", &path))?);
        let mut lock = RunLock { directory: directory.into(), token: token.into(), file, heartbeat: None };
        let has_locks = options.flock && lock.flock()?;
        if !has_locks {
            lock.wait_for_silence(options.timeout)?;
        }
        write(&lock.file, token, 0).map_err(CheckpointError::io("write", &path))?;
        if !has_locks {
            std::thread::sleep(options.heartbeat);
            lock.check()?;
            let thread = HeartbeatThread::start(lock.file.clone(), token, options.heartbeat);
            lock.heartbeat =
                Some(thread.map_err(CheckpointError::io("start the heartbeat thread of", &path))?);
        }
        Ok(lock)
    }

    /// Returns the token in the lock of `directory`. It names the run that holds the lock, as this
    /// machine sees it.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn holder(directory: &Path) -> Result<String> {
        Ok(text(directory)?.lines().next().unwrap_or_default().to_string())
    }

    /// Fails if another run has taken over the lock.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`], [`CheckpointError::Io`].
    pub fn check(&self) -> Result<()> {
        if RunLock::holder(&self.directory)? == self.token { Ok(()) } else { Err(self.busy()) }
    }

    /// Takes the file system's lock. Returns false if the file system does not support locks.
    fn flock(&self) -> Result<bool> {
        let since = Instant::now();
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(true),
                Err(TryLockError::Error(_)) => return Ok(false),
                Err(TryLockError::WouldBlock) if since.elapsed() > BUSY => return Err(self.busy()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Blocks until the file names no owner, or its owner has not written for `timeout`.
    fn wait_for_silence(&self, timeout: Duration) -> Result<()> {
        let first = text(&self.directory)?;
        let since = Instant::now();
        while !first.is_empty() && since.elapsed() < timeout {
            std::thread::sleep(POLL_INTERVAL.min(timeout / 10));
            let now = text(&self.directory)?;
            if now.is_empty() {
                return Ok(());
            }
            if now != first {
                return Err(self.busy());
            }
        }
        Ok(())
    }

    fn busy(&self) -> CheckpointError {
        CheckpointError::Busy(self.directory.clone())
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        self.heartbeat = None;
        // A lock that was taken over belongs to the other run.
        if self.check().is_ok() {
            // A token that remains in the file counts as a dead owner's.
            let _ = self.file.set_len(0);
        }
        // Closing the file is not enough: a child process between `fork` and `exec` still holds a
        // copy.
        let _ = self.file.unlock();
    }
}

/// Returns the text in the lock file of `directory`.
fn text(directory: &Path) -> Result<String> {
    let path = directory.join(LOCK);
    let file = storage::open_regular(OpenOptions::new().read(true), &path);
    file.and_then(io::read_to_string).map_err(CheckpointError::io("read", &path))
}

fn write(file: &File, token: &str, beat: u64) -> io::Result<()> {
    let text = format!("{token}\n{beat}\n");
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)?;
    file.sync_data()
}

/// The thread that writes heartbeats.
#[derive(Debug)]
struct HeartbeatThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatThread {
    fn start(file: Arc<File>, token: &str, every: Duration) -> io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let token = token.to_string();
        let thread = std::thread::Builder::new().name("lock".into()).spawn(move || {
            let mut beat = 0;
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                beat += 1;
                // Without a heartbeat, the run may lose the lock; it notices that later.
                let _ = beat_once(&file, &token, beat);
            }
        })?;
        Ok(HeartbeatThread { stop: Some(stop), thread: Some(thread) })
    }
}

/// Writes a heartbeat, unless the file holds another run's token.
fn beat_once(file: &File, token: &str, beat: u64) -> io::Result<()> {
    let mut found = vec![0; token.len()];
    file.read_exact_at(&mut found, 0)?;
    if found == token.as_bytes() { write(file, token, beat) } else { Ok(()) }
}

impl Drop for HeartbeatThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that can panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: LockOptions = LockOptions {
        flock: false,
        heartbeat: Duration::from_millis(20),
        timeout: Duration::from_millis(400),
    };

    #[test]
    fn a_lock_has_one_owner_with_and_without_locks_of_the_file_system() {
        // The owner's first heartbeat ends the wait.
        let patient = LockOptions { timeout: Duration::from_secs(60), ..QUICK };
        for options in [patient, LockOptions { flock: true, ..patient }] {
            let directory = tempfile::tempdir().unwrap();
            let lock = RunLock::acquire(directory.path(), "first", options).unwrap();
            assert_eq!(RunLock::holder(directory.path()).unwrap(), "first");
            if !options.flock {
                let refused = RunLock::acquire(directory.path(), "second", options).unwrap_err();
                assert!(matches!(refused, CheckpointError::Busy(_)), "{refused}");
            }
            lock.check().unwrap();
            drop(lock);
            RunLock::acquire(directory.path(), "second", options).unwrap().check().unwrap();
        }
    }

    #[test]
    fn a_dead_owner_is_succeeded_and_one_that_was_suspended_finds_out() {
        let directory = tempfile::tempdir().unwrap();
        let mut suspended = RunLock::acquire(directory.path(), "suspended", QUICK).unwrap();
        suspended.heartbeat = None;
        let heir = RunLock::acquire(directory.path(), "heir", QUICK).unwrap();
        assert!(matches!(suspended.check(), Err(CheckpointError::Busy(_))));
        drop(suspended);
        heir.check().unwrap();
    }

    #[test]
    fn another_process_may_look_at_the_lock_for_a_moment() {
        let directory = tempfile::tempdir().unwrap();
        let lock = RunLock::acquire(directory.path(), "run", LockOptions::default()).unwrap();
        let shared = File::open(directory.path().join(LOCK)).unwrap();
        assert!(shared.try_lock_shared().is_err(), "the lock is held for the run's life");
        drop(lock);
        shared.lock_shared().unwrap();
        std::thread::scope(|scope| {
            let coming = scope.spawn(|| RunLock::acquire(directory.path(), "run", LockOptions::default()));
            shared.unlock().unwrap();
            coming.join().unwrap().unwrap();
        });
    }
}
