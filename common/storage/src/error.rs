//! What a file system refuses.

use crate::fault::Kind;
use std::io;
use std::path::PathBuf;

/// A call that failed: what it was to do, to which file, where, and why not.
#[derive(Debug, thiserror::Error)]
#[error("cannot {call} {}{}: {cause}", path.display(), place(*.offset))]
pub struct Error {
    /// The call.
    pub call: Kind,
    /// The file or directory.
    pub path: PathBuf,
    /// The byte of the file at which a transfer stopped.
    pub offset: Option<u64>,
    /// The system's reason.
    pub cause: io::Error,
}

impl Error {
    /// True if the disk, or the user's share of it, is full.
    pub fn is_full(&self) -> bool {
        matches!(self.cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

fn place(offset: Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!(" at byte {offset}"))
}
