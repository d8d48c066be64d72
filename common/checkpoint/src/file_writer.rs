//! Writes a safetensors file, tensor by tensor.

use crate::replacement::Replacement;
use crate::{CheckpointError, ElementType, Result, elements};
use model::TensorSpec;
use safetensors::SafeTensorError;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use storage::{Disk, File};

/// Bytes that the header's length takes at the start of a file.
const LENGTH: usize = 8;

/// A file of tensors of one type. The header fixes every tensor's place before the first is
/// written. A save may have more files than a process may have open, so each is open only while it
/// is written.
pub(crate) struct FileWriter {
    disk: Arc<Disk>,
    path: PathBuf,
    /// The directory that the file will be in.
    target: PathBuf,
    /// The header until the file is created.
    header: Vec<u8>,
    /// The file while it is open.
    file: Option<Arc<File>>,
    element_type: ElementType,
    slots: Vec<Slot>,
    /// Bytes written since the latest flush.
    unflushed: u64,
}

/// Bytes after which the file is flushed, so that the last flush, for which other ranks wait, has
/// at most as many.
const FLUSHED: u64 = 64 << 20;

/// A tensor's place in the file.
struct Slot {
    name: String,
    elements: usize,
    /// First byte, from the file's start.
    offset: u64,
    written: bool,
}

impl FileWriter {
    /// Returns the writer of the file `name` of `tensors`, which the first write creates.
    ///
    /// # Errors
    /// [`CheckpointError::Malformed`] if the format allows no such file.
    pub(crate) fn new(
        directory: &Replacement,
        name: &str,
        tensors: &[TensorSpec],
        element_type: ElementType,
    ) -> Result<Self> {
        let header = header(tensors, element_type)
            .map_err(|error| CheckpointError::malformed(&directory.path().join(name), error))?;
        let mut offset = header.len() as u64;
        let slot = |tensor: &TensorSpec| {
            let (name, elements) = (tensor.name.clone(), tensor.elements());
            let slot = Slot { name, elements, offset, written: false };
            offset += (elements * element_type.bytes()) as u64;
            slot
        };
        let slots = tensors.iter().map(slot).collect();
        let (disk, path) = (directory.disk().clone(), directory.file_path(name));
        let target = directory.path().to_path_buf();
        Ok(FileWriter { disk, path, target, header, file: None, element_type, slots, unflushed: 0 })
    }

    /// Returns the file, and creates or opens it if need be.
    fn open(&mut self) -> Result<Arc<File>> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = match std::mem::take(&mut self.header) {
            none if none.is_empty() => self.disk.reopen(&self.path)?,
            header => {
                let file = self.disk.create(&self.path)?;
                self.disk.write_now(&file, 0, &header)?;
                file
            }
        };
        Ok(self.file.insert(file).clone())
    }

    /// Writes the whole of the tensor with this number in the file, row-major, in any order; a
    /// second write replaces the first.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`]; [`CheckpointError::Elements`] if it is of another size;
    /// [`CheckpointError::WeightNotFinite`]; [`CheckpointError::OutOfRange`].
    pub(crate) fn write(&mut self, tensor: usize, values: &[f32]) -> Result<()> {
        let (element_type, slot) = (self.element_type, &self.slots[tensor]);
        CheckpointError::check_range(&slot.name, slot.elements, &(0..slot.elements), values.len())?;
        if let Some(value) = elements::not_finite(values) {
            let (path, tensor) = (self.target.clone(), slot.name.clone());
            return Err(CheckpointError::WeightNotFinite { path, tensor, value });
        }
        if let Some((value, most)) = elements::out_of_range(element_type, values) {
            return Err(CheckpointError::OutOfRange { tensor: slot.name.clone(), value, element_type, most });
        }
        let (offset, file) = (slot.offset, self.open()?);
        let disk = &self.disk;
        elements::encode(element_type, values, |at, bytes| disk.write_now(&file, offset + at, bytes))?;
        self.slots[tensor].written = true;
        self.unflushed += (values.len() * element_type.bytes()) as u64;
        if self.unflushed >= FLUSHED {
            self.disk.flush(&file)?;
            self.unflushed = 0;
        }
        Ok(())
    }

    /// The names of the tensors that were never written.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().filter(|slot| !slot.written).map(|slot| slot.name.as_str())
    }

    /// Blocks until what is written is on the disk, and closes the file.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`].
    pub(crate) fn close(&mut self) -> Result<()> {
        self.unflushed = 0;
        match self.file.take() {
            Some(file) => Ok(self.disk.flush(&file)?),
            None => Ok(()),
        }
    }
}

/// Returns the length and the header of the file: all tensors, in their order. The data starts at a
/// multiple of 8 bytes.
fn header(
    tensors: &[TensorSpec],
    element_type: ElementType,
) -> std::result::Result<Vec<u8>, SafeTensorError> {
    let mut end = 0;
    let infos = tensors.iter().map(|TensorSpec { name, shape }| {
        let start = end;
        end += shape.iter().product::<usize>() * element_type.bytes();
        let (dtype, shape) = (element_type.dtype(), shape.clone());
        (name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    });
    // Transformers asks for it.
    let metadata = HashMap::from([("format".into(), "pt".into())]);
    let json = serde_json::to_vec(&Metadata::new(Some(metadata), infos.collect())?)?;
    Ok(with_length(json, LENGTH))
}

/// Returns the header `json` after its length. Spaces pad it, so that the data, which follows,
/// starts at a multiple of `alignment` bytes.
pub(crate) fn with_length(mut json: Vec<u8>, alignment: usize) -> Vec<u8> {
    json.resize((LENGTH + json.len()).next_multiple_of(alignment) - LENGTH, b' ');
    [&(json.len() as u64).to_le_bytes()[..], &json].concat()
}
