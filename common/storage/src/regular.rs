//! Regular files. A pipe may never have a writer, and a device may never end: neither is read in
//! the place of a file.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the regular file at `path` with `options`. Does not wait for the other end of a pipe.
///
/// # Errors
/// The file system's; [`ErrorKind::NotSeekable`] if `path` leads to a pipe, a device or a
/// directory.
pub fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(ErrorKind::NotSeekable, "it is not a regular file"))
}

/// Reads all of the regular file at `path`.
///
/// # Errors
/// As [`open_regular`].
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(OpenOptions::new().read(true), path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
