//! Errors of the file system.

use crate::fault::CallKind;
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;

/// A failed call: the operation, the file, the position and the cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot {call} {}{}: {cause}", path.display(), place(*.offset))]
pub struct Error {
    /// The call.
    pub call: CallKind,
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

/// Returns the remedy for `cause` if a limit of open files is reached; `None` for any other cause.
pub fn remedy_for_open_files(cause: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(cause)? {
        Errno::MFILE => {
            Some("This process may open no more files: raise its limit of open files (`ulimit -n`).")
        }
        Errno::NFILE => Some(
            "This machine may open no more files: end other programs, or raise its limit (`sysctl fs.file-max`).",
        ),
        _ => None,
    }
}

fn place(offset: Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!(" at byte {offset}"))
}
