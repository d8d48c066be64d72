//! The state of a run, to go on from: for each parameter its weight and what the optimizer keeps of it, in f32, and the caller's
//! own words about how far the run has come. Tensors are whole and bear the model's names, so that the state is not of a stage,
//! nor of a number of ranks.

use crate::atomic::Directory;
use crate::file_reader::FileReader;
use crate::file_writer::FileWriter;
use crate::{CheckpointError, Result};
use model::{Layout, TensorId, TensorSpec, TrainingState};
use safetensors::tensor::TensorInfo;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// All of it: one file, so that it is replaced as one.
const STATE: &str = "state.safetensors";
/// The key of the caller's words in the file's metadata.
const PROGRESS: &str = "progress";

/// The name of `state` of `tensor`: PyTorch's word for it, after the tensor's own.
fn name(state: TrainingState, tensor: &TensorSpec) -> String {
    let word = match state {
        TrainingState::Weight => "param",
        TrainingState::Momentum => "exp_avg",
        TrainingState::Variance => "exp_avg_sq",
    };
    format!("{}.{word}", tensor.name)
}

/// Keeps the state of a run, one tensor at a time. What was kept before stays until [`StateWriter::finish`].
#[derive(Debug)]
pub struct StateWriter {
    directory: Directory,
    file: FileWriter,
    tensors: usize,
}

impl StateWriter {
    /// Tries whether a state could be kept in the directory `path`, and creates it.
    ///
    /// # Errors
    /// As [`Directory::create`] and [`Directory::file`].
    pub fn probe(path: &Path) -> Result<()> {
        Directory::create(path)?.file(STATE).map(drop)
    }

    /// Starts keeping the state of a run whose model has `layout`'s tensors in the directory `path`, with the caller's words about
    /// its `progress`.
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

    /// Flushes everything to the disk and puts it in the place of what was kept before.
    ///
    /// # Errors
    /// [`CheckpointError::Incomplete`] if something was never written; otherwise as [`Directory::publish`].
    pub fn finish(self) -> Result<()> {
        self.directory.publish(vec![self.file.complete()?])
    }
}

/// A state that was kept: validated whole, and read slice by slice. Ranks may share one.
#[derive(Debug)]
pub struct StateReader {
    file: FileReader,
    progress: String,
}

impl StateReader {
    /// The state that is kept in the directory `path`, if there is one.
    ///
    /// # Errors
    /// [`CheckpointError`] naming the file if it is cut short, damaged or no state.
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
        let progress = progress.ok_or(CheckpointError::NoState(place))?;
        Ok(Some(StateReader { file, progress }))
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.file.path().to_path_buf()
    }

    /// What its writer said of the run's progress.
    pub fn progress(&self) -> &str {
        &self.progress
    }

    /// Checks that every state of every tensor of `layout` is there, and nothing else, so that [`StateReader::read`] can fail only
    /// if the disk does.
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

    /// Fills `values` with elements `range` of `state` of `tensor`, counted row-major. Reads no other bytes.
    ///
    /// # Errors
    /// As [`StateReader::check`]; [`CheckpointError::Elements`] if `range` leaves the tensor or is not as long as `values`;
    /// [`CheckpointError::Io`] if the disk fails.
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
