//! Saves a model.

use crate::replacement::Replacement;
use crate::tensor_files::{TensorFiles, write_and_flush};
use crate::{Companions, ElementType, Result, names};
use model::{Layout, ModelConfig, TensorId, TrainingState};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::Disk;

/// How long a probe waits for a directory that another one looks at.
const LOOKED_AT: Duration = Duration::from_secs(5);

/// How a model is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// The type of the weights' elements; if none, the one that the model's companions name. Moments
    /// are always f32.
    pub element_type: Option<ElementType>,
    /// Most bytes of tensors in a file; all are in one file if it is left out.
    pub max_shard: Option<u64>,
    /// Whether AdamW's moments are written beside the weights, in files of their own.
    pub moments: bool,
}

/// Saves a model in the Hugging Face layout, one tensor at a time, so that ranks can gather sharded
/// weights unit by unit and never hold them all.
///
/// [`Writer::finish`] puts the new files in the place of an earlier save's, all at once. Files of
/// other programs in the directory stay. A writer that is dropped before that, or after an error,
/// leaves the directory as it was.
pub struct Writer {
    directory: Replacement,
    /// By [`TrainingState`]: the weights, and the moments if they are written.
    files: Vec<TensorFiles>,
    vocabulary: usize,
    /// The other files, which are written at the end.
    companions: Companions,
}

impl Writer {
    /// Checks that a model can be saved to the directory `path`, before hours of training, and that
    /// the tokenizer that is there can be read, whether this save would keep it or not. Creates the
    /// directory, and finishes what a save that was killed has left.
    ///
    /// # Errors
    /// As [`Writer::create`] and [`Reader::companions`](crate::Reader::companions).
    pub fn probe(path: impl AsRef<Path>) -> Result<()> {
        let directory = Replacement::begin(path.as_ref(), Arc::new(Disk::new(1)), LOOKED_AT)?;
        directory.probe()?;
        Companions::beside(directory.path(), ElementType::default()).map(drop)
    }

    /// Starts saving the model of `config`, whose tensors are `layout`'s, to the directory `path`;
    /// creates it if need be.
    ///
    /// # Errors
    /// [`CheckpointError`](crate::CheckpointError): `Busy` if another writer has the directory,
    /// `NotADirectory`, `NotAFile` or `NotReplaceable` if something is in the way, `Io` and `Disk`
    /// if the system refuses.
    pub fn create(
        path: impl AsRef<Path>,
        config: &ModelConfig,
        layout: &Layout,
        format: Format,
    ) -> Result<Self> {
        let disk = Arc::new(Disk::new(1));
        Writer::on((disk, Duration::ZERO), path.as_ref(), (config, layout), format, &Companions::default())
    }

    /// Starts saving as [`Writer::create`], through `disk`, with what the model brought. Waits for
    /// `patience` for another writer that has the directory, if only to look.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn on(
        (disk, patience): (Arc<Disk>, Duration),
        path: &Path,
        (config, layout): (&ModelConfig, &Layout),
        format: Format,
        brought: &Companions,
    ) -> Result<Self> {
        let directory = Replacement::begin(path, disk, patience)?;
        let states = if format.moments { names::STEMS.len() } else { 1 };
        let stored = format.element_type.unwrap_or_else(|| brought.element_type());
        let types = [stored, ElementType::F32, ElementType::F32];
        let plan =
            |(stem, element_type)| TensorFiles::new(&directory, stem, layout, element_type, format.max_shard);
        let files = names::STEMS.into_iter().zip(types).take(states).map(plan).collect::<Result<_>>()?;
        let companions = brought.trained(config, stored);
        Ok(Writer { directory, files, vocabulary: config.vocabulary, companions })
    }

    /// Writes a whole tensor, row-major, in any order of tensors; a second write replaces the
    /// first.
    ///
    /// # Errors
    /// [`CheckpointError`](crate::CheckpointError): `Disk` if the system refuses; `UnknownTensor`
    /// and `Elements` if the layout has no such tensor, or one of another size; `WeightNotFinite` if
    /// an element is infinite or NaN; `OutOfRange` if one would become infinite.
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

    /// Flushes everything to the disk and puts it in its place.
    ///
    /// # Errors
    /// [`CheckpointError`](crate::CheckpointError): `Incomplete` if a tensor was never written;
    /// `Unpublished` if the save is whole and has another name; otherwise as [`Writer::create`].
    pub fn finish(mut self) -> Result<()> {
        self.keep_old();
        for files in self.files {
            files.finish(&self.directory)?;
        }
        for (name, contents) in self.companions.files() {
            write_and_flush(self.directory.disk(), &self.directory.file_path(name), contents)?;
        }
        self.directory.publish()
    }

    /// Keeps the tokenizer that is in the directory and the settings of generation, if these weights
    /// bring none, unless the `config.json` there states another number of tokens. The weights there
    /// may be of any kind, or missing. What cannot be read is no reason to lose the new weights:
    /// [`Writer::probe`] has seen it.
    fn keep_old(&mut self) {
        let Ok(old) = Companions::beside(self.directory.path(), ElementType::default()) else { return };
        if old.vocabulary().is_none_or(|tokens| tokens == self.vocabulary as u64) {
            self.companions.complete(old);
        }
    }
}
