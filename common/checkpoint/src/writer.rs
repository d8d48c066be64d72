//! Saves a model.

use crate::replacement::Replacement;
use crate::tensor_files::{TensorFiles, write_and_flush};
use crate::{ElementType, ModelFiles, Result, names};
use model::{Layout, ModelConfig, TensorId, TrainingState};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::Disk;

/// How long a probe waits for a directory that another probe has locked.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Options for writing a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// The type of the weights' elements. `None`: the type that the model's `config.json` names.
    /// Moments are always f32.
    pub element_type: Option<ElementType>,
    /// Maximum number of bytes of tensors in a file. `None`: one file holds all of them.
    pub max_shard: Option<u64>,
    /// Whether AdamW's moments are written next to the weights, in files of their own.
    pub moments: bool,
}

/// The directory that a model is saved to, and how.
pub struct Destination<'a> {
    /// The directory.
    pub path: &'a Path,
    /// Writes the files.
    pub disk: Arc<Disk>,
    /// How long to wait for another writer, or a probe, that holds the directory.
    pub timeout: Duration,
}

/// Saves a model in the Hugging Face layout, one tensor at a time, so that ranks can gather sharded
/// weights unit by unit and never hold them all.
///
/// [`Writer::finish`] replaces the files of an earlier save with the new ones, all at once. Files
/// of other programs in the directory stay. A writer that is dropped earlier, or after an error,
/// leaves the directory unchanged.
pub struct Writer {
    directory: Replacement,
    /// Indexed by [`TrainingState`]: the weights, then the moments if they are written.
    files: Vec<TensorFiles>,
    vocabulary: usize,
    /// The other files, which are written last.
    model_files: ModelFiles,
}

impl Writer {
    /// Checks, before hours of training, that a model can be saved to the directory `path` and that
    /// any tokenizer in it can be read, whether or not this save would keep it. Creates the
    /// directory, and recovers what a killed save left behind.
    ///
    /// # Errors
    /// As [`Writer::create`] and [`Reader::model_files`](crate::Reader::model_files).
    pub fn probe(path: impl AsRef<Path>) -> Result<()> {
        let directory = Replacement::begin(path.as_ref(), Arc::new(Disk::new(1)), PROBE_TIMEOUT)?;
        ModelFiles::beside(directory.path(), ElementType::default())?;
        directory.probe()
    }

    /// Starts saving the model of `config`, whose tensors are `layout`'s, to the directory `path`.
    /// Creates the directory if needed.
    ///
    /// # Errors
    /// [`CheckpointError`](crate::CheckpointError): `Busy` if another writer holds the directory,
    /// `NotADirectory`, `NotAFile` or `NotReplaceable` if something is in the way, `Io` and `Disk`
    /// if the system refuses.
    pub fn create(
        path: impl AsRef<Path>,
        config: &ModelConfig,
        layout: &Layout,
        format: Format,
    ) -> Result<Self> {
        let (path, disk) = (path.as_ref(), Arc::new(Disk::new(1)));
        let destination = Destination { path, disk, timeout: Duration::ZERO };
        Writer::on(destination, config, layout, format, &ModelFiles::default())
    }

    /// Starts saving to `destination` like [`Writer::create`], with `model_files`.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn on(
        destination: Destination<'_>,
        config: &ModelConfig,
        layout: &Layout,
        format: Format,
        model_files: &ModelFiles,
    ) -> Result<Self> {
        let Destination { path, disk, timeout } = destination;
        let directory = Replacement::begin(path, disk, timeout)?;
        let states = if format.moments { names::STEMS.len() } else { 1 };
        let stored = format.element_type.unwrap_or_else(|| model_files.element_type());
        let types = [stored, ElementType::F32, ElementType::F32];
        let plan =
            |(stem, element_type)| TensorFiles::new(&directory, stem, layout, element_type, format.max_shard);
        let files = names::STEMS.into_iter().zip(types).take(states).map(plan).collect::<Result<_>>()?;
        let model_files = model_files.trained(config, stored);
        Ok(Writer { directory, files, vocabulary: config.vocabulary, model_files })
    }

    /// Writes a whole tensor, row-major. Tensors may be written in any order; a second write
    /// replaces the first.
    ///
    /// # Errors
    /// [`CheckpointError`](crate::CheckpointError): `Disk` if the system refuses; `UnknownTensor`
    /// if the layout lacks the tensor, `Elements` if the size differs from the tensor's;
    /// `WeightNotFinite` if an element is infinite or NaN; `OutOfRange` if an element would become
    /// infinite.
    pub fn write(&mut self, tensor: TensorId, values: &[f32]) -> Result<()> {
        self.write_state(TrainingState::Weight, tensor, values)
    }

    /// Writes a whole tensor of the weights or, if the format has them, of a moment.
    ///
    /// # Errors
    /// As [`Writer::write`].
    ///
    /// # Panics
    /// If `state` is a moment and the format has none.
    pub fn write_state(&mut self, state: TrainingState, tensor: TensorId, values: &[f32]) -> Result<()> {
        self.files[state as usize].write(tensor, values)
    }

    /// Flushes everything to the disk and publishes it.
    ///
    /// # Errors
    /// [`CheckpointError`](crate::CheckpointError): `Incomplete` if a tensor was never written;
    /// `Unpublished` if the save is complete but has another name; otherwise as [`Writer::create`].
    pub fn finish(mut self) -> Result<()> {
        self.keep_old();
        for files in self.files {
            files.finish(&self.directory)?;
        }
        for (name, contents) in self.model_files.files() {
            write_and_flush(self.directory.disk(), &self.directory.file_path(name), contents)?;
        }
        self.directory.publish()
    }

    /// Keeps the directory's tokenizer and generation settings if `model_files` has none, unless
    /// the `config.json` there states another vocabulary size. The old weights may be of any kind,
    /// or missing. Files that cannot be read are no reason to lose the new weights:
    /// [`Writer::probe`] has already reported them.
    fn keep_old(&mut self) {
        let Ok(old) = ModelFiles::beside(self.directory.path(), ElementType::default()) else { return };
        if old.vocabulary().is_none_or(|tokens| tokens == self.vocabulary as u64) {
            self.model_files.complete(old);
        }
    }
}
