//! The file in which a rank's bytes are stored on a disk.
//!
//! It is unlinked as soon as it is open, so its data never outlives the process. Each [`Extent`]
//! begins and ends on a page, so that whole extents bypass the page cache where the file system
//! allows that. A part of an extent that begins or ends within a page goes through the page cache.

use crate::Result;
use device::{Buffer, Lease};
use std::cell::Cell;
use std::path::Path;
use std::process;
use std::sync::Arc;
use storage::{Disk, File};

pub use storage::PAGE;

/// Threads per rank: the maximum number of concurrent transfers. They start in the order in which
/// they are queued, except that reads go first unless they read optimizer states.
const THREADS: usize = 2;

/// Number of names to try, in case other runs have left files of the same name.
const MAX_NAME_TRIES: u32 = 1000;

/// Returns `bytes`, rounded up to a multiple of [`PAGE`].
pub const fn paged(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE)
}

/// A part of a rank's swap file. The ledger counts its bytes until it is dropped.
pub struct Extent {
    pub(crate) offset: u64,
    bytes: usize,
    _lease: Lease,
}

impl Extent {
    /// Returns its number of bytes, a multiple of [`PAGE`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A rank's swap file.
pub(crate) struct Swap {
    pub(crate) disk: Disk,
    pub(crate) file: Arc<File>,
    /// The end of the last extent.
    end: Cell<u64>,
    /// The end of the space reserved on the disk.
    reserved: Cell<u64>,
}

impl Swap {
    /// Creates the file of rank `rank` in `directory`, which exists, and reserves `bytes` bytes.
    pub(crate) fn create(disk: Option<Disk>, directory: &Path, rank: u32, bytes: u64) -> Result<Self> {
        let disk = disk.unwrap_or_else(|| Disk::new(THREADS));
        let name = |try_: u32| format!(".offload-{}-{rank}-{try_}", process::id());
        let mut tries = 0;
        let file = loop {
            match disk.scratch(&directory.join(name(tries))) {
                Err(error)
                    if error.cause.kind() == std::io::ErrorKind::AlreadyExists && tries < MAX_NAME_TRIES =>
                {
                    tries += 1;
                }
                file => break file?,
            }
        };
        let swap = Swap { disk, file, end: Cell::new(0), reserved: Cell::new(0) };
        swap.reserve(bytes)?;
        Ok(swap)
    }

    /// Reserves space on the disk up to byte `end`.
    fn reserve(&self, end: u64) -> Result<()> {
        let reserved = self.reserved.get();
        if end > reserved {
            self.disk.reserve(&self.file, reserved, end - reserved)?;
            self.reserved.set(end);
        }
        Ok(())
    }

    /// Returns an extent for `lease`'s bytes at the end of the file.
    pub(crate) fn extend(&self, bytes: u64, lease: Lease) -> Result<Extent> {
        let offset = self.end.get();
        self.reserve(offset + bytes)?;
        self.end.set(offset + bytes);
        Ok(Extent { offset, bytes: bytes as usize, _lease: lease })
    }
}

/// A buffer in main memory whose first bytes a disk thread writes or reads.
pub struct DiskBuffer {
    pub(crate) buffer: Buffer,
    /// Number of bytes to write.
    pub(crate) out: usize,
    /// Number of bytes to read.
    pub(crate) back: usize,
}

impl AsRef<[u8]> for DiskBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.bytes()[..self.out]
    }
}

impl AsMut<[u8]> for DiskBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.bytes_mut()[..self.back]
    }
}
