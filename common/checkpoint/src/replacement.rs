//! Replaces the weights in a directory as one: a reader finds all of the old files or all of the
//! new ones, whenever the process or the machine dies.
//!
//! The new directory, `.NAME.PROCESS.partial`, is filled beside the old one and flushed; then both
//! change names with each other. Where the file system cannot do that at one instant, the old one
//! is renamed to `.NAME.PROCESS.replaced` and the new one takes its name. Files of other programs
//! move along: by a second name before the change, or else after it. What a process that was killed
//! has left is put right by the next one that replaces the directory.

mod leftovers;

use crate::{CheckpointError, Result, names};
use leftovers::Place;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::Disk;

/// End of the name of a directory that is being filled, or whose files have been replaced.
const PARTIAL: &str = ".partial";
/// End of the name of a directory whose files are being replaced where two names cannot change at
/// one instant.
const REPLACED: &str = ".replaced";

/// A directory that is to take the place of another. If it is dropped before it is published, the
/// other one is as it was.
pub(crate) struct Replacement {
    place: Place,
    /// Where it is filled.
    staging: PathBuf,
    published: bool,
    /// Hold the locks of the old directory and of the new one.
    _locks: [Option<Lock>; 2],
}

impl Replacement {
    /// Begins to replace the directory `path`; creates it if need be, and locks it against other
    /// writers. On a file system without locks it locks nothing, and leaves what killed processes
    /// have left unless it is needed.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if another writer has it, [`CheckpointError::NotADirectory`],
    /// [`CheckpointError::NotAFile`], [`CheckpointError::NotReplaceable`] or
    /// [`CheckpointError::IsCheckpoint`] if something is in the way, [`CheckpointError::Io`] and
    /// [`CheckpointError::Disk`] if the system refuses.
    pub(crate) fn begin(path: &Path, disk: Arc<Disk>) -> Result<Self> {
        Place::restore(path, &disk)?;
        create(path, &disk)?;
        let place = Place::new(path, disk)?;
        if place.target.join(names::MANIFEST).exists() {
            return Err(CheckpointError::IsCheckpoint(place.target));
        }
        let old = lock(&place.target)?;
        if old.is_some() {
            place.clear_leftovers()?;
        }
        place.check()?;
        let staging = place.beside(PARTIAL);
        make(&staging, &place)?;
        let new = lock(&staging)?;
        Ok(Replacement { place, staging, published: false, _locks: [old, new] })
    }

    /// The directory that is replaced.
    pub(crate) fn path(&self) -> &Path {
        &self.place.target
    }

    /// The disk.
    pub(crate) fn disk(&self) -> &Arc<Disk> {
        &self.place.disk
    }

    /// Returns the path of a file of the new directory.
    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.staging.join(name)
    }

    /// Puts the new directory, all of whose files have been flushed, in the place of the old one.
    ///
    /// # Errors
    /// As [`Replacement::begin`], which change nothing; [`CheckpointError::Disk`] also if the new
    /// directory is in its place, and a file of another program could not follow: the next writer
    /// moves it.
    pub(crate) fn publish(mut self) -> Result<()> {
        self.place.check()?;
        for name in self.place.others()? {
            // What cannot have a second name (a directory, for one) follows after the change.
            let _ = self.disk().link(&self.place.target.join(&name), &self.staging.join(&name));
        }
        self.disk().flush_directory(&self.staging)?;
        let old = self.change()?;
        self.published = true;
        // A checkpoint that is in the directory is missing until it follows.
        self.place.bring_others(&old)?;
        self.disk().flush_directory(&self.place.parent)?;
        self.place.remove(&old)
    }

    /// Gives the new directory the name of the old one. Returns where the old one is.
    fn change(&self) -> Result<PathBuf> {
        let Place { target, disk, .. } = &self.place;
        match disk.exchange(&self.staging, target) {
            Ok(()) => return Ok(self.staging.clone()),
            Err(error) if error.cause.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(error.into()),
        }
        let old = self.place.beside(REPLACED);
        disk.rename(target, &old)?;
        if let Err(error) = disk.rename(&self.staging, target) {
            // If that fails too, the next writer does it.
            let _ = disk.rename(&old, target);
            return Err(error.into());
        }
        Ok(old)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // A new directory that was renamed halfway waits for the next writer.
        if !self.published && self.place.target.exists() {
            // A drop cannot report an error; the next writer removes it.
            let _ = self.disk().remove_directory(&self.staging);
        }
    }
}

/// Creates the directory `path`, unless it is there.
fn create(path: &Path, disk: &Disk) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if path.exists() {
        return Err(CheckpointError::NotADirectory(path.to_path_buf()));
    }
    Ok(disk.create_directory_durably(path)?)
}

/// Creates the directory `staging` with the permissions of the one that it is to replace.
fn make(staging: &Path, place: &Place) -> Result<()> {
    if staging.exists() {
        return Err(CheckpointError::io("create", staging)(ErrorKind::AlreadyExists.into()));
    }
    place.disk.create_directory(staging).map_err(|error| match error.cause.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => place.not_replaceable(format!(
            "this user may not create the new one beside it ({})",
            staging.display()
        )),
        _ => error.into(),
    })?;
    let permissions = fs::metadata(&place.target).map(|metadata| metadata.permissions());
    let copied = permissions.and_then(|permissions| fs::set_permissions(staging, permissions));
    copied.map_err(CheckpointError::io("create", staging))
}

/// A locked directory. Dropping it unlocks at once. Closing the handle is not enough: a child process
/// between `fork` and `exec` still holds a copy.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // If that fails, closing the file is all that is left.
        let _ = self.0.unlock();
    }
}

/// Locks a directory. Returns none on a file system without locks.
fn lock(path: &Path) -> Result<Option<Lock>> {
    let handle = File::open(path).map_err(CheckpointError::io("open", path))?;
    match handle.try_lock() {
        Ok(()) if is_at(&handle, path) => Ok(Some(Lock(handle))),
        Ok(()) | Err(TryLockError::WouldBlock) => Err(CheckpointError::Busy(path.to_path_buf())),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// True if `handle` is still what has the name `path`, and was not replaced since it was opened.
fn is_at(handle: &File, path: &Path) -> bool {
    match (handle.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => names::is_same(&ours, &there),
        _ => false,
    }
}

/// Returns the name of a directory beside `name` for this process.
fn sibling(name: &str, end: &str) -> OsString {
    format!(".{name}.{}{end}", std::process::id()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_released_while_a_process_that_is_being_started_holds_its_handle() {
        let directory = tempfile::tempdir().unwrap();
        let held = lock(directory.path()).unwrap().unwrap();
        assert!(matches!(lock(directory.path()), Err(CheckpointError::Busy(_))));
        let _inherited = held.0.try_clone().unwrap();
        drop(held);
        assert!(lock(directory.path()).unwrap().is_some());
    }
}
