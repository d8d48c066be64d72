//! A file of lines that others may read while a run writes it.

use events::lock;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;

/// What opening does with existing lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Keeps them.
    Append,
    /// Removes them.
    Replace,
}

impl OpenMode {
    /// Returns the mode of a run that continues another one if it `resumes`.
    pub(crate) fn of_run(resumes: bool) -> Self {
        if resumes { OpenMode::Append } else { OpenMode::Replace }
    }
}

/// The file. If a line cannot be written, the run continues and no further line is written.
pub(crate) struct LineFile {
    path: PathBuf,
    /// The file, and the error that ended it.
    state: Mutex<(File, Option<io::Error>)>,
}

impl LineFile {
    /// Opens the file at `path`, which may be a terminal or a pipe.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn open(path: PathBuf, mode: OpenMode) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        if mode == OpenMode::Replace && file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok(LineFile { path, state: Mutex::new((file, None)) })
    }

    /// True if the file has no lines.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        Ok(lock(&self.state).0.metadata()?.len() == 0)
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
