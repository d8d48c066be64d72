//! The directory of a run's checkpoints: lists, publishes and removes them.

use super::blocks::BlockHasher;
use super::manifest::{FileRecord, Manifest};
use super::reader::{self, OpenCheckpoint};
use crate::names::MANIFEST;
use crate::replacement::Replacement;
use crate::tensor_files::write_and_flush;
use crate::{CheckpointError, ModelFiles, Result};
use model::Layout;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::Disk;

/// Prefix of a checkpoint's name; the number of steps follows.
const PREFIX: &str = "step-";
/// Suffix of a checkpoint that is being written or removed.
const PARTIAL: &str = ".partial";
/// The file that held a checkpoint before version 1 of the format.
const LEGACY_FILE: &str = "state.safetensors";

/// The directory of a run's checkpoints.
#[derive(Clone)]
pub struct Checkpoints {
    directory: PathBuf,
    disk: Arc<Disk>,
}

impl Checkpoints {
    /// Describes the checkpoints in `directory`, which need not exist.
    pub fn new(directory: &Path, disk: Arc<Disk>) -> Self {
        Checkpoints { directory: directory.into(), disk }
    }

    /// Returns the directory that contains the checkpoint at `path`, and the checkpoint's name in
    /// it. `None` if `path` is not named like a checkpoint.
    pub fn one(path: &Path, disk: Arc<Disk>) -> Option<(Self, String)> {
        let path = &path.canonicalize().unwrap_or_else(|_| path.into());
        let name = path.file_name()?.to_str().filter(|name| numbers(name).is_some())?;
        Some((Checkpoints::new(storage::parent(path), disk), name.into()))
    }

    /// Fails if the directory is itself a checkpoint: a run would hide its own checkpoints in it
    /// and lose them with it. Then completes interrupted saves of weights to the directory or to
    /// one above it.
    ///
    /// # Errors
    /// [`CheckpointError::InCheckpoint`], [`CheckpointError::NotADirectory`],
    /// [`CheckpointError::Disk`].
    pub fn prepare(&self) -> Result<()> {
        if self.directory.join(MANIFEST).exists() {
            return Err(CheckpointError::InCheckpoint(self.directory.clone()));
        }
        Replacement::recover(&self.directory)?;
        if self.directory.exists() && !self.directory.is_dir() {
            return Err(CheckpointError::NotADirectory(self.directory.clone()));
        }
        Ok(())
    }

    /// Checks that a checkpoint can be created in the directory, which must exist: creates and
    /// removes a directory as a save does. Only the holder of the [`RunLock`](super::RunLock) may
    /// call it.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`].
    pub fn probe(&self) -> Result<()> {
        let probed = self.partial(0, 0);
        self.disk.create_directory(&probed)?;
        Ok(self.disk.remove_directory(&probed)?)
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the disk.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Returns the names of all published checkpoints, newest first.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`]; [`CheckpointError::OldFormat`] if the directory has only a
    /// checkpoint in a format that is no longer supported.
    pub fn names(&self) -> Result<Vec<String>> {
        let all = self.disk.list(&self.directory)?;
        let mut numbered: Vec<_> = all.iter().filter_map(|name| Some((numbers(name)?, name))).collect();
        if numbered.is_empty() && all.iter().any(|name| name == LEGACY_FILE) {
            return Err(CheckpointError::OldFormat(self.directory.join(LEGACY_FILE)));
        }
        numbered.sort();
        Ok(numbered.into_iter().rev().map(|(_, name)| name.clone()).collect())
    }

    /// Reads the manifest of the checkpoint `name`.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`], [`CheckpointError::NewerFormat`], [`CheckpointError::Disk`].
    pub fn manifest(&self, name: &str) -> Result<Manifest> {
        reader::manifest(&self.disk, &self.directory.join(name))
    }

    /// Opens the checkpoint `name` with the given manifest, of a model with `layout`'s tensors.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`], [`CheckpointError::Disk`].
    pub fn open(&self, name: &str, manifest: Manifest, layout: &Layout) -> Result<OpenCheckpoint> {
        OpenCheckpoint::open(&self.disk, &self.directory.join(name), manifest, layout)
    }

    /// Returns the directory in which a checkpoint after `steps` steps is written until it is
    /// published. No two attempts of a run may have the same number.
    pub fn partial(&self, steps: u32, attempt: u32) -> PathBuf {
        self.directory.join(format!(".{PREFIX}{steps:08}-{attempt}{PARTIAL}"))
    }

