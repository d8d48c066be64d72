//! Saves a model.

use crate::atomic::Directory;
use crate::file_writer::FileWriter;
use crate::{CONFIG, Result, WEIGHTS, tokenizer};
use model::{Layout, ModelConfig, TensorId};
use std::collections::BTreeMap;
use std::path::Path;

/// Saves a model in the Hugging Face layout, one tensor at a time, so that ranks can gather sharded
/// weights unit by unit and never hold them all.
///
/// [`Writer::finish`] gives the files their final names, the weights last: where a new
/// `model.safetensors` is, everything else is too. A writer that is dropped before that, or after
/// an error, leaves the directory as it was.
#[derive(Debug)]
pub struct Writer {
    directory: Directory,
    weights: FileWriter,
    /// The other files, by name. They are small and are written at the end.
    companions: BTreeMap<String, Vec<u8>>,
}

impl Writer {
    /// Checks that a model can be saved to the directory `path`, before hours of training. Creates
    /// the directory and nothing else.
    ///
    /// # Errors
    /// As [`Directory::create`] and [`Directory::file`].
    pub fn probe(path: impl AsRef<Path>) -> Result<()> {
        Directory::create(path.as_ref())?.file(WEIGHTS).map(drop)
    }

    /// Starts saving the model of `config`, whose tensors are `layout`'s, to the directory `path`;
    /// creates it if need be. Files of the same names are replaced at the end, other files stay.
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

    /// Writes a whole tensor, row-major, in any order of tensors; a second write replaces the
    /// first.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] if the system refuses; [`CheckpointError::UnknownTensor`] and
    /// [`CheckpointError::Elements`] if the layout has no such tensor, or one of another size.
    pub fn write(&mut self, tensor: TensorId, values: &[f32]) -> Result<()> {
        self.weights.write(tensor, values)
    }

    /// Adds a small file beside the weights, in place of this writer's own file of that name: for
    /// instance the tokenizer of the model from which training started. `name` is a plain file
    /// name.
    pub fn attach(&mut self, name: &str, contents: impl Into<Vec<u8>>) {
        self.companions.insert(name.into(), contents.into());
    }

    /// Flushes everything to the disk and gives the files their final names.
    ///
    /// # Errors
    /// [`CheckpointError::Incomplete`] if a tensor was never written; otherwise as
    /// [`Directory::publish`].
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

/// Returns the files beside the weights.
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
