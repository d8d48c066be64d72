//! Reads a checkpoint: any range of any state of any tensor, from intact blocks only.

use super::blocks::{BLOCK, is_intact};
use super::manifest::{FileRecord, Manifest, NotAManifest};
use super::{FORMAT, shard};
use crate::elements::in_file_order;
use crate::header;
use crate::names::MANIFEST;
use crate::{CheckpointError, ModelFiles, Result};
use model::{Layout, TensorId, TensorSpec, TrainingState};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::{Disk, File};

/// A checkpoint that is open for reading. Ranks may share it.
pub struct OpenCheckpoint {
    path: PathBuf,
    manifest: Manifest,
    files: Vec<ShardFile>,
    model_files: Arc<ModelFiles>,
    /// The places of a tensor's elements, in order, by state and tensor.
    stored: [Vec<Vec<StoredRange>>; TrainingState::ALL.len()],
}

/// A file, and which of its blocks have been verified. It is open only while it is read. Otherwise
/// a run would keep the disk space of the checkpoint that it resumed from and later removed.
struct ShardFile {
    disk: Arc<Disk>,
    path: PathBuf,
    record: FileRecord,
    intact: Vec<AtomicBool>,
}

/// The place of a range of elements.
struct StoredRange {
    range: Range<usize>,
    file: usize,
    /// Offset of the first byte from the file's start.
    offset: u64,
}

/// Reads the manifest of the checkpoint in `directory`.
///
/// # Errors
/// [`CheckpointError::Damaged`], [`CheckpointError::NewerFormat`], [`CheckpointError::Disk`].
pub(super) fn manifest(disk: &Disk, directory: &Path) -> Result<Manifest> {
    let path = directory.join(MANIFEST);
    let damaged = |how| CheckpointError::damaged(&path, how);
    let file = disk.open(&path)?;
    // Exactly the file's length: a damaged file cannot request more memory than its own size.
    let mut text = vec![0; disk.length(&file)? as usize];
    disk.read_now(&file, 0, &mut text)?;
    let text = String::from_utf8(text).map_err(|_| damaged("it is not text"))?;
    let manifest = Manifest::unseal(&text).map_err(|wrong| match wrong {
        NotAManifest::Damaged(how) => damaged(how),
        NotAManifest::Format(format) => {
            CheckpointError::NewerFormat { path: path.clone(), format, newest: FORMAT }
        }
    })?;
    let sound = |file: &FileRecord| {
        file.blocks.len() as u64 == file.bytes.div_ceil(BLOCK as u64)
            && Path::new(&file.name).file_name() == Some(file.name.as_ref())
    };
    let mut files = manifest.files.iter().chain(&manifest.model_files);
    if manifest.block_bytes != BLOCK as u64 || !files.all(sound) {
        return Err(damaged("its list of blocks is wrong"));
    }
    Ok(manifest)
}

/// Reads the model files that the manifest in `directory` lists.
fn model_files(disk: &Arc<Disk>, directory: &Path, manifest: &Manifest) -> Result<ModelFiles> {
    let read = |record: &FileRecord| {
        let file = ShardFile::open(disk, directory, record.clone())?;
        Ok((record.name.clone(), file.read(0..record.bytes)?))
    };
    let files = manifest.model_files.iter().map(read).collect::<Result<Vec<_>>>()?;
    let unknown =
        || CheckpointError::damaged(&directory.join(MANIFEST), "the manifest lists unknown model files");
    ModelFiles::from_files(files).ok_or_else(unknown)
}

