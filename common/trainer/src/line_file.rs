//! A file of lines that others may read while a run writes it.

use events::lock;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;

/// The file. If a line cannot be written, the run continues and no further line is written.
pub(crate) struct LineFile {
    path: PathBuf,
    /// The file, and the error that ended it.
    state: Mutex<(File, Option<io::Error>)>,
}

impl LineFile {
    /// Opens the file at `path`, which may be a terminal or a pipe, to append to it or to replace
    /// its contents. Returns the file, and true if it is empty.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn open(path: PathBuf, appends: bool) -> io::Result<(Self, bool)> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        if !appends && file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        let is_empty = file.metadata()?.len() == 0;
        Ok((LineFile { path, state: Mutex::new((file, None)) }, is_empty))
    }

    /// Writes a line, unless an earlier one has failed.
    pub(crate) fn write(&self, line: &str) {
        let (file, error) = &mut *lock(&self.state);
        if error.is_none() {
            *error = file.write_all(format!("{line}\n").as_bytes()).err();
        }
    }

    /// Blocks until the lines are on disk. Returns a message if the file is incomplete.
    pub(crate) fn problem(&self) -> Option<String> {
        let (file, error) = &mut *lock(&self.state);
        // A terminal or a pipe has nothing to flush.
        let flushed = file.sync_all().err().filter(|error| error.kind() != io::ErrorKind::InvalidInput);
        let error = error.take().or(flushed)?;
        Some(format!("{} is incomplete: {error}", self.path.display()))
    }
}
