//! A journal of the changes requested from a disk. Tests derive from it the state that a loss of
//! power leaves at any moment.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A change to the file system, or a guarantee that changes have reached the disk. A change is
/// recorded before it is made, a flush after it has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file was created.
    Create(PathBuf),
    /// Bytes were written at an offset.
    Write(PathBuf, u64, Vec<u8>),
    /// A file's bytes have reached the disk.
    Flush(PathBuf),
    /// A directory was created.
    CreateDirectory(PathBuf),
    /// A directory's entries have reached the disk.
    FlushDirectory(PathBuf),
    /// A file or directory was renamed.
    Rename(PathBuf, PathBuf),
    /// Two directories exchanged names.
    Exchange(PathBuf, PathBuf),
    /// A file got a second name.
    Link(PathBuf, PathBuf),
    /// A file, or a directory and its contents, was removed.
    Remove(PathBuf),
}

/// The changes so far, if they are recorded.
#[derive(Default)]
pub(crate) struct Journal(Option<Mutex<Vec<Change>>>);

impl Journal {
    /// Returns a journal that records changes.
    pub(crate) fn recording() -> Self {
        Journal(Some(Mutex::default()))
    }

    pub(crate) fn note(&self, change: impl FnOnce() -> Change) {
        if let Some(changes) = &self.0 {
            changes.lock().unwrap_or_else(PoisonError::into_inner).push(change());
        }
    }

    pub(crate) fn changes(&self) -> Vec<Change> {
        let Some(changes) = &self.0 else { return Vec::new() };
        changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
