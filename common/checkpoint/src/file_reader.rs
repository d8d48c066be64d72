//! Reads a safetensors file: the header, then any elements of any tensor.

use crate::elements::ElementType;
use crate::header::{self, LENGTH};
use crate::{CheckpointError, Result};
use safetensors::tensor::{Metadata, TensorInfo};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The longest header that the format allows, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// An open file whose header has been validated: the tensors follow each other without holes or
/// overlaps, each as long as its shape says, up to the file's end.
#[derive(Debug)]
pub(crate) struct FileReader {
    path: PathBuf,
    file: File,
    /// Offset of the data from the file's start, in bytes.
    data: u64,
    metadata: Metadata,
}

impl FileReader {
    /// Opens and validates the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = storage::open_regular(File::options().read(true), path);
        let file = file.map_err(CheckpointError::io("open", path))?;
        let bytes = file.metadata().map_err(CheckpointError::io("open", path))?.len();
        let header = read_header(path, &file, bytes)?;
        let data = (LENGTH + header.len()) as u64;
        let metadata = header::parse(&header).map_err(|error| CheckpointError::malformed(path, error))?;
        let expected = data.saturating_add(metadata.data_len() as u64);
        if bytes < expected {
            return Err(CheckpointError::Truncated { path: path.into(), expected, found: bytes });
        }
        if bytes > expected {
            let problem = format!("{} bytes follow its last tensor", bytes - expected);
            return Err(CheckpointError::malformed(path, problem));
        }
        Ok(FileReader { path: path.into(), file, data, metadata })
    }

    /// Returns the file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of all tensors, in the file's order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// Returns the shape and type of a tensor. `None` if the file lacks it.
    pub(crate) fn info(&self, tensor: &str) -> Option<&TensorInfo> {
        self.metadata.info(tensor)
    }

    /// Returns the type of a tensor's elements.
    ///
    /// # Errors
    /// [`CheckpointError::UnsupportedType`] if this crate does not read that type.
    pub(crate) fn stored(&self, tensor: &str, info: &TensorInfo) -> Result<ElementType> {
        ElementType::new(info.dtype).ok_or_else(|| CheckpointError::UnsupportedType {
            path: self.path.clone(),
            tensor: tensor.into(),
            found: info.dtype.to_string(),
        })
    }

    /// Fills `values` with elements `range` of the tensor that `info` describes.
    ///
    /// # Errors
    /// As [`FileReader::stored`]; [`CheckpointError::Elements`] if `range` leaves the tensor or is
    /// not as long as `values`; [`CheckpointError::Io`] if the disk fails.
    pub(crate) fn read(
        &self,
        name: &str,
        info: &TensorInfo,
        range: Range<usize>,
        values: &mut [f32],
    ) -> Result<()> {
        let stored = self.stored(name, info)?;
        CheckpointError::check_range(name, info.shape.iter().product(), &range, values.len())?;
        let tensor = self.data + info.data_offsets.0 as u64;
        let read = |bytes: &mut [u8], offset| self.file.read_exact_at(bytes, tensor + offset);
        stored.decode(range.start as u64, values, read).map_err(CheckpointError::io("read", &self.path))
    }
}

/// Reads the header's JSON. Allocates no more than the file's length.
fn read_header(path: &Path, file: &File, bytes: u64) -> Result<Vec<u8>> {
    let truncated = |expected| CheckpointError::Truncated { path: path.into(), expected, found: bytes };
    if bytes < LENGTH as u64 {
        return Err(truncated(LENGTH as u64));
    }
    let mut start = [0; LENGTH];
    file.read_exact_at(&mut start, 0).map_err(CheckpointError::io("read", path))?;
    if let Some(hint) = impostor(start) {
        let problem = "it is a file of another kind".into();
        return Err(CheckpointError::Malformed { path: path.into(), problem, hint });
    }
    let length = header::length(start);
    if length > LONGEST_HEADER {
        return Err(CheckpointError::malformed(path, format!("its header would be {length} bytes long")));
    }
    let data = LENGTH as u64 + length;
    if data > bytes {
        return Err(truncated(data));
    }
    let mut header = vec![0; length as usize];
    file.read_exact_at(&mut header, LENGTH as u64).map_err(CheckpointError::io("read", path))?;
    Ok(header)
}

/// Returns the remedy for a file of another format that often has this name. Recognises the format
/// by its first bytes.
fn impostor(start: [u8; LENGTH]) -> Option<&'static str> {
    let kinds: [(&[u8], &str); 4] = [
        (b"version ", "It looks like a placeholder of Git LFS: run `git lfs pull` where it was cloned."),
        (
            b"PK\x03\x04",
            "It looks like a PyTorch file: load it in Transformers and save it with `save_pretrained`.",
        ),
        (b"\x80\x02", "It looks like a pickle: load it in Transformers and save it with `save_pretrained`."),
        (b"<", "It looks like a web page: download the file itself."),
    ];
    // Except after `<` or a pickle's mark, a header that begins with these bytes would be longer
    // than the format allows.
    let too_long = header::length(start) > LONGEST_HEADER;
    kinds.iter().find(|(mark, _)| too_long && start.starts_with(mark)).map(|(_, hint)| *hint)
}
