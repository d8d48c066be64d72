//! An open file.

use crate::regular::open_regular;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Alignment of direct I/O, in memory and in files, in bytes. All common disks accept it.
pub const PAGE: usize = 4096;

/// An open file, which bypasses the page cache for whole pages where the file system allows it.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Handle for transfers that do not begin and end on pages.
    pub(crate) buffered: fs::File,
    direct: Option<fs::File>,
    /// Set once the file system has refused direct I/O although it allowed the open.
    refused: AtomicBool,
    /// End of the space reserved for the file. The file is never shorter.
    reserved: AtomicU64,
}

impl File {
    /// Creates a file for reading and writing.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true);
        Ok(File::with(path, options.clone().create_new(true).open(path)?, options))
    }

    /// Opens an existing regular file for reading and writing.
    pub(crate) fn reopen(path: &Path) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true);
        Ok(File::with(path, open_regular(&mut options, path)?, options))
    }

    /// Opens a regular file for reading.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        Ok(File::with(path, open_regular(&mut options, path)?, options))
    }

    fn with(path: &Path, buffered: fs::File, mut again: fs::OpenOptions) -> Self {
        // Many file systems refuse direct I/O; the page cache then serves all transfers.
        let direct = direct(&mut again).and_then(|options| options.open(path).ok());
        File {
            path: path.to_path_buf(),
            buffered,
            direct,
            refused: AtomicBool::new(false),
            reserved: AtomicU64::new(0),
        }
    }

    /// Returns the path by which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if whole pages bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct().is_some()
    }

    /// Reserves disk space for `bytes` bytes from byte `offset` on.
    pub(crate) fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.allocate(offset, bytes)?;
        self.reserved.fetch_max(offset + bytes, Ordering::Relaxed);
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        loop {
            match fallocate(&self.buffered, FallocateFlags::empty(), offset, bytes) {
                Err(Errno::INTR) => {}
                // Stacked file systems report an unsupported call as an invalid one.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return self.lengthen(offset + bytes),
                outcome => return outcome.map_err(io::Error::from),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.lengthen(offset + bytes)
    }

    fn lengthen(&self, bytes: u64) -> io::Result<()> {
        if self.buffered.metadata()?.len() < bytes { self.buffered.set_len(bytes) } else { Ok(()) }
    }

    /// Fails if the file has become shorter than the space reserved for it. The lost data would
    /// read as zero once something is written after it.
    pub(crate) fn check_length(&self) -> io::Result<()> {
        let reserved = self.reserved.load(Ordering::Relaxed);
        if reserved == 0 {
            return Ok(());
        }
        let length = self.buffered.metadata()?.len();
        if length >= reserved {
            return Ok(());
        }
        let words = format!("it was truncated to {length} of {reserved} bytes");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, words))
    }

    pub(crate) fn direct(&self) -> Option<&fs::File> {
        self.direct.as_ref().filter(|_| !self.refused.load(Ordering::Relaxed))
    }

    /// Uses the page cache from now on.
    pub(crate) fn refuse_direct(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
fn direct(options: &mut fs::OpenOptions) -> Option<&mut fs::OpenOptions> {
    use std::os::unix::fs::OpenOptionsExt;
    let flag = rustix::fs::OFlags::DIRECT.bits();
    Some(options.custom_flags(flag as i32))
}

#[cfg(not(target_os = "linux"))]
fn direct(_options: &mut fs::OpenOptions) -> Option<&mut fs::OpenOptions> {
    None
}
