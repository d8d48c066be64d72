//! What can go wrong with files of weights. Every message names the file and the way out.

use model::ModelError;
use std::io;
use std::path::{Path, PathBuf};

/// Reading or writing weights failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused something.
    #[error("cannot {action} {path}: {source}.\n{remedy}", path = shown(path), remedy = remedy(source.kind()))]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A directory is needed and something else is in its place.
    #[error("{path} is not a directory, but weights and states are saved to one.\nGive another path, or move away what is there.", path = .0.display())]
    NotADirectory(PathBuf),
    /// A directory is where a file is to be written.
    #[error("{path} is a directory, but a file of that name is to be saved.\nMove it away, or save somewhere else.", path = .0.display())]
    NotAFile(PathBuf),
    /// Two writers at once.
    #[error("another run is saving to {path} at this moment.\nGive each run its own directory, or wait for the other to finish.", path = .0.display())]
    Busy(PathBuf),
    /// The directory has no weights that can be read.
    #[error("{path} has no weights: neither model.safetensors nor model.safetensors.index.json.\n{hint}", path = path.display())]
    NoWeights {
        /// The directory.
        path: PathBuf,
        /// What to do, given what is there instead.
        hint: &'static str,
    },
    /// The file has tensors, but not what a run goes on from.
    #[error("{path} is not the state of a run: it does not say how far training had come.\nGive the directory that --checkpoint wrote to, or another one to start anew.", path = .0.display())]
    NoState(PathBuf),
    /// A state is of another model.
    #[error("{path} is the state of another model: {how}.\nTrain the model that it was kept of, or give another directory to start anew.", path = path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// What is different.
        how: String,
    },
    /// The file is shorter than its own header says.
    #[error("{path} is cut short: {found} of {expected} bytes are there.\nCopy or download it again.", path = path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes that the header calls for.
        expected: u64,
        /// Bytes in the file.
        found: u64,
    },
    /// The file is not a safetensors file, or a damaged one.
    #[error("{path} is not a valid safetensors file: {problem}.\n{hint}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do, given what it looks like.
        hint: &'static str,
    },
    /// The index of a sharded model is not usable.
    #[error("{path} is not a valid index of shards: {problem}.\nCopy or download the whole model again.", path = path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The index names a shard that is not there.
    #[error("{index} says that {tensors} tensors are in {shard}, which is not there.\nPut that file beside the index, or download the whole model again.", index = index.display())]
    MissingShard {
        /// The index file.
        index: PathBuf,
        /// Name of the missing file.
        shard: String,
        /// How many tensors it should hold.
        tensors: usize,
    },
    /// `config.json` is missing a number or asks for something that the model does not have.
    #[error("{path} does not describe a model that can be trained here.\n{source}\nNeeded is the config.json of a Llama-style model.", path = path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ModelError,
    },
    /// A tensor that the model needs is not in the files.
    #[error("{path} has no tensor `{tensor}`, which the model needs with shape {shape:?}; {present}.\n{hint}", path = path.display())]
    MissingTensor {
        /// Directory, file or index.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The shape that the model expects.
        shape: Vec<usize>,
        /// What is there instead, in words.
        present: String,
        /// What to do.
        hint: &'static str,
    },
    /// A tensor has another shape than the model's.
    #[error("{path}: tensor `{tensor}` has shape {found:?}, but the model needs {expected:?}.\nThe weights belong to another architecture: use the config.json that came with them.", path = path.display())]
    WrongShape {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The model's shape.
        expected: Vec<usize>,
        /// The file's shape.
        found: Vec<usize>,
    },
    /// A tensor is stored in a type that is not read.
    #[error("{path}: tensor `{tensor}` is stored as {found}; only F32, BF16 and F16 are read.\nSave the model again in one of them, unquantized.", path = path.display())]
    UnsupportedType {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its type, in the format's words.
        found: String,
    },
    /// The caller asked for elements that the tensor does not have, or gave room for another number of them: a bug in
    /// the caller, reported rather than computed.
    #[error("tensor `{tensor}` has {elements} elements; {start}..{end} were asked for, with {given} values")]
    Elements {
        /// The tensor's name.
        tensor: String,
        /// How many elements it has.
        elements: usize,
        /// First element asked for.
        start: usize,
        /// One past the last element asked for.
        end: usize,
        /// Length of the caller's slice.
        given: usize,
    },
    /// The caller wrote a tensor that the layout does not have.
    #[error("the layout has {tensors} tensors, so there is no tensor {tensor}")]
    UnknownTensor {
        /// The id given.
        tensor: usize,
        /// Tensors in the layout.
        tensors: usize,
    },
    /// The caller finished before every tensor was written.
    #[error(
        "{missing} of {tensors} tensors were never written, the first of them `{first}`; nothing was saved"
    )]
    Incomplete {
        /// How many are missing.
        missing: usize,
        /// How many there are.
        tensors: usize,
        /// Name of the first that is missing.
        first: String,
    },
}

impl CheckpointError {
    /// Names what was attempted on which file, for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| CheckpointError::Io { action, path: path.to_path_buf(), source }
    }

    /// A damaged file, or something else under its name.
    pub(crate) fn malformed(path: &Path, problem: impl ToString) -> Self {
        CheckpointError::Malformed {
            path: path.to_path_buf(),
            problem: problem.to_string(),
            hint: "Copy or download it again, or save the model again.",
        }
    }
}

/// A path as a message shows it; an empty one, such as an unset variable gives, would not be seen.
fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { "an empty path".into() } else { path.display().to_string() }
}

/// What to do about an error of the operating system.
fn remedy(kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind::*;
    match kind {
        StorageFull | QuotaExceeded => {
            "The disk or quota is full: free some space, or choose a directory on another disk."
        }
        FileTooLarge => {
            "The filesystem or the shell (`ulimit -f`) limits the size of files: raise it, or use another disk."
        }
        PermissionDenied => "Give this user access to it, or choose another directory.",
        ReadOnlyFilesystem => "That disk is read-only: choose a directory on another one.",
        NotFound => "Check the path: the file, or a directory above it, is not there.",
        InvalidFilename => "The name is too long or not allowed there: choose another one.",
        NotADirectory => "A part of the path is a file: choose another path.",
        AlreadyExists => {
            "Something else is in its place (a dangling link, or the rest of a run that was killed): remove it."
        }
        UnexpectedEof => "The file became shorter while it was read: copy or download it again.",
        _ => "Choose another directory, or look into the cause that the system gives.",
    }
}
