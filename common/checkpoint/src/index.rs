//! The index of a model that is stored in several files.

use crate::file_reader::FileReader;
use crate::{CheckpointError, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The fields of `model.safetensors.index.json` that this crate reads.
#[derive(Deserialize)]
struct Index {
    /// Maps a tensor's name to the name of the file that holds it.
    weight_map: BTreeMap<String, String>,
}

/// The open shards, and a map from a tensor's name to the position of its shard.
pub(crate) type Shards = (Vec<FileReader>, BTreeMap<String, usize>);

/// Opens every shard that the index at `path` names, and checks each against the index.
pub(crate) fn open(path: &Path) -> Result<Shards> {
    let text = storage::read_regular(path).map_err(CheckpointError::io("open", path))?;
    let index: Index = serde_json::from_slice(&text).map_err(|error| invalid(path, error))?;
    let mut shards = Vec::new();
    let mut place = BTreeMap::new();
    for (shard, tensors) in by_shard(&index) {
        let file = open_shard(path, shard, tensors.len())?;
        for tensor in tensors {
            if file.info(tensor).is_none() {
                return Err(invalid(path, format!("tensor `{tensor}` is not in {shard}")));
            }
            place.insert(tensor.into(), shards.len());
        }
        shards.push(file);
    }
    Ok((shards, place))
}

fn by_shard(index: &Index) -> BTreeMap<&str, Vec<&str>> {
    let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, shard) in &index.weight_map {
        shards.entry(shard).or_default().push(tensor);
    }
    shards
}

fn open_shard(index: &Path, shard: &str, tensors: usize) -> Result<FileReader> {
    let path = beside(index, shard)?;
    if path.is_file() {
        return FileReader::open(&path);
    }
    Err(CheckpointError::MissingShard { index: index.into(), shard: shard.into(), tensors })
}

/// Returns the path of the file `name` in the index's directory. Refuses a name that leads
/// elsewhere.
fn beside(index: &Path, name: &str) -> Result<PathBuf> {
    match Path::new(name).file_name() {
        Some(file) if file == name => Ok(index.with_file_name(name)),
        _ => Err(invalid(index, format!("`{name}` is not the name of a file beside it"))),
    }
}

fn invalid(path: &Path, problem: impl ToString) -> CheckpointError {
    CheckpointError::Index { path: path.into(), problem: problem.to_string() }
}
