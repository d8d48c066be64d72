//! Saving a model.

use crate::atomic::{Directory, NewFile};
use crate::{CONFIG, CheckpointError, Result, WEIGHTS, elements, tokenizer};
use model::{Layout, ModelConfig, TensorId};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Bytes that the header's length takes at the start of a safetensors file.
const LENGTH: usize = 8;

/// Saves a model in the Hugging Face layout, one tensor at a time: weights that are spread over ranks are gathered unit
/// by unit and never all in memory.
///
/// The files appear under their final names in [`Writer::finish`], the weights last: where a new `model.safetensors`
/// is, everything else is too. Dropped before that, or after an error, it leaves the directory as it was.
#[derive(Debug)]
pub struct Writer {
    directory: Directory,
    weights: NewFile,
    slots: Vec<Slot>,
    /// The other files, by name: small, and written at the end.
    companions: BTreeMap<String, Vec<u8>>,
}

/// A tensor's place in the file.
#[derive(Debug)]
struct Slot {
    name: String,
    elements: usize,
    /// First byte, from the file's start.
    offset: u64,
    written: bool,
}

impl Writer {
    /// Tries whether a model could be saved to the directory `path`, before hours are spent on training it. Creates the
    /// directory; leaves nothing else.
    ///
    /// # Errors
    /// As [`Directory::create`] and [`Directory::file`].
    pub fn probe(path: impl AsRef<Path>) -> Result<()> {
        Directory::create(path.as_ref())?.file(WEIGHTS).map(drop)
    }

    /// Starts saving the model of `config`, whose tensors are `layout`'s, to the directory `path`; creates it if need
    /// be. Files of the same names are replaced at the end, other files stay.
    ///
    /// # Errors
    /// As [`Directory::create`] and [`Directory::file`].
    pub fn create(path: impl AsRef<Path>, config: &ModelConfig, layout: &Layout) -> Result<Self> {
        let directory = Directory::create(path.as_ref())?;
        let weights = directory.file(WEIGHTS)?;
        let header = header(layout)
            .map_err(|error| CheckpointError::malformed(&path.as_ref().join(WEIGHTS), error))?;
        weights.write_at(&header, 0)?;
        let slots = slots(layout, header.len() as u64);
        Ok(Writer { directory, weights, slots, companions: companions(config) })
    }

    /// Writes a whole tensor, row-major. The order of tensors is free; of a tensor written twice, the later values stay.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] if the disk does not take it; [`CheckpointError::UnknownTensor`] and
    /// [`CheckpointError::Elements`] if the layout has no such tensor, or one of another size.
    pub fn write(&mut self, tensor: TensorId, values: &[f32]) -> Result<()> {
        let tensors = self.slots.len();
        let slot = self.slots.get_mut(tensor).ok_or(CheckpointError::UnknownTensor { tensor, tensors })?;
        if values.len() != slot.elements {
            return Err(slot.wrong_length(values.len()));
        }
        self.weights.write_at(&elements::encode(values), slot.offset)?;
        slot.written = true;
        Ok(())
    }

    /// Adds a small file beside the weights, replacing what this writer would have written under that name: the
    /// tokenizer of the model that training started from, for instance. `name` is a plain file name.
    pub fn attach(&mut self, name: &str, contents: impl Into<Vec<u8>>) {
        self.companions.insert(name.into(), contents.into());
    }

    /// Flushes everything to the disk and puts it in place.
    ///
    /// # Errors
    /// [`CheckpointError::Incomplete`] if a tensor was never written; otherwise as [`Directory::publish`].
    pub fn finish(self) -> Result<()> {
        self.check_complete()?;
        let mut files = Vec::new();
        for (name, contents) in &self.companions {
            let file = self.directory.file(name)?;
            file.write_at(contents, 0)?;
            files.push(file);
        }
        files.push(self.weights);
        self.directory.publish(files)
    }

    fn check_complete(&self) -> Result<()> {
        let mut missing = self.slots.iter().filter(|slot| !slot.written);
        match missing.next() {
            None => Ok(()),
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

/// Length and header of the safetensors file: all tensors in F32, in the layout's order. Padded with spaces, so that
/// the data starts at a multiple of 8 bytes. Transformers asks for the metadata `format: pt`.
fn header(layout: &Layout) -> std::result::Result<Vec<u8>, safetensors::SafeTensorError> {
    let mut end = 0;
    let tensors = layout.tensors.iter().map(|tensor| {
        let start = end;
        end += tensor.elements() * size_of::<f32>();
        let shape = tensor.shape.clone();
        (tensor.name.clone(), TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, end) })
    });
    let format = HashMap::from([("format".into(), "pt".into())]);
    let mut json = serde_json::to_vec(&Metadata::new(Some(format), tensors.collect())?)?;
    json.resize(json.len().next_multiple_of(LENGTH), b' ');
    Ok([&(json.len() as u64).to_le_bytes()[..], &json].concat())
}

/// Where each tensor goes, after `header` bytes.
fn slots(layout: &Layout, header: u64) -> Vec<Slot> {
    let mut offset = header;
    let slot = |tensor: &model::TensorSpec| {
        let (name, elements) = (tensor.name.clone(), tensor.elements());
        let slot = Slot { name, elements, offset, written: false };
        offset += (elements * size_of::<f32>()) as u64;
        slot
    };
    layout.tensors.iter().map(slot).collect()
}

/// The files beside the weights.
fn companions(config: &ModelConfig) -> BTreeMap<String, Vec<u8>> {
    let mut files =
        BTreeMap::from([(CONFIG.into(), format!("{:#}\n", config.to_hugging_face()).into_bytes())]);
    if config.vocabulary == tokenizer::VOCABULARY {
        for (name, contents) in tokenizer::files(config.max_positions.max(config.sequence_length)) {
            files.insert(name.into(), contents.into_bytes());
        }
    }
    files
}
