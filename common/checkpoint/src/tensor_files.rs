//! Stores all tensors of a model in one file, or in several with an index, sharded as in
//! Transformers.

use crate::file_writer::FileWriter;
use crate::replacement::Replacement;
use crate::{CheckpointError, ElementType, Result, names};
use model::{Layout, TensorId, TensorSpec};
use serde_json::{Map, Value, json};
use std::ops::Range;
use std::path::Path;
use storage::Disk;

/// The files that hold all weights, momenta, or variances.
pub(crate) struct TensorFiles {
    stem: &'static str,
    element_type: ElementType,
    tensors: Vec<TensorSpec>,
    files: Vec<FileWriter>,
    /// The tensors of each file.
    parts: Vec<Range<TensorId>>,
    /// The last file that was written; no other file may be open.
    latest: usize,
}

impl TensorFiles {
    /// Plans the files of `layout`'s tensors, whose names begin with `stem`. Each file holds at
    /// most `most` bytes of tensors; a larger tensor has a file of its own.
    ///
    /// # Errors
    /// [`CheckpointError::Malformed`] if the format does not allow such a file.
    pub(crate) fn new(
        directory: &Replacement,
        stem: &'static str,
        layout: &Layout,
        element_type: ElementType,
        most: Option<u64>,
    ) -> Result<Self> {
        let tensors = layout.tensors.clone();
        let parts = parts(tensors.iter().map(|tensor| bytes(tensor, element_type)), most);
        let plan = |(number, part): (usize, &Range<TensorId>)| {
            let name = file_name(stem, number, parts.len());
            FileWriter::new(directory, &name, &tensors[part.clone()], element_type)
        };
        let files = parts.iter().enumerate().map(plan).collect::<Result<_>>()?;
        Ok(TensorFiles { stem, element_type, tensors, files, parts, latest: 0 })
    }

    /// Writes a whole tensor; see [`Writer::write`](crate::Writer::write).
    pub(crate) fn write(&mut self, tensor: TensorId, values: &[f32]) -> Result<()> {
        let file = self.parts.iter().position(|part| part.contains(&tensor));
        let file = file.ok_or(CheckpointError::UnknownTensor { tensor, tensors: self.tensors.len() })?;
        if self.latest != file {
            self.files[self.latest].close()?;
            self.latest = file;
        }
        self.files[file].write(tensor - self.parts[file].start, values)
    }

    /// Blocks until all files, and the index if there are several, have reached the disk.
    ///
    /// # Errors
    /// [`CheckpointError::Incomplete`] if a tensor was never written; [`CheckpointError::Disk`].
    pub(crate) fn finish(mut self, directory: &Replacement) -> Result<()> {
        let mut missing = self.files.iter().flat_map(FileWriter::missing);
        if let Some(first) = missing.next() {
            let (first, missing) = (first.into(), 1 + missing.count());
            return Err(CheckpointError::Incomplete { missing, tensors: self.tensors.len(), first });
        }
        drop(missing);
        let index = (self.parts.len() > 1).then(|| format!("{:#}\n", self.index()));
        self.files.iter_mut().try_for_each(FileWriter::close)?;
        match index {
            Some(text) => write_and_flush(
                directory.disk(),
                &directory.file_path(&names::index(self.stem)),
                text.as_bytes(),
            ),
            None => Ok(()),
        }
    }

    /// Returns the index: which file holds which tensor.
    fn index(&self) -> Value {
        let mut places = Map::new();
        for (number, part) in self.parts.iter().enumerate() {
            let file = file_name(self.stem, number, self.parts.len());
            let tensors = self.tensors[part.clone()].iter();
            places.extend(tensors.map(|tensor| (tensor.name.clone(), file.clone().into())));
        }
        let total: u64 = self.tensors.iter().map(|tensor| bytes(tensor, self.element_type)).sum();
        json!({ "metadata": { "total_size": total }, "weight_map": places })
    }
}

/// Writes and flushes a small file.
///
/// # Errors
/// [`CheckpointError::Disk`].
pub(crate) fn write_and_flush(disk: &Disk, path: &Path, contents: &[u8]) -> Result<()> {
    let file = disk.create(path)?;
    disk.write_now(&file, 0, contents)?;
    Ok(disk.flush(&file)?)
}

fn file_name(stem: &str, number: usize, files: usize) -> String {
    if files == 1 { names::single(stem) } else { names::shard(stem, number, files) }
}

fn bytes(tensor: &TensorSpec, element_type: ElementType) -> u64 {
    (tensor.elements() * element_type.bytes()) as u64
}

/// Splits tensors of these sizes, in order, into parts of at most `most` bytes.
fn parts(sizes: impl Iterator<Item = u64>, most: Option<u64>) -> Vec<Range<TensorId>> {
    let (most, mut parts, mut filled) = (most.unwrap_or(u64::MAX), Vec::<Range<_>>::new(), 0u64);
    for (tensor, size) in sizes.enumerate() {
        match parts.last_mut() {
            Some(part) if filled + size <= most => {
                part.end = tensor + 1;
                filled += size;
            }
            _ => {
                parts.push(tensor..tensor + 1);
                filled = size;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_as_full_as_it_may_be() {
        let ends = |most| -> Vec<usize> {
            let parts = parts([3, 3, 9, 1, 1, 4].into_iter(), most);
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start) && parts[0].start == 0);
            parts.into_iter().map(|part| part.end).collect()
        };
        assert_eq!(ends(None), [6]);
        assert_eq!(ends(Some(21)), [6]);
        assert_eq!(ends(Some(20)), [5, 6]);
        assert_eq!(ends(Some(6)), [2, 3, 6]);
        assert_eq!(ends(Some(1)), [1, 2, 3, 4, 5, 6]);
    }
}
