//! Errors about files of weights and checkpoints. Every message names the file and the remedy.

use crate::ElementType;
use model::ModelError;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Reading or writing weights or a checkpoint failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused an operation.
    #[error("cannot {action} {path}: {source}.\n{remedy}", path = shown(path), remedy = remedy(source))]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The disk refused an operation.
    #[error("{0}.\n{remedy}", remedy = remedy(&.0.cause))]
    Disk(#[from] storage::Error),
    /// A checkpoint differs from the data that was written.
    #[error("{path} is damaged: {how}.\nRestore it from a copy, or remove it: a run then resumes from the one before it.", path = path.display())]
    Damaged {
        /// The checkpoint's directory, or the file.
        path: PathBuf,
        /// What is wrong with it.
        how: String,
    },
    /// A checkpoint in a format that is no longer supported.
    #[error("{path} is a checkpoint of an earlier version, which this program cannot read.\nResume with the version that wrote it, or give another directory to start from the beginning.", path = .0.display())]
    OldFormat(PathBuf),
    /// A checkpoint written by a newer program.
    #[error("{path} has format {format}; this program reads up to {newest}.\nResume with the program that wrote it, or a newer one.", path = path.display())]
    NewerFormat {
        /// The manifest.
        path: PathBuf,
        /// The format version of the checkpoint.
        format: u32,
        /// The newest format version that this program reads.
        newest: u32,
    },
    /// The training state is not finite, so it is not worth keeping.
    #[error("the training state is not finite (it has infinities or NaN), so {path} was not saved", path = .0.display())]
    NotFinite(PathBuf),
    /// The weights or their moments are not finite. Saving them would overwrite good ones.
    #[error("tensor `{tensor}` has the element {value}, so {path} was not changed.\nStart from a checkpoint or an earlier save, with a smaller --lr.", path = path.display())]
    WeightNotFinite {
        /// The directory that would have been replaced.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The tensor's first element that is infinite or NaN.
        value: f32,
    },
    /// The path of a directory leads to something that is not a directory.
    #[error("{path} is not a directory, but weights and states are saved to one.\nGive another path, or move away what is there.", path = .0.display())]
    NotADirectory(PathBuf),
    /// Something that is not a directory is named like a checkpoint that is being written.
    #[error("{path} is not a directory, but a run writes its checkpoints under names like this one.\nMove it away, or remove it.", path = .0.display())]
    NotALeftover(PathBuf),
    /// The path of a file leads to a directory.
    #[error("{path} is a directory, but a file of that name is to be saved.\nMove it away, or save somewhere else.", path = .0.display())]
    NotAFile(PathBuf),
    /// A directory cannot be replaced as a whole.
    #[error("{path} cannot be replaced as a whole: {why}.\nSave to a directory inside it, such as {inside}, or to another one.", path = path.display(), inside = path.join("model").display())]
    NotReplaceable {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A save is complete but could not take its intended name.
    #[error("the weights are saved to {kept}, since {path} could not be replaced: {why}", path = path.display(), kept = kept.display())]
    Unpublished {
        /// The directory that would have been replaced.
        path: PathBuf,
        /// The directory that holds the weights.
        kept: PathBuf,
        /// The reason.
        why: String,
    },
    /// The directory is a checkpoint, whose files the weights would replace.
    #[error("{path} is a checkpoint, whose files the weights would replace.\nSave to another directory.", path = .0.display())]
    IsCheckpoint(PathBuf),
    /// A run's checkpoints cannot be stored inside a checkpoint.
    #[error("{path} is a checkpoint, not a directory of checkpoints.\nGive the directory that it is in{above}.", path = .0.display(), above = above(.0))]
    InCheckpoint(PathBuf),
    /// A save has replaced the directory since it was opened.
    #[error("{path} was replaced by a newer save while it was read.\nRun the command again.", path = .0.display())]
    Replaced(PathBuf),
    /// An element is beyond the range of its storage type.
    #[error(
        "tensor `{tensor}` has the element {value}, beyond {element_type}'s maximum of {most}.\nSave as bf16 or f32."
    )]
    OutOfRange {
        /// The tensor's name.
        tensor: String,
        /// The element.
        value: f32,
        /// The storage type.
        element_type: ElementType,
        /// The largest number of the type.
        most: f32,
    },
    /// Another run has the directory.
    #[error("{path} is in use by another run.\nGive each run its own directory, or wait until the other has ended.", path = .0.display())]
    Busy(PathBuf),
    /// The directory has no weights.
    #[error("{path} has no weights: neither model.safetensors nor model.safetensors.index.json.\n{hint}", path = path.display())]
    NoWeights {
        /// The directory.
        path: PathBuf,
        /// The remedy, which depends on the other files in the directory.
        hint: &'static str,
    },
    /// The checkpoint belongs to another model.
    #[error("{path} is a checkpoint of another model: {how}.\nTrain the model of the checkpoint, or give another directory to start from the beginning.", path = path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The difference.
        how: String,
    },
    /// The file is shorter than its header says.
    #[error("{path} is cut short: {found} of {expected} bytes are there.\nCopy or download it again.", path = path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The number of bytes that the header describes.
        expected: u64,
        /// The number of bytes in the file.
        found: u64,
    },
    /// The file is damaged, or is not a safetensors file.
    #[error("{path} is not a valid safetensors file: {problem}.\n{hint}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// The remedy, which depends on the file's content.
        hint: &'static str,
    },
    /// The index of a sharded model is damaged.
    #[error("{path} is not a valid index of shards: {problem}.\nCopy or download the whole model again.", path = path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The index names a shard that does not exist.
    #[error("{index} says that {tensors} tensors are in {shard}, which is not there.\nPut that file beside the index, or download the whole model again.", index = index.display())]
    MissingShard {
        /// The index file.
        index: PathBuf,
        /// The name of the missing file.
        shard: String,
        /// The number of tensors that it should hold.
        tensors: usize,
    },
    /// `config.json` lacks a number or asks for something that the model does not support.
    #[error("{path} does not describe a model that can be trained here.\n{source}\nThis program needs the config.json of a Llama-style model.", path = path.display())]
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
        /// The tensors that the files hold instead, in words.
        present: String,
        /// The remedy.
        hint: &'static str,
    },
    /// A tensor's shape differs from the model's.
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
    /// A tensor is stored in an unsupported type.
    #[error("{path}: tensor `{tensor}` is stored as {found}; only F32, BF16 and F16 are read.\nSave the model again in one of them, unquantized.", path = path.display())]
    UnsupportedType {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The tensor's type, named as in the format.
        found: String,
    },
    /// The caller asked for elements outside the tensor, or for a range whose length differs from
    /// its slice: a bug in the caller.
    #[error("tensor `{tensor}` has {elements} elements; {start}..{end} were asked for, with {given} values")]
    Elements {
        /// The tensor's name.
        tensor: String,
        /// The number of elements in the tensor.
        elements: usize,
        /// The first element of the range.
        start: usize,
        /// One past the last element of the range.
        end: usize,
        /// The length of the caller's slice.
        given: usize,
    },
    /// The caller wrote a tensor that the layout does not have.
    #[error("the layout has {tensors} tensors, so there is no tensor {tensor}")]
    UnknownTensor {
        /// The given id.
        tensor: usize,
        /// The number of tensors in the layout.
        tensors: usize,
    },
    /// The caller finished before every tensor was written.
    #[error(
        "{missing} of {tensors} tensors were never written, the first of them `{first}`; nothing was saved"
    )]
    Incomplete {
        /// The number of missing tensors.
        missing: usize,
        /// The number of tensors in the layout.
        tensors: usize,
        /// The name of the first missing tensor.
        first: String,
    },
}

