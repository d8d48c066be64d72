//! A file that gets its name only when it is complete: a reader finds the old file or the new one,
//! even after the machine has lost power.

use crate::disk::Disk;
use crate::error::Error;
use crate::file::File;
use crate::{CallKind, Result, Ticket, parent};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of temporary names that are tried for a file.
const NAMES: u32 = 1000;

/// A file in progress. It has a temporary name next to its final one, and keeps it unless
/// [`Publication::publish`] or [`Publication::discard`] is called.
pub struct Publication {
    disk: Arc<Disk>,
    file: Arc<File>,
    path: PathBuf,
    length: u64,
}

impl Publication {
    /// Creates a file that will become `path`. Its temporary name is `path.partial`, with a number
    /// if that exists. The umask determines its permissions.
    ///
    /// # Errors
    /// The file system's. Refuses a `path` that is not a file, such as a directory or a device.
    pub fn create(disk: &Arc<Disk>, path: &Path) -> Result<Self> {
        let refused = |cause| Error { call: CallKind::Create, path: path.to_path_buf(), offset: None, cause };
        // The link's target is replaced, not the link, whose target need not exist.
        let linked = || path.read_link().map(|target| parent(path).join(target));
        let path = path.canonicalize().or_else(|_| linked()).unwrap_or_else(|_| path.to_path_buf());
        if path.file_name().is_none() || path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(refused(io::Error::new(ErrorKind::InvalidInput, "it names no file")));
        }
        for number in 0..NAMES {
            match disk.create(&temporary(&path, number)) {
                Err(error) if error.cause.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => return Ok(Publication { disk: disk.clone(), file, path, length: 0 }),
            }
        }
        Err(refused(io::Error::new(ErrorKind::AlreadyExists, "too many unfinished files of this name exist")))
    }

    /// Writes `bytes` as the file `path`, completely or not at all.
    ///
    /// # Errors
    /// As [`Publication::create`], [`Publication::append`] and [`Publication::publish`].
    pub fn write(disk: &Arc<Disk>, path: &Path, bytes: Vec<u8>) -> Result<()> {
        let mut file = Publication::create(disk, path)?;
        file.append(bytes).wait().and_then(|_| file.publish()).inspect_err(|_| {
            // The caller gets the first error.
            let _ = file.discard();
        })
    }

    /// Returns the file's temporary path.
    pub fn partial(&self) -> &Path {
        self.file.path()
    }

    /// Queues a write that appends `bytes`. The ticket returns them.
    pub fn append(&mut self, bytes: Vec<u8>) -> Ticket<Vec<u8>> {
        let place = self.length;
        self.length += bytes.len() as u64;
        self.disk.write(&self.file, place, bytes)
    }

    /// Blocks until the file's bytes have reached the disk, gives the file its final name, and
    /// blocks until that has reached the disk as well.
    ///
    /// # Errors
    /// The file system's.
    pub fn publish(&self) -> Result<()> {
        self.disk.flush(&self.file)?;
        self.disk.rename(self.partial(), &self.path)?;
        self.disk.flush_directory(parent(&self.path))
    }

    /// Removes the file in progress.
    ///
    /// # Errors
    /// The file system's.
    pub fn discard(self) -> Result<()> {
        self.disk.unlink(self.partial())
    }
}

fn temporary(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(if number == 0 { ".partial".into() } else { format!(".{number}.partial") });
    name.into()
}
