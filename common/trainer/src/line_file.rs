//! A file of lines that others may read while a run writes it.

use events::lock;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
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

/// Bytes that are read at once to find the end of the last whole line.
const BLOCK: usize = 4096;

/// The file. If a line cannot be written, the run continues and no further line is written.
pub(crate) struct LineFile {
    path: PathBuf,
    /// The file, and the error that ended it.
    state: Mutex<(File, Option<io::Error>)>,
}

impl LineFile {
    /// Opens the file at `path`, which may be a terminal or a pipe. Before it appends to a file
    /// whose last line is torn, it cuts that line and prints a warning.
    ///
    /// # Errors
    /// If it cannot be written, or the last line cannot be read.
    pub(crate) fn open(path: PathBuf, mode: OpenMode) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        if file.metadata()?.is_file() {
            match mode {
                OpenMode::Replace => file.set_len(0)?,
                OpenMode::Append => cut_torn_line(&file, &path)?,
            }
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

/// Removes what follows the last newline of `file`, and prints a warning if that is anything. A run
/// whose disk was full has left part of a line there.
fn cut_torn_line(file: &File, path: &Path) -> io::Result<()> {
    let unread = |e: io::Error| io::Error::new(e.kind(), format!("its last line cannot be read: {e}"));
    let bytes = file.metadata()?.len();
    let whole = if bytes == 0 { 0 } else { whole_lines(&File::open(path).map_err(unread)?, bytes)? };
    if whole < bytes {
        file.set_len(whole)?;
        events::complain!("warning: the last line of {} was torn and is removed", path.display());
    }
    Ok(())
}

/// Returns the number of bytes up to the last newline among the first `bytes` of `file`, with it.
fn whole_lines(file: &File, bytes: u64) -> io::Result<u64> {
    let mut block = [0; BLOCK];
    let mut end = bytes;
    while end > 0 {
        let start = end.saturating_sub(BLOCK as u64);
        let read = &mut block[..(end - start) as usize];
        file.read_exact_at(read, start)?;
        if let Some(newline) = read.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_torn_last_line_is_cut_before_lines_are_appended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.jsonl");
        let long = "x".repeat(3 * BLOCK);
        for (before, kept) in [
            ("", ""),
            ("whole\n", "whole\n"),
            ("whole\ntorn", "whole\n"),
            ("torn", ""),
            (&*format!("whole\n{long}"), "whole\n"),
            (&*format!("{long}\n{}", &long[1..BLOCK]), &*format!("{long}\n")),
        ] {
            fs::write(&path, before).unwrap();
            let file = LineFile::open(path.clone(), OpenMode::Append).unwrap();
            assert_eq!(file.is_empty().unwrap(), kept.is_empty());
            file.write("next");
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{kept}next\n"));
        }
        LineFile::open(path.clone(), OpenMode::Replace).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }
}
