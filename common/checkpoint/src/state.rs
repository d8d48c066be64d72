//! Checkpoints of a run: for each parameter its weight and its optimizer states, in f32, and the
//! caller's description of the run's progress. Tensors are whole and have the model's names, so
//! that any stage on any number of ranks can resume.

use crate::atomic::Directory;
use crate::file_reader::FileReader;
use crate::file_writer::FileWriter;
use crate::{CheckpointError, Result};
use model::{Layout, TensorId, TensorSpec, TrainingState};
use safetensors::tensor::TensorInfo;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The checkpoint's one file, so that it is replaced atomically.
const STATE: &str = "state.safetensors";
/// The key of the run's progress in the file's metadata.
const PROGRESS: &str = "progress";

/// Returns the name of `state` of `tensor`: the tensor's name, then PyTorch's for the state.
fn name(state: TrainingState, tensor: &TensorSpec) -> String {
    let word = match state {
        TrainingState::Weight => "param",
        TrainingState::Momentum => "exp_avg",
        TrainingState::Variance => "exp_avg_sq",
    };
    format!("{}.{word}", tensor.name)
}

/// Writes a checkpoint, one tensor at a time. The previous one stays until [`StateWriter::finish`].
#[derive(Debug)]
pub struct StateWriter {
    directory: Directory,
    file: FileWriter,
    tensors: usize,
}

impl StateWriter {
    /// Checks that a checkpoint can be written to the directory `path`, and creates the directory.
    ///
    /// # Errors
    /// As [`Directory::create`] and [`Directory::file`].
    pub fn probe(path: &Path) -> Result<()> {
        Directory::create(path)?.file(STATE).map(drop)
    }

    /// Begins a checkpoint in the directory `path`, of a run whose model has `layout`'s tensors,
    /// with the caller's description of its `progress`.
    ///
    /// # Errors
    /// As [`Directory::create`] and [`Directory::file`].
    pub fn create(path: &Path, layout: &Layout, progress: &str) -> Result<Self> {
        let directory = Directory::create(path)?;
        let tensors =
            |state| layout.tensors.iter().map(move |tensor| (name(state, tensor), tensor.shape.clone()));
        let all = TrainingState::ALL.into_iter().flat_map(tensors).collect();
        let file = FileWriter::create(&directory, STATE, all, (PROGRESS, progress))?;
        Ok(StateWriter { directory, file, tensors: layout.tensors.len() })
    }

    /// Writes `state` of a whole tensor, row-major, in any order.
    ///
    /// # Errors
    /// As [`Writer::write`](crate::Writer::write).
    pub fn write(&mut self, state: TrainingState, tensor: TensorId, values: &[f32]) -> Result<()> {
        if tensor >= self.tensors {
            return Err(CheckpointError::UnknownTensor { tensor, tensors: self.tensors });
        }
        self.file.write(state as usize * self.tensors + tensor, values)
    }

    /// Flushes everything to the disk and replaces the previous checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Incomplete`] if a tensor was never written; otherwise as
    /// [`Directory::publish`].
    pub fn finish(self) -> Result<()> {
        self.directory.publish(vec![self.file.complete()?])
    }
}

/// A checkpoint, validated whole and read slice by slice. Ranks may share one reader.
#[derive(Debug)]
pub struct StateReader {
    file: FileReader,
    progress: String,
}

impl StateReader {
    /// Opens the checkpoint in the directory `path`, if there is one.
    ///
    /// # Errors
    /// [`CheckpointError`] naming the file if it is cut short, damaged or no checkpoint.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let place = path.join(STATE);
        match std::fs::symlink_metadata(&place) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(CheckpointError::io("open", &place)(error)),
        }
        let file = FileReader::open(&place)?;
        let progress = file.metadata(PROGRESS).map(str::to_string);
        let progress = progress.ok_or(CheckpointError::NotACheckpoint(place))?;
        Ok(Some(StateReader { file, progress }))
    }

    /// Returns the file's path.
    pub fn path(&self) -> PathBuf {
        self.file.path().to_path_buf()
    }

    /// Returns the writer's description of the run's progress.
    pub fn progress(&self) -> &str {
        &self.progress
    }

    /// Checks that every state of every tensor of `layout` is there, and nothing else, so that
    /// [`StateReader::read`] can fail only if the disk does.
    ///
    /// # Errors
    /// [`CheckpointError::OtherModel`], and [`CheckpointError::UnsupportedType`].
    pub fn check(&self, layout: &Layout) -> Result<()> {
        for state in TrainingState::ALL {
            for tensor in &layout.tensors {
                self.find(state, tensor)?;
            }
        }
        let tensors = self.file.names().len();
        if tensors == TrainingState::ALL.len() * layout.tensors.len() {
            return Ok(());
        }
        Err(CheckpointError::OtherModel {
            path: self.path(),
            how: format!(
                "it has {} tensors, and this model {}",
                tensors / TrainingState::ALL.len(),
                layout.tensors.len()
            ),
        })
    }

    /// Fills `values` with elements `range` of `state` of `tensor`, counted row-major. Reads no
    /// other bytes.
    ///
    /// # Errors
    /// As [`StateReader::check`]; [`CheckpointError::Elements`] if `range` leaves the tensor or is
    /// not as long as `values`; [`CheckpointError::Io`] if the disk fails.
    pub fn read(
        &self,
        state: TrainingState,
        tensor: &TensorSpec,
        range: Range<usize>,
        values: &mut [f32],
    ) -> Result<()> {
        let (name, info) = self.find(state, tensor)?;
        self.file.read(&name, info, range, values)
    }

    fn find(&self, state: TrainingState, tensor: &TensorSpec) -> Result<(String, &TensorInfo)> {
        let name = name(state, tensor);
        let found = self.file.info(&name).filter(|info| info.shape == tensor.shape);
        let Some(info) = found else {
            let how = format!("this one has `{name}` with shape {:?}", tensor.shape);
            return Err(CheckpointError::OtherModel { path: self.path(), how });
        };
        self.file.stored(&name, info)?;
        Ok((name, info))
    }
}
