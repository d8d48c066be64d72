//! A recording's file while its run goes on.

use crate::recording::reading::Recording;
use crate::recording::{RecordingError, unreadable};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The file of a recording, read up to some byte. It stays the same file when the recording is
/// complete and gets its own name.
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
        let mut growth = Growth { file: File::open(&path).map_err(unreadable(&path))?, path };
        let bytes = growth.read_on()?;
        Ok((Recording::parse(&growth.path, bytes)?, growth))
    }

    /// Returns the bytes by which the file has grown since the last call.
    ///
    /// # Errors
    /// [`RecordingError::Io`].
    pub fn read_on(&mut self) -> Result<Vec<u8>, RecordingError> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).map_err(unreadable(&self.path))?;
        Ok(bytes)
    }
}

/// Returns the file that was written to last: `path`, the unfinished files of that name, or, if
/// `path` is one that is finished by now, the finished one. Returns `path` if there is none.
fn newest(path: &Path) -> PathBuf {
    let renamed = !path.exists() && path.extension().is_some_and(|extension| extension == "partial");
    let finished = if renamed { path.with_extension("") } else { path.into() };
    let dated = |path: PathBuf| Some((fs::metadata(&path).ok()?.modified().ok()?, path));
    let files = unfinished(path).unwrap_or_default().into_iter().chain([finished]);
    files.filter_map(dated).max().map_or_else(|| path.into(), |(_, path)| path)
}

/// Returns the unfinished files that are to become `path`.
fn unfinished(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let rest = path.file_name().unwrap_or_default().as_encoded_bytes().strip_prefix(name);
        let number = rest.and_then(|rest| rest.strip_suffix(b".partial"));
        if number.is_some_and(|number| number.iter().all(|byte| *byte == b'.' || byte.is_ascii_digit())) {
            found.push(path);
        }
    }
    Ok(found)
}
