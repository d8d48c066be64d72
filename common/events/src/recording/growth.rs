//! A recording's file while its run continues.

use crate::recording::reading::Recording;
use crate::recording::{RecordingError, open, unreadable};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The file of a recording, read up to some byte. It remains the same file when the completed
/// recording is renamed.
#[derive(Debug)]
pub struct Growth {
    file: File,
    path: PathBuf,
}

impl Growth {
    /// Opens the recording `path`, or the newest file under whose temporary name it is being
    /// written.
    ///
    /// # Errors
    /// [`RecordingError`], as of [`Recording::open`].
    pub fn open(path: &Path) -> Result<(Recording, Self), RecordingError> {
        let path = newest(path);
        let mut growth = Growth { file: open(&path)?, path };
        let bytes = growth.read_new()?;
        Ok((Recording::parse(&growth.path, bytes)?, growth))
    }

    /// Returns the bytes by which the file has grown since the last call.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn read_new(&mut self) -> Result<Vec<u8>, RecordingError> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).map_err(unreadable(&self.path))?;
        Ok(bytes)
    }
}

/// Returns the file that was written to last among `path`, the unfinished files of that name and,
/// if `path` is an unfinished file that has been completed, the completed file. Returns `path` if
/// none exists.
fn newest(path: &Path) -> PathBuf {
    let finished = if path.exists() { vec![path.into()] } else { finished(path) };
    let dated = |path: PathBuf| Some((fs::metadata(&path).ok()?.modified().ok()?, path));
    let files = unfinished(path).unwrap_or_default().into_iter().chain(finished);
    files.filter_map(dated).max().map_or_else(|| path.into(), |(_, path)| path)
}

/// Returns the names that the unfinished file `path` may have got by now: `NAME.partial` and
/// `NAME.1.partial` become `NAME`.
fn finished(path: &Path) -> Vec<PathBuf> {
    let stem = |path: &Path, end: fn(&str) -> bool| {
        path.extension().and_then(|found| found.to_str()).is_some_and(end).then(|| path.with_extension(""))
    };
    let name = stem(path, |end| end == "partial");
    let unnumbered = name.as_deref().and_then(|name| stem(name, |end| end.parse::<u32>().is_ok()));
    name.into_iter().chain(unnumbered).collect()
}

/// Returns the unfinished files that will be renamed to `path`.
fn unfinished(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let mut found = Vec::new();
    for entry in fs::read_dir(storage::parent(path))? {
        let path = entry?.path();
        let rest = path.file_name().unwrap_or_default().as_encoded_bytes().strip_prefix(name);
        let number = rest.and_then(|rest| rest.strip_suffix(b".partial"));
        if number.is_some_and(|number| number.iter().all(|byte| *byte == b'.' || byte.is_ascii_digit())) {
            found.push(path);
        }
    }
    Ok(found)
}
