//! The directory that is replaced, its contents, and files left next to it by killed processes.

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
pub(super) struct ReplacedDirectory {
    pub(super) disk: Arc<Disk>,
    /// Path of the directory, with links resolved.
    pub(super) target: PathBuf,
    /// The parent directory.
    pub(super) parent: PathBuf,
    /// The directory's name in its parent.
    pub(super) name: String,
}

impl ReplacedDirectory {
    /// Restores the name of the directory `path` if a process died between two renames.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if that process is still alive, [`CheckpointError::Disk`].
    pub(super) fn restore(path: &Path, disk: &Disk) -> Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        if fs::symlink_metadata(path).is_ok() {
            return Ok(());
        }
        let parent = storage::parent(path);
        let found = siblings(parent, &name.to_string_lossy(), REPLACED).unwrap_or_default();
        let Some(old) = found.first() else { return Ok(()) };
        let _lock = lock(old, Duration::ZERO)?;
        // The new directory was complete before the old one was renamed.
        let new = old.with_extension(&PARTIAL[1..]);
        let whole = if new.is_dir() { &new } else { old };
        disk.rename(whole, path)?;
        Ok(disk.flush_directory(parent)?)
    }

    /// Describes the directory at `path`, which exists.
    pub(super) fn new(path: &Path, disk: Arc<Disk>) -> Result<Self> {
        let target = path.canonicalize().map_err(CheckpointError::io("open", path))?;
        match (target.parent(), target.file_name()) {
            (Some(parent), Some(name)) => {
                let (parent, name) = (parent.to_path_buf(), name.to_string_lossy().into_owned());
                Ok(ReplacedDirectory { disk, target, parent, name })
            }
            _ => Err(CheckpointError::NotReplaceable { path: target, why: "it is the root".into() }),
        }
    }

    /// Recovers files that killed saves left behind for the directory `path`, if it holds saved
    /// weights.
    ///
    /// # Errors
    /// As [`ReplacedDirectory::restore`].
    pub(super) fn recover(path: &Path, disk: &Arc<Disk>) -> Result<()> {
        ReplacedDirectory::restore(path, disk)?;
        let is_saved = entries(path).is_ok_and(|names| names.iter().any(|name| names::is_weights(name)));
        if !is_saved || ReplacedDirectory::leftovers(path).next().is_none() {
            return Ok(());
        }
        let replaced = ReplacedDirectory::new(path, disk.clone())?;
        match lock(&replaced.target, Duration::ZERO)? {
            Some(_lock) => replaced.clear_leftovers(),
            None => Ok(()),
        }
    }

    /// Returns the directories that killed saves to `path` left behind next to it, as far as this
    /// user may list them.
    pub(super) fn leftovers(path: &Path) -> impl Iterator<Item = PathBuf> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let of = move |end| match &name {
            Some(name) => siblings(storage::parent(path), name, end).unwrap_or_default(),
            None => Vec::new(),
        };
        [PARTIAL, REPLACED].into_iter().flat_map(of)
    }

    /// True if the directory is empty.
    pub(super) fn is_empty(&self) -> Result<bool> {
        Ok(entries(&self.target)?.is_empty())
    }

    /// Returns the path of a sibling directory that this process uses.
    pub(super) fn beside(&self, end: &str) -> PathBuf {
        self.parent.join(sibling(&self.name, end))
    }

    /// Returns the error for a directory that cannot be replaced.
    pub(super) fn not_replaceable(&self, why: String) -> CheckpointError {
        CheckpointError::NotReplaceable { path: self.target.clone(), why }
    }

    /// Checks that the directory and its contents may be moved.
    ///
    /// # Errors
    /// [`CheckpointError::NotReplaceable`], [`CheckpointError::NotAFile`], [`CheckpointError::Io`].
    pub(super) fn check(&self) -> Result<()> {
        let here = inspect(&self.target)?;
        if here.dev() != inspect(&self.parent)?.dev() {
            return Err(self.not_replaceable("a disk is mounted there".into()));
        }
        if let Ok(current) = std::env::current_dir()
            && let Ok(below) = current.strip_prefix(&self.target)
        {
            let within = if below == Path::new("") { "it" } else { "a directory below it" };
            return Err(self.not_replaceable(format!("this program runs in {within}")));
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

    /// Returns the names in the directory that do not belong to this crate.
    pub(super) fn others(&self) -> Result<Vec<OsString>> {
        Ok(entries(&self.target)?.into_iter().filter(|name| !names::is_ours(name)).collect())
    }

    /// Removes everything that killed processes left behind. The caller holds the lock.
    pub(super) fn clear_leftovers(&self) -> Result<()> {
        ReplacedDirectory::leftovers(&self.target).try_for_each(|old| {
            self.bring_others(&old)?;
            self.remove(&old)
        })
    }

    /// Moves other programs' files here from `old`, whose place this directory has taken. If a file
    /// of the same name exists here, the one in `old` stays where it is.
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

    /// Removes this crate's remaining files from `old`, and second names of files that are here.
    /// Then removes `old` if it is empty.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`] if this directory cannot be flushed first.
    pub(super) fn remove(&self, old: &Path) -> Result<()> {
        for name in entries(old)? {
            let from = old.join(&name);
            let (found, here) = (inspect(&from)?, fs::symlink_metadata(self.target.join(&name)));
            let is_here = here.is_ok_and(|here| names::is_same(&found, &here));
            if !found.is_dir() && (is_here || names::is_ours(&name)) {
                // Harmless if it stays.
                let _ = self.disk.unlink(&from);
            }
        }
        self.disk.flush_directory(&self.target)?;
        let _ = self.disk.remove_empty_directory(old);
        Ok(())
    }
}

/// Returns the directories next to `name` whose names begin like those of [`sibling`], for any
/// process, and end with `end`.
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

/// Returns the metadata of `path` itself, without following a link.
fn inspect(path: &Path) -> Result<Metadata> {
    fs::symlink_metadata(path).map_err(CheckpointError::io("open", path))
}

/// True if this user may change a directory's entries. When a directory moves, its entry `..`
/// changes.
fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}
