//! Replaces files atomically: a reader sees the old file or the new one, never a half-written one.
//!
//! A new file is written under a temporary name in its directory, flushed to the disk, and renamed
//! over the old one; then the directory is flushed. On an error the temporary file is removed. The
//! next process that writes to the directory removes the temporary files of a killed one.

use crate::positioned::write_all_at;
use crate::{CheckpointError, Result};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// End of a temporary file's name, which is `.NAME.PROCESS.partial`.
const PARTIAL: &str = ".partial";

/// A directory in which files are replaced, by one writer at a time.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Holds the lock, and is flushed after a rename. None on systems that cannot open a directory.
    handle: Option<File>,
}

impl Directory {
    /// Opens `path`, creating it and the directories above it if need be, and locks it against
    /// other writers until it is dropped. On a filesystem without locks it locks nothing, and
    /// removes no temporary files of killed processes.
    ///
    /// # Errors
    /// [`CheckpointError::Busy`] if it is locked, [`CheckpointError::NotADirectory`] if it is
    /// something else, [`CheckpointError::Io`] if it cannot be created or opened.
    pub fn create(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            if path.exists() {
                return Err(CheckpointError::NotADirectory(path.to_path_buf()));
            }
            fs::create_dir_all(path).map_err(CheckpointError::io("create", path))?;
            flush_parent(path)?;
        }
        let directory = Directory { path: path.to_path_buf(), handle: open_directory(path)? };
        if directory.lock()? {
            directory.remove_leftovers();
        }
        Ok(directory)
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates an empty file that is called `name` once published.
    ///
    /// # Errors
    /// [`CheckpointError::NotAFile`] if a directory has that name, [`CheckpointError::Io`] if it
    /// cannot be created.
    pub fn file(&self, name: &str) -> Result<NewFile> {
        let target = self.path.join(name);
        if target.is_dir() {
            return Err(CheckpointError::NotAFile(target));
        }
        let temporary = self.path.join(temporary(name));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .map_err(CheckpointError::io("create", &temporary))?;
        Ok(NewFile { file, temporary, target, published: false })
    }

    /// Flushes `files` to the disk and then gives each its final name, in the order given,
    /// replacing a file of that name. A link of that name is replaced, not the file it points to.
    /// An error before the first renaming changes nothing.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] naming the file that could not be flushed or renamed.
    pub fn publish(&self, files: Vec<NewFile>) -> Result<()> {
        for new in &files {
            new.file.sync_all().map_err(CheckpointError::io("flush", &new.target))?;
        }
        for mut new in files {
            fs::rename(&new.temporary, &new.target).map_err(CheckpointError::io("replace", &new.target))?;
            new.published = true;
        }
        flush(self.handle.as_ref(), &self.path)
    }

    /// Takes the lock; returns false on a filesystem without locks.
    fn lock(&self) -> Result<bool> {
        match self.handle.as_ref().map(File::try_lock) {
            Some(Ok(())) => Ok(true),
            Some(Err(TryLockError::WouldBlock)) => Err(CheckpointError::Busy(self.path.clone())),
            Some(Err(TryLockError::Error(_))) | None => Ok(false),
        }
    }

    /// Removes the temporary files of killed processes. This process holds the lock, so no other
    /// one writes here. A file that cannot be removed does no harm.
    fn remove_leftovers(&self) {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_temporary)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns the temporary name of `name`, for this process.
fn temporary(name: &str) -> String {
    format!(".{name}.{}{PARTIAL}", std::process::id())
}

/// True if [`temporary`] returns `name` in some process.
fn is_temporary(name: &str) -> bool {
    let stem = name.strip_prefix('.').and_then(|name| name.strip_suffix(PARTIAL));
    let process = stem.and_then(|stem| stem.rsplit_once('.')).map(|(_, process)| process);
    process.is_some_and(|process| process.parse::<u32>().is_ok())
}

/// A file that is being written and has no final name yet. Dropping it before it is published
/// removes it.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    published: bool,
}

impl NewFile {
    /// Writes `bytes` at `offset`, in bytes from the file's start; bytes that are never written are
    /// zeros.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], with the final name: the disk is full, for instance.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        write_all_at(&self.file, bytes, offset).map_err(CheckpointError::io("write", &self.target))
    }
}

impl NewFile {
    /// Blocks until all bytes written so far are on the disk.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], with the final name.
    pub fn flush(&self) -> Result<()> {
        self.file.sync_data().map_err(CheckpointError::io("flush", &self.target))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.published {
            // A drop cannot report an error; the next writer removes the file.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(unix)]
fn open_directory(path: &Path) -> Result<Option<File>> {
    File::open(path).map(Some).map_err(CheckpointError::io("open", path))
}

#[cfg(not(unix))]
fn open_directory(_path: &Path) -> Result<Option<File>> {
    Ok(None)
}

fn flush_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    flush(open_directory(parent)?.as_ref(), parent)
}

fn flush(directory: Option<&File>, path: &Path) -> Result<()> {
    directory.map_or(Ok(()), File::sync_all).map_err(CheckpointError::io("flush", path))
}
