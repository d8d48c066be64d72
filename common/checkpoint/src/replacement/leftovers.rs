//! The directory that is replaced, what is in it, and what killed processes have left beside it.

use super::{PARTIAL, REPLACED, lock, sibling};
use crate::{CheckpointError, Result, names};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::Disk;

/// A directory that may be replaced.
pub(super) struct Place {
    pub(super) disk: Arc<Disk>,
    /// The directory, without links.
    pub(super) target: PathBuf,
    /// The directory above it.
    pub(super) parent: PathBuf,
    /// Its name there.
    pub(super) name: String,
}

impl Place {
    /// Gives the directory `path` its name again if a process died between two renames.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if that process lives, [`CheckpointError::Disk`].
    pub(super) fn restore(path: &Path, disk: &Disk) -> Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        if fs::symlink_metadata(path).is_ok() {
            return Ok(());
        }
        let parent = storage::parent(path);
        let found = siblings(parent, &name.to_string_lossy(), REPLACED).unwrap_or_default();
        let Some(old) = found.first() else { return Ok(()) };
        let _lock = lock(old, Duration::ZERO)?;
        // The new directory was whole before the old one was renamed.
        let new = old.with_extension(&PARTIAL[1..]);
        let whole = if new.is_dir() { &new } else { old };
        disk.rename(whole, path)?;
        Ok(disk.flush_directory(parent)?)
    }

    /// The directory at `path`, which exists.
    pub(super) fn new(path: &Path, disk: Arc<Disk>) -> Result<Self> {
        let target = path.canonicalize().map_err(CheckpointError::io("open", path))?;
        match (target.parent(), target.file_name()) {
            (Some(parent), Some(name)) => {
                let (parent, name) = (parent.to_path_buf(), name.to_string_lossy().into_owned());
                Ok(Place { disk, target, parent, name })
            }
            _ => Err(CheckpointError::NotReplaceable { path: target, why: "it is the root".into() }),
        }
    }

    /// Puts right what killed saves have left of the directory `path`, if it is one of saved weights.
    ///
    /// # Errors
    /// As [`Place::restore`].
    pub(super) fn recover(path: &Path, disk: &Arc<Disk>) -> Result<()> {
        Place::restore(path, disk)?;
        let is_saved = entries(path).is_ok_and(|names| names.iter().any(|name| names::is_ours(name)));
        let Some(place) = is_saved.then(|| Place::new(path, disk.clone())).transpose()? else {
            return Ok(());
        };
        match lock(&place.target, Duration::ZERO)? {
            Some(_lock) => place.clear_leftovers(),
            None => Ok(()),
        }
    }

    /// True if nothing is in the directory.
    pub(super) fn is_empty(&self) -> Result<bool> {
        Ok(entries(&self.target)?.is_empty())
    }

    /// The path of a directory beside it that this process uses.
    pub(super) fn beside(&self, end: &str) -> PathBuf {
        self.parent.join(sibling(&self.name, end))
    }

    /// The error of a directory that cannot be replaced.
    pub(super) fn not_replaceable(&self, why: String) -> CheckpointError {
        CheckpointError::NotReplaceable { path: self.target.clone(), why }
    }

    /// Checks that the directory and what is in it may be moved.
    ///
    /// # Errors
    /// [`CheckpointError::NotReplaceable`], [`CheckpointError::NotAFile`], [`CheckpointError::Io`].
    pub(super) fn check(&self) -> Result<()> {
        let here = inspect(&self.target)?;
        if here.dev() != inspect(&self.parent)?.dev() {
            return Err(self.not_replaceable("a disk is mounted there".into()));
        }
        if std::env::current_dir().is_ok_and(|current| current == self.target) {
            return Err(self.not_replaceable("this program runs in it".into()));
        }
        if !is_writable(&self.target) {
            return Err(CheckpointError::io("write to", &self.target)(ErrorKind::PermissionDenied.into()));
        }
        for name in entries(&self.target)? {
            let path = self.target.join(&name);
            let found = inspect(&path)?;
            if found.is_dir() && names::is_ours(&name) {
                return Err(CheckpointError::NotAFile(path));
            }
            if found.is_dir() && found.dev() != here.dev() {
                return Err(self.not_replaceable(format!("a disk is mounted at {}", path.display())));
            }
            if found.is_dir() && !is_writable(&path) {
                return Err(self.not_replaceable(format!("this user may not move {}", path.display())));
            }
        }
        Ok(())
    }

    /// The names in the directory that are not this crate's.
    pub(super) fn others(&self) -> Result<Vec<OsString>> {
        Ok(entries(&self.target)?.into_iter().filter(|name| !names::is_ours(name)).collect())
    }

    /// Clears all that killed processes have left. The caller holds the lock.
    pub(super) fn clear_leftovers(&self) -> Result<()> {
        for end in [PARTIAL, REPLACED] {
            for old in siblings(&self.parent, &self.name, end)? {
                self.bring_others(&old)?;
                self.remove(&old)?;
            }
        }
        Ok(())
    }

    /// Moves what other programs have in `old`, whose place this directory has, to here. If a file of
    /// the same name is here, that of `old` stays where it is.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`] if it cannot be moved.
    pub(super) fn bring_others(&self, old: &Path) -> Result<()> {
        for name in entries(old)? {
            let (from, to) = (old.join(&name), self.target.join(&name));
            let is_ours = names::is_ours(&name) && !inspect(&from)?.is_dir();
            if !is_ours && fs::symlink_metadata(&to).is_err() {
                self.disk.rename(&from, &to)?;
            }
        }
        Ok(())
    }

    /// Removes what is left in `old` of this crate, and the second names of what is here; then `old`,
    /// if it is empty.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`] if this directory cannot be flushed before.
    pub(super) fn remove(&self, old: &Path) -> Result<()> {
        for name in entries(old)? {
            let from = old.join(&name);
            let (found, here) = (inspect(&from)?, fs::symlink_metadata(self.target.join(&name)));
            let is_here = here.is_ok_and(|here| names::is_same(&found, &here));
            if !found.is_dir() && (is_here || names::is_ours(&name)) {
                // Does no harm where it is.
                let _ = self.disk.unlink(&from);
            }
        }
        self.disk.flush_directory(&self.target)?;
        let _ = self.disk.remove_empty_directory(old);
        Ok(())
    }
}

/// The directories beside `name` whose names begin as [`sibling`]'s of some process and end with
/// `end`.
fn siblings(parent: &Path, name: &str, end: &str) -> Result<Vec<PathBuf>> {
    let is_sibling = |found: &OsString| {
        let stem = found.to_str().and_then(|found| found.strip_suffix(end)?.strip_prefix('.'));
        let process = stem.and_then(|stem| stem.strip_prefix(name)?.strip_prefix('.'));
        process.is_some_and(|process| process.parse::<u32>().is_ok())
    };
    let found = entries(parent)?.into_iter().filter(is_sibling);
    Ok(found.map(|found| parent.join(found)).filter(|path| path.is_dir()).collect())
}

/// Returns the names in a directory, sorted.
fn entries(path: &Path) -> Result<Vec<OsString>> {
    let names = || fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
    let mut names = names().map_err(CheckpointError::io("open", path))?;
    names.sort();
    Ok(names)
}

/// Returns what is at `path`, which may be a link.
fn inspect(path: &Path) -> Result<Metadata> {
    fs::symlink_metadata(path).map_err(CheckpointError::io("open", path))
}

/// True if this user may change the entries of a directory: of one that moves, `..` does.
fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}
