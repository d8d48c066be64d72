//! Writes a safetensors file, tensor by tensor.

use crate::header::{LENGTH, with_length};
use crate::replacement::Replacement;
use crate::{CheckpointError, ElementType, Result, elements};
use model::TensorSpec;
use safetensors::SafeTensorError;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use storage::{Disk, File};

/// A file of tensors of one type. The header fixes the place of every tensor before the first is
/// written. A save may have more files than a process may open, so each is open only while it is
/// written.
pub(crate) struct FileWriter {
    disk: Arc<Disk>,
    path: PathBuf,
    /// The directory in which the file will be published.
    target: PathBuf,
    /// The header, until the file is created.
    header: Vec<u8>,
    /// The file, while it is open.
    file: Option<Arc<File>>,
    element_type: ElementType,
    slots: Vec<Slot>,
    /// Bytes written since the last flush.
    unflushed: u64,
}

/// Flush the file after this many bytes. The last flush, for which other ranks wait, then covers at
/// most as many.
const FLUSHED: u64 = 64 << 20;

/// A tensor's place in the file.
struct Slot {
    name: String,
    elements: usize,
    /// Offset of the first byte from the file's start.
    offset: u64,
    written: bool,
}

impl FileWriter {
    /// Returns a writer for the file `name`, which holds `tensors`. The first write creates the
    /// file.
    ///
    /// # Errors
    /// [`CheckpointError::Malformed`] if the format does not allow such a file.
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

    /// Returns the open file. Creates or reopens it if needed.
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

    /// Writes all of tensor `tensor` (its position in the file), row-major. Tensors may be written
    /// in any order; a second write replaces the first.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`]; [`CheckpointError::Elements`] if the size differs from the
    /// tensor's; [`CheckpointError::WeightNotFinite`]; [`CheckpointError::OutOfRange`].
    pub(crate) fn write(&mut self, tensor: usize, values: &[f32]) -> Result<()> {
        let (element_type, slot) = (self.element_type, &self.slots[tensor]);
        CheckpointError::check_range(&slot.name, slot.elements, &(0..slot.elements), values.len())?;
        if let Some(at) = elements::not_finite(values) {
            let (path, tensor, value) = (self.target.clone(), slot.name.clone(), values[at]);
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

    /// Returns the names of the tensors that were never written.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().filter(|slot| !slot.written).map(|slot| slot.name.as_str())
    }

    /// Blocks until all written data has reached the disk, then closes the file.
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

/// Returns the length and the header of a file with all tensors, in order. The data starts at a
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
    // Transformers requires this entry.
    let metadata = HashMap::from([("format".into(), "pt".into())]);
    let json = serde_json::to_vec(&Metadata::new(Some(metadata), infos.collect())?)?;
    Ok(with_length(json, LENGTH))
}