impl OpenCheckpoint {
    /// Opens the checkpoint in `directory`, whose manifest has been read, of a model with
    /// `layout`'s tensors. Verifies the headers of all files, and that every element is stored
    /// exactly once.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`], [`CheckpointError::Disk`].
    pub(super) fn open(
        disk: &Arc<Disk>,
        directory: &Path,
        manifest: Manifest,
        layout: &Layout,
    ) -> Result<Self> {
        let open = |record: &FileRecord| ShardFile::open(disk, directory, record.clone());
        let files = manifest.files.iter().map(open).collect::<Result<Vec<_>>>()?;
        let model_files = Arc::new(model_files(disk, directory, &manifest)?);
        let empty = || layout.tensors.iter().map(|_| Vec::new()).collect();
        let stored = [empty(), empty(), empty()];
        let mut checkpoint = OpenCheckpoint { path: directory.into(), manifest, files, model_files, stored };
        for file in 0..checkpoint.files.len() {
            checkpoint.add_ranges(file, layout)?;
        }
        checkpoint.check_complete(layout)?;
        Ok(checkpoint)
    }

    /// Returns the checkpoint's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the model files. Empty if training started without weights.
    pub fn model_files(&self) -> &Arc<ModelFiles> {
        &self.model_files
    }

    /// Records where the ranges of a file are.
    fn add_ranges(&mut self, number: usize, layout: &Layout) -> Result<()> {
        let file = &self.files[number];
        let (header, data) = file.header()?;
        let ranges = header.metadata().clone().unwrap_or_default();
        for (id, tensor) in layout.tensors.iter().enumerate() {
            let Some(words) = ranges.get(&tensor.name) else { continue };
            for state in TrainingState::ALL {
                let name = shard::name(state, tensor);
                let found = header.info(&name).filter(|info| info.dtype == Dtype::F32);
                let (Some(info), Some(range)) = (found, shard::range(words)) else {
                    return Err(file.damaged(format!("it has no {name} of elements {words}")));
                };
                if info.shape != [range.len()] {
                    return Err(file.damaged(format!("{name} has shape {:?}, not {words}", info.shape)));
                }
                let offset = data + info.data_offsets.0 as u64;
                self.stored[state as usize][id].push(StoredRange { range, file: number, offset });
            }
        }
        Ok(())
    }

    /// Checks that the ranges of every tensor cover each of its elements exactly once.
    fn check_complete(&mut self, layout: &Layout) -> Result<()> {
        for (state, tensors) in TrainingState::ALL.into_iter().zip(&mut self.stored) {
            for (ranges, tensor) in tensors.iter_mut().zip(&layout.tensors) {
                ranges.sort_by_key(|stored| stored.range.start);
                let end = ranges
                    .iter()
                    .try_fold(0, |end, stored| (stored.range.start == end).then_some(stored.range.end));
                if end != Some(tensor.elements()) {
                    let how =
                        format!("elements of {} are missing, or stored twice", shard::name(state, tensor));
                    return Err(CheckpointError::damaged(&self.path, how));
                }
            }
        }
        Ok(())
    }

    /// Verifies every block that contains elements `range` of `state` of a tensor. Does not read a
    /// block again once it has been verified.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`], [`CheckpointError::Disk`].
    pub fn verify(&self, state: TrainingState, tensor: TensorId, range: &Range<usize>) -> Result<()> {
        for (stored, part) in self.touched(state, tensor, range) {
            let file = &self.files[stored.file];
            file.verify(&*file.reopen()?, stored.bytes(&part))?;
        }
        Ok(())
    }

    /// Fills `values` with elements `range` of `state` of `tensor`, counted row-major. Reads no
    /// other blocks.
    ///
    /// # Errors
    /// [`CheckpointError::Elements`] if `range` leaves the tensor or is not as long as `values`;
    /// otherwise as [`OpenCheckpoint::verify`].
    pub fn read(
        &self,
        state: TrainingState,
        (id, tensor): (TensorId, &TensorSpec),
        range: Range<usize>,
        values: &mut [f32],
    ) -> Result<()> {
        CheckpointError::check_range(&tensor.name, tensor.elements(), &range, values.len())?;
        for (stored, part) in self.touched(state, id, &range) {
            let into = &mut values[part.start - range.start..part.end - range.start];
            self.files[stored.file].read_into(stored.bytes(&part), bytemuck::cast_slice_mut(into))?;
            in_file_order(bytemuck::cast_slice_mut(into), u32::swap_bytes);
        }
        Ok(())
    }

