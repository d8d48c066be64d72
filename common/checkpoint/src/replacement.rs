//! Replaces the weights in a directory atomically: a reader finds all of the old files or all of
//! the new ones, whenever the process or the machine dies.
//!
//! The new directory, `.NAME.PROCESS.partial`, is filled next to the old one and flushed. Then the
//! two exchange names. Where the file system cannot exchange names atomically, the old one is
//! renamed to `.NAME.PROCESS.replaced` and the new one takes its name. Files of other programs move
//! along: they get a second name before the exchange or, failing that, move after it. The next
//! process that replaces the directory, or keeps checkpoints in it, recovers anything left behind
//! by a killed save. A new directory that cannot take the old name gets another one, so that a
//! finished run's weights are not lost.

mod leftovers;

use crate::{CheckpointError, Result, names};
use leftovers::ReplacedDirectory;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::Disk;

/// Suffix of a directory that is being filled, or whose files have been replaced.
const PARTIAL: &str = ".partial";
/// Suffix of a directory whose files are being replaced, on a file system that cannot exchange
/// names atomically.
const REPLACED: &str = ".replaced";

/// Suffix of a directory that could not take its intended name.
const UNPUBLISHED: &str = ".unpublished";
/// Interval at which a lock is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A directory that will replace another. If it is dropped before it is published, the other
/// directory is unchanged.
pub(crate) struct Replacement {
    replaced: ReplacedDirectory,
    /// The directory that is being filled.
    staging: PathBuf,
    published: bool,
    /// The locks of the old directory and of the new one.
    _locks: [Option<Lock>; 2],
}

impl Replacement {
    /// Begins to replace the directory `path`. Creates it if needed, and locks it against other
    /// writers, waiting up to `timeout` for their locks. A file system without locks gets none;
    /// there, leftovers of killed processes stay unless they are needed.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if another writer holds the directory,
    /// [`CheckpointError::NotADirectory`], [`CheckpointError::NotAFile`],
    /// [`CheckpointError::NotReplaceable`] or [`CheckpointError::IsCheckpoint`] if something is in
    /// the way, [`CheckpointError::Io`] and [`CheckpointError::Disk`] if the system refuses.
    pub(crate) fn begin(path: &Path, disk: Arc<Disk>, timeout: Duration) -> Result<Self> {
        ReplacedDirectory::restore(path, &disk)?;
        create(path, &disk)?;
        let replaced = ReplacedDirectory::new(path, disk)?;
        if replaced.target.join(names::MANIFEST).exists() {
            return Err(CheckpointError::IsCheckpoint(replaced.target));
        }
        let old = lock(&replaced.target, timeout)?;
        if old.is_some() {
            replaced.clear_leftovers()?;
        }
        replaced.check()?;
        let staging = replaced.beside(PARTIAL);
        make(&staging, &replaced)?;
        let new = lock(&staging, timeout)?;
        Ok(Replacement { replaced, staging, published: false, _locks: [old, new] })
    }