    /// Writes the model files to `partial` and flushes them. Returns their records for the
    /// manifest.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`].
    pub fn write_model_files(&self, partial: &Path, model_files: &ModelFiles) -> Result<Vec<FileRecord>> {
        let write = |(name, contents): (&str, &[u8])| {
            write_and_flush(&self.disk, &partial.join(name), contents)?;
            let mut hasher = BlockHasher::default();
            hasher.update(contents);
            Ok(FileRecord { name: name.into(), bytes: contents.len() as u64, blocks: hasher.finish() })
        };
        model_files.files().map(write).collect()
    }

    /// Publishes what all ranks have written to `partial` and flushed: writes the manifest,
    /// flushes, renames. Returns the checkpoint's name.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`]. Nothing is published then, unless only the last flush failed: the
    /// checkpoint has its name, which a loss of power may undo.
    pub fn publish(&self, partial: &Path, steps: u32, manifest: &Manifest) -> Result<String> {
        let path = partial.join(MANIFEST);
        let text = manifest.seal().map_err(|error| CheckpointError::malformed(&path, error))?;
        write_and_flush(&self.disk, &path, text.as_bytes())?;
        self.disk.flush_directory(partial)?;
        let name = self.free_name(steps)?;
        self.disk.rename(partial, &self.directory.join(&name))?;
        self.disk.flush_directory(&self.directory)?;
        Ok(name)
    }

    /// Returns the name of the next checkpoint after `steps` steps. An existing checkpoint, which
    /// may be damaged, is not replaced.
    fn free_name(&self, steps: u32) -> Result<String> {
        let taken = self.names()?.iter().filter_map(|name| numbers(name)).find(|(of, _)| *of == steps);
        Ok(match taken {
            None => format!("{PREFIX}{steps:08}"),
            Some((_, number)) => format!("{PREFIX}{steps:08}-{}", number + 1),
        })
    }

    /// Of the checkpoints up to `newest`, removes all except the `keep` newest. Those in `damaged`
    /// do not count, and stay.
    ///
    /// # Errors
    /// [`CheckpointError::Disk`].
    pub fn prune(&self, newest: &str, keep: usize, damaged: &[String]) -> Result<()> {
        let names = self.names()?;
        let sound = |name: &&String| numbers(name) <= numbers(newest) && !damaged.contains(name);
        for old in names.iter().filter(sound).skip(keep.max(1)) {
            // Rename first: a half-removed directory must not look like a checkpoint.
            let removed = self.directory.join(format!(".{old}-old{PARTIAL}"));
            self.disk.rename(&self.directory.join(old), &removed)?;
            self.disk.remove_directory(&removed)?;
        }
        Ok(())
    }

    /// Removes directories that killed runs left half-written or half-removed. Only the holder of
    /// the [`RunLock`](super::RunLock) may call it.
    ///
    /// # Errors
    /// [`CheckpointError::NotALeftover`] if a file has such a name: no run has written it, so it
    /// stays. [`CheckpointError::Disk`].
    pub fn remove_leftovers(&self) -> Result<()> {
        let is_partial = |name: &&String| {
            name.strip_prefix('.').is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(PARTIAL))
        };
        for name in self.disk.list(&self.directory)?.iter().filter(is_partial) {
            let path = self.directory.join(name);
            if path.symlink_metadata().is_ok_and(|found| !found.is_dir() && !found.is_symlink()) {
                return Err(CheckpointError::NotALeftover(path));
            }
            self.disk.remove_directory(&path)?;
        }
        Ok(())
    }
}

/// Returns the number of steps in a checkpoint's name, and its number among checkpoints after as
/// many steps.
fn numbers(name: &str) -> Option<(u32, u32)> {
    let rest = name.strip_prefix(PREFIX)?;
    let (steps, number) = rest.split_once('-').unwrap_or((rest, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok());
    (steps.len() >= 8).then_some((digits(steps)??, digits(number)??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_without_a_directory_is_in_the_current_one() {
        let (all, name) = Checkpoints::one(Path::new("step-00000012"), Arc::new(Disk::new(1))).unwrap();
        assert_eq!((all.directory(), name.as_str()), (Path::new("."), "step-00000012"));
    }

    #[test]
    fn names_of_checkpoints_alone_have_numbers() {
        assert_eq!(numbers("step-00000012"), Some((12, 0)));
        assert_eq!(numbers("step-00000012-3"), Some((12, 3)));
        for other in
            [".step-00000012-1.partial", "step-12", "step-0000001x", "step-00000012-", "steps", "lock"]
        {
            assert_eq!(numbers(other), None, "{other}");
        }
    }
}