    /// Returns the stored ranges that overlap `range`, each with the overlap.
    fn touched<'a>(
        &'a self,
        state: TrainingState,
        tensor: TensorId,
        range: &'a Range<usize>,
    ) -> impl Iterator<Item = (&'a StoredRange, Range<usize>)> {
        let part =
            |stored: &StoredRange| stored.range.start.max(range.start)..stored.range.end.min(range.end);
        let stored = self.stored[state as usize][tensor].iter();
        stored.map(move |stored| (stored, part(stored))).filter(|(_, part)| !part.is_empty())
    }
}

impl StoredRange {
    /// Returns the bytes in the file that hold `part` of these elements.
    fn bytes(&self, part: &Range<usize>) -> Range<u64> {
        let at = |element: usize| self.offset + ((element - self.range.start) * size_of::<f32>()) as u64;
        at(part.start)..at(part.end)
    }
}

impl ShardFile {
    fn open(disk: &Arc<Disk>, directory: &Path, record: FileRecord) -> Result<Self> {
        let intact = record.blocks.iter().map(|_| AtomicBool::new(false)).collect();
        let shard = ShardFile { disk: disk.clone(), path: directory.join(&record.name), record, intact };
        let (found, expected) = (disk.length(&*shard.reopen()?)?, shard.record.bytes);
        if found != expected {
            return Err(shard.damaged(format!("it has {found} bytes instead of {expected}")));
        }
        Ok(shard)
    }

    fn reopen(&self) -> Result<Arc<File>> {
        Ok(self.disk.open(&self.path)?)
    }

    fn damaged(&self, how: impl Into<String>) -> CheckpointError {
        CheckpointError::damaged(&self.path, how)
    }

    /// Reads the header from intact blocks. Returns it with the offset of the data.
    fn header(&self) -> Result<(Metadata, u64)> {
        const LENGTH: u64 = header::LENGTH as u64;
        let bytes = self.record.bytes;
        let wrong = || self.damaged("its header is wrong");
        let start = self.read(0..LENGTH.min(bytes))?.try_into().map_err(|_| wrong())?;
        let data = LENGTH.checked_add(header::length(start)).filter(|&data| data <= bytes);
        let data = data.ok_or_else(wrong)?;
        let header = header::parse(&self.read(LENGTH..data)?).map_err(|_| wrong())?;
        if data.checked_add(header.data_len() as u64) != Some(bytes) {
            return Err(wrong());
        }
        Ok((header, data))
    }

    /// Reads bytes `range` from intact blocks.
    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut read = vec![0; (range.end - range.start) as usize];
        self.read_into(range, &mut read)?;
        Ok(read)
    }

    /// Fills `into` with bytes `range` from intact blocks.
    fn read_into(&self, range: Range<u64>, into: &mut [u8]) -> Result<()> {
        let (file, start) = (self.reopen()?, range.start);
        self.verify(&file, range)?;
        Ok(self.disk.read_now(&file, start, into)?)
    }

    /// Verifies the blocks that contain bytes of `range`. `file` is this file, opened.
    fn verify(&self, file: &File, range: Range<u64>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let block = |byte: u64| (byte / BLOCK as u64) as usize;
        let mut memory = Vec::new();
        for number in block(range.start)..=block(range.end - 1) {
            if self.intact[number].load(Ordering::Relaxed) {
                continue;
            }
            let start = (number * BLOCK) as u64;
            memory.resize((self.record.bytes - start).min(BLOCK as u64) as usize, 0);
            self.disk.read_now(file, start, &mut memory)?;
            if !is_intact(&memory, &self.record.blocks[number]) {
                return Err(self.damaged(format!("block {number} (at byte {start}) does not match its hash")));
            }
            self.intact[number].store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}
