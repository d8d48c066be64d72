//! Writes a safetensors file, tensor by tensor.

use crate::atomic::{Directory, NewFile};
use crate::{CheckpointError, Result, elements};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};
use std::collections::HashMap;

/// Bytes that the header's length takes at the start of a file.
const LENGTH: usize = 8;

/// A file of tensors in F32. The header fixes every tensor's place before the first is written.
#[derive(Debug)]
pub(crate) struct FileWriter {
    file: NewFile,
    slots: Vec<Slot>,
    /// Bytes written since the latest flush.
    unflushed: u64,
}

/// Bytes after which the file is flushed, so that the last flush, for which other ranks wait, has
/// at most as many.
const FLUSHED: u64 = 64 << 20;

/// A tensor's place in the file.
#[derive(Debug)]
struct Slot {
    name: String,
    elements: usize,
    /// First byte, from the file's start.
    offset: u64,
    written: bool,
}

impl FileWriter {
    /// Creates a file that is called `name` once published, of `tensors` by name and shape, with
    /// one entry of metadata.
    ///
    /// # Errors
    /// As [`Directory::file`] and [`NewFile::write_at`].
    pub(crate) fn create(
        directory: &Directory,
        name: &str,
        tensors: Vec<(String, Vec<usize>)>,
        metadata: (&str, &str),
    ) -> Result<Self> {
        let file = directory.file(name)?;
        let header = header(&tensors, metadata)
            .map_err(|error| CheckpointError::malformed(&directory.path().join(name), error))?;
        file.write_at(&header, 0)?;
        let mut offset = header.len() as u64;
        let slot = |(name, shape): (String, Vec<usize>)| {
            let elements = shape.iter().product();
            let slot = Slot { name, elements, offset, written: false };
            offset += (elements * size_of::<f32>()) as u64;
            slot
        };
        Ok(FileWriter { file, slots: tensors.into_iter().map(slot).collect(), unflushed: 0 })
    }

    /// Writes the whole of the tensor with this number, row-major, in any order; a second write
    /// replaces the first.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] if the system refuses; [`CheckpointError::UnknownTensor`] and
    /// [`CheckpointError::Elements`] if there is no such tensor, or it is of another size.
    pub(crate) fn write(&mut self, tensor: usize, values: &[f32]) -> Result<()> {
        let tensors = self.slots.len();
        let slot = self.slots.get_mut(tensor).ok_or(CheckpointError::UnknownTensor { tensor, tensors })?;
        if values.len() != slot.elements {
            return Err(slot.wrong_length(values.len()));
        }
        self.file.write_at(&elements::encode(values), slot.offset)?;
        slot.written = true;
        self.unflushed += size_of_val(values) as u64;
        if self.unflushed >= FLUSHED {
            self.file.flush()?;
            self.unflushed = 0;
        }
        Ok(())
    }

    /// Returns the complete file, to be published.
    ///
    /// # Errors
    /// [`CheckpointError::Incomplete`] if a tensor was never written.
    pub(crate) fn complete(self) -> Result<NewFile> {
        let mut missing = self.slots.iter().filter(|slot| !slot.written);
        match missing.next() {
            None => Ok(self.file),
            Some(first) => Err(CheckpointError::Incomplete {
                missing: 1 + missing.count(),
                tensors: self.slots.len(),
                first: first.name.clone(),
            }),
        }
    }
}

impl Slot {
    fn wrong_length(&self, given: usize) -> CheckpointError {
        CheckpointError::Elements {
            tensor: self.name.clone(),
            elements: self.elements,
            start: 0,
            end: self.elements,
            given,
        }
    }
}

/// Returns the length and the header of the file: all tensors in F32, in their order. Spaces pad
/// it, so that the data starts at a multiple of 8 bytes.
fn header(
    tensors: &[(String, Vec<usize>)],
    (key, word): (&str, &str),
) -> std::result::Result<Vec<u8>, SafeTensorError> {
    let mut end = 0;
    let infos = tensors.iter().map(|(name, shape)| {
        let start = end;
        end += shape.iter().product::<usize>() * size_of::<f32>();
        (name.clone(), TensorInfo { dtype: Dtype::F32, shape: shape.clone(), data_offsets: (start, end) })
    });
    let metadata = HashMap::from([(key.into(), word.into())]);
    let mut json = serde_json::to_vec(&Metadata::new(Some(metadata), infos.collect())?)?;
    json.resize(json.len().next_multiple_of(LENGTH), b' ');
    Ok([&(json.len() as u64).to_le_bytes()[..], &json].concat())
}
