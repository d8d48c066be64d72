//! Regular files: a tokenizer's files are read from nothing else.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Reads all of the regular file at `path`.
///
/// # Errors
/// The file system's; [`ErrorKind::NotSeekable`] if `path` leads to something else.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    // Opening a pipe would wait for its writer, and a device may have no end.
    if std::fs::metadata(path)?.is_file() {
        return std::fs::read(path);
    }
    Err(Error::new(ErrorKind::NotSeekable, "it is not a regular file"))
}
