//! Errors of the file system.

use crate::fault::Kind;
use std::io;
use std::path::PathBuf;

/// A failed call: the operation, the file, the position and the cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot {call} {}{}: {cause}", path.display(), place(*.offset))]
pub struct Error {
    /// The call.
    pub call: Kind,
    /// The file or directory.
    pub path: PathBuf,
    /// The offset in the file at which a transfer stopped.
    pub offset: Option<u64>,
    /// The system's reason.
    pub cause: io::Error,
}

impl Error {
    /// True if the disk is full, or the user's quota is exhausted.
    pub fn is_full(&self) -> bool {
        matches!(self.cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

fn place(offset: Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!(" at byte {offset}"))
}