    /// Recovers files that killed saves left behind for `path` or a directory above it. A file that
    /// such a save had not moved yet may be a checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`] if something cannot be moved.
    pub(crate) fn recover(path: &Path) -> Result<()> {
        let disk = Arc::new(Disk::new(1));
        let path = std::path::absolute(path).map_err(CheckpointError::io("open", path))?;
        for above in path.ancestors() {
            let inside = path.strip_prefix(above).unwrap_or(&path);
            match ReplacedDirectory::recover(above, &disk) {
                // Its owner lives, and moves everything itself.
                Ok(()) | Err(CheckpointError::Busy(_)) => {}
                Err(error) if ReplacedDirectory::leftovers(above).any(|old| old.join(inside).exists()) => {
                    return Err(error);
                }
                // A leftover of another user, say, which has nothing that belongs here.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Fails if the directory cannot exchange names with the new one, as on some stacked file
    /// systems and in directories whose entries belong to their creators. Tries the exchange only
    /// where no reader can see it.
    ///
    /// # Errors
    /// [`CheckpointError::NotReplaceable`].
    pub(crate) fn probe(mut self) -> Result<()> {
        // While the names are exchanged, another process may put a file under this one: only an
        // empty directory is removed.
        self.published = true;
        let swap = || self.disk().exchange(&self.staging, &self.replaced.target);
        let tried = if self.replaced.is_empty()? { swap().and_then(|()| swap()) } else { Ok(()) };
        // A directory that is left behind is removed by the next writer.
        let _ = self.disk().remove_empty_directory(&self.staging);
        match tried {
            Err(error) if error.cause.kind() != ErrorKind::Unsupported => Err(self
                .replaced
                .not_replaceable(format!("the system refuses to rename it ({})", error.cause))),
            _ => Ok(()),
        }
    }

    /// Returns the directory that is replaced.
    pub(crate) fn path(&self) -> &Path {
        &self.replaced.target
    }

    /// Returns the disk.
    pub(crate) fn disk(&self) -> &Arc<Disk> {
        &self.replaced.disk
    }

    /// Returns the path of file `name` in the new directory.
    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.staging.join(name)
    }

    /// Puts the new directory, all of whose files have been flushed, in place of the old one.
    ///
    /// # Errors
    /// As [`Replacement::begin`], with nothing changed. [`CheckpointError::Disk`] also if the new
    /// directory is in place but a file of another program could not follow; the next writer moves
    /// that file. [`CheckpointError::Unpublished`] if the new directory has another name.
    pub(crate) fn publish(mut self) -> Result<()> {
        let old = self.change_places().map_err(|error| self.keep(error))?;
        self.published = true;
        // A checkpoint inside the directory is missing until it has been moved.
        self.replaced.bring_others(&old)?;
        self.disk().flush_directory(&self.replaced.parent)?;
        self.replaced.remove(&old)
    }

    /// Gives the new directory a name of its own, because `error` keeps it from taking its intended
    /// one.
    fn keep(&mut self, error: CheckpointError) -> CheckpointError {
        let named = |end| self.replaced.parent.join(format!("{}{end}", self.replaced.name));
        let free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
        let first = [UNPUBLISHED.to_string(), format!("{UNPUBLISHED}-{}", std::process::id())];
        let Some(kept) = first.into_iter().map(named).find(free) else { return error };
        let moved = self.disk().rename(&self.staging, &kept);
        if moved.and_then(|()| self.disk().flush_directory(&self.replaced.parent)).is_err() {
            return error;
        }
        self.published = true;
        CheckpointError::Unpublished { path: self.replaced.target.clone(), kept, why: error.to_string() }
    }

    /// Flushes the new directory and gives it the old one's name. Returns the old one's new path.
    fn change_places(&self) -> Result<PathBuf> {
        self.replaced.check()?;
        for name in self.replaced.others()? {
            // Entries that cannot have a second name, such as directories, move after the exchange.
            let _ = self.disk().link(&self.replaced.target.join(&name), &self.staging.join(&name));
        }
        self.disk().flush_directory(&self.staging)?;
        let ReplacedDirectory { target, disk, .. } = &self.replaced;
        match disk.exchange(&self.staging, target) {
            Ok(()) => return Ok(self.staging.clone()),
            Err(error) if error.cause.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(error.into()),
        }
        let old = self.replaced.beside(REPLACED);
        disk.rename(target, &old)?;
        if let Err(error) = disk.rename(&self.staging, target) {
            // If this fails too, the next writer repairs it.
            let _ = disk.rename(&old, target);
            return Err(error.into());
        }
        Ok(old)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // A new directory whose renaming was interrupted is left to the next writer.
        if !self.published && self.replaced.target.exists() {
            // `drop` cannot report an error; the next writer removes the directory.
            let _ = self.disk().remove_directory(&self.staging);
        }
    }
}

/// Creates the directory `path` unless it exists.
fn create(path: &Path, disk: &Disk) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if path.exists() {
        return Err(CheckpointError::NotADirectory(path.to_path_buf()));
    }
    Ok(disk.create_directory_durably(path)?)
}

/// Creates the directory `staging` with the permissions of the directory that it will replace and,
/// if the system allows it, the same owner.
fn make(staging: &Path, replaced: &ReplacedDirectory) -> Result<()> {
    if staging.exists() {
        return Err(CheckpointError::io("create", staging)(ErrorKind::AlreadyExists.into()));
    }
    replaced.disk.create_directory(staging).map_err(|error| match error.cause.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => replaced.not_replaceable(format!(
            "this user may not create the new one beside it ({})",
            staging.display()
        )),
        _ => error.into(),
    })?;
    let copied = fs::metadata(&replaced.target).and_then(|old| {
        // Only root may change a file's owner, but a team may share the group. Changing either
        // clears permission bits.
        let _ = chown(staging, None, Some(old.gid()));
        let _ = chown(staging, Some(old.uid()), None);
        fs::set_permissions(staging, old.permissions())
    });
    copied.map_err(CheckpointError::io("create", staging))
}

/// A locked directory. Dropping it unlocks at once. Closing the handle is not enough: a child
/// process between `fork` and `exec` still holds a copy.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, closing the file is all that remains to be done.
        let _ = self.0.unlock();
    }
}

/// Locks a directory, waiting up to `timeout` for another process's lock. Returns `None` on a file
/// system without locks.
fn lock(path: &Path, timeout: Duration) -> Result<Option<Lock>> {
    let since = Instant::now();
    loop {
        let handle = File::open(path).map_err(CheckpointError::io("open", path))?;
        match handle.try_lock() {
            Ok(()) if is_at(&handle, path) => return Ok(Some(Lock(handle))),
            Err(TryLockError::Error(_)) => return Ok(None),
            Ok(()) | Err(TryLockError::WouldBlock) if since.elapsed() < timeout => {
                std::thread::sleep(POLL_INTERVAL)
            }
            Ok(()) | Err(TryLockError::WouldBlock) => return Err(CheckpointError::Busy(path.to_path_buf())),
        }
    }
}

/// True if `handle` is still the directory at `path`, not replaced since it was opened.
fn is_at(handle: &File, path: &Path) -> bool {
    match (handle.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => names::is_same(&ours, &there),
        _ => false,
    }
}

/// Returns the name of a directory next to `name` for this process.
fn sibling(name: &str, end: &str) -> OsString {
    format!(".{name}.{}{end}", std::process::id()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_released_while_a_process_that_is_being_started_holds_its_handle() {
        let directory = tempfile::tempdir().unwrap();
        let held = lock(directory.path(), Duration::ZERO).unwrap().unwrap();
        assert!(matches!(lock(directory.path(), Duration::ZERO), Err(CheckpointError::Busy(_))));
        let _inherited = held.0.try_clone().unwrap();
        std::thread::scope(|scope| {
            let coming = scope.spawn(|| lock(directory.path(), Duration::from_secs(60)));
            drop(held);
            assert!(coming.join().unwrap().unwrap().is_some());
        });
        assert!(lock(directory.path(), Duration::ZERO).unwrap().is_some());
    }
}
