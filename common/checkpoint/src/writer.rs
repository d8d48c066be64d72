//! Saving a model.

use crate::atomic::Directory;
use crate::file_writer::FileWriter;
use crate::{CONFIG, Result, WEIGHTS, tokenizer};
use model::{Layout, ModelConfig, TensorId};
use std::collections::BTreeMap;
use std::path::Path;

/// Saves a model in the Hugging Face layout, one tensor at a time: weights that are spread over ranks are gathered unit
/// by unit and never all in memory.
///
/// The files appear under their final names in [`Writer::finish`], the weights last: where a new `model.safetensors`
/// is, everything else is too. Dropped before that, or after an error, it leaves the directory as it was.
#[derive(Debug)]
pub struct Writer {
    directory: Directory,
    weights: FileWriter,
    /// The other files, by name: small, and written at the end.
    companions: BTreeMap<String, Vec<u8>>,
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
        let tensors = layout.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone()));
        // Transformers asks for it.
        let weights = FileWriter::create(&directory, WEIGHTS, tensors.collect(), ("format", "pt"))?;
        Ok(Writer { directory, weights, companions: companions(config) })
    }

    /// Writes a whole tensor, row-major. The order of tensors is free; of a tensor written twice, the later values stay.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] if the disk does not take it; [`CheckpointError::UnknownTensor`] and
    /// [`CheckpointError::Elements`] if the layout has no such tensor, or one of another size.
    pub fn write(&mut self, tensor: TensorId, values: &[f32]) -> Result<()> {
        self.weights.write(tensor, values)
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
        let weights = self.weights.complete()?;
        let mut files = Vec::new();
        for (name, contents) in &self.companions {
            let file = self.directory.file(name)?;
            file.write_at(contents, 0)?;
            files.push(file);
        }
        files.push(weights);
        self.directory.publish(files)
    }
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