impl CheckpointError {
    /// Returns a function for `map_err` that adds the attempted action and the path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| CheckpointError::Io { action, path: path.to_path_buf(), source }
    }

    /// Fails unless `range` lies within the `elements` of `tensor` and is as long as `given`, the
    /// number of values.
    pub(crate) fn check_range(
        tensor: &str,
        elements: usize,
        range: &Range<usize>,
        given: usize,
    ) -> Result<(), Self> {
        let Range { start, end } = *range;
        if end <= elements && start.checked_add(given) == Some(end) {
            return Ok(());
        }
        Err(CheckpointError::Elements { tensor: tensor.into(), elements, start, end, given })
    }

    /// Returns the error of a checkpoint, or of one of its files, that differs from the data that
    /// was written.
    pub(crate) fn damaged(path: &Path, how: impl Into<String>) -> Self {
        CheckpointError::Damaged { path: path.to_path_buf(), how: how.into() }
    }

    /// Returns the error of a damaged file, or of another file under its name.
    pub(crate) fn malformed(path: &Path, problem: impl ToString) -> Self {
        CheckpointError::Malformed {
            path: path.to_path_buf(),
            problem: problem.to_string(),
            hint: "Copy or download it again, or save the model again.",
        }
    }
}

/// Returns a path as messages show it. An empty path, such as an unset variable gives, is described
/// in words.
fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { "an empty path".into() } else { path.display().to_string() }
}

/// Returns the directory above `path` in parentheses, if it has a name.
fn above(path: &Path) -> String {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => format!(" ({})", parent.display()),
        None => String::new(),
    }
}

/// Returns the remedy for an error of the operating system.
fn remedy(cause: &io::Error) -> &'static str {
    storage::remedy_for_open_files(cause).unwrap_or_else(|| remedy_for_kind(cause.kind()))
}

/// Returns the remedy for an error whose system code does not matter.
fn remedy_for_kind(kind: io::ErrorKind) -> &'static str {
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
        NotSeekable => "Move away what has the file's name, and restore the file if there is a copy.",
        UnexpectedEof => "The file became shorter while it was read: copy or download it again.",
        _ => "Choose another directory, or fix the cause that the system reports.",
    }
}
