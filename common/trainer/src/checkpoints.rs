//! The directory of a run's checkpoints, made ready before the run begins.

use checkpoint::{CheckpointError, Checkpoints, LockOptions, RunLock};
use prediction::Prediction;
use settings::size::human;
use settings::{Config, Failure, Result};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use storage::Disk;

/// Bytes per parameter of a checkpoint: three states in f32.
const BYTES_PER_PARAMETER: u64 = 12;

/// Threads that write a rank's part of a checkpoint: disks are fastest with several writes at once.
const WRITERS: usize = 4;

/// Returns the disk of `rank` for its checkpoints.
pub(crate) fn disk(config: &Config, rank: usize) -> Disk {
    let ours = config.checkpoint_faults.iter().filter(|(struck, _)| *struck == rank);
    Disk::with_faults(WRITERS, ours.map(|(_, fault)| *fault).collect())
}

/// Opens the directory of a run's checkpoints, if it saves any. The rank that leads creates it,
/// takes its lock, removes the files of killed runs, and probes that a checkpoint can be created.
///
/// # Errors
/// If another run has the lock, this user may not write there, or the disk fails.
pub(crate) fn open(config: &Config) -> Result<Option<(Checkpoints, Option<Arc<RunLock>>)>> {
    let Some(directory) = &config.output.checkpoint else { return Ok(None) };
    let checkpoints = Checkpoints::new(directory, Arc::new(Disk::new(1)));
    if !config.leads() {
        return Ok(Some((checkpoints, None)));
    }
    checkpoints.prepare().map_err(Failure::usage)?;
    checkpoints.disk().create_directory_durably(directory).map_err(refused)?;
    let lock = RunLock::acquire(directory, &token(), LockOptions::default()).map_err(Failure::run)?;
    checkpoints.remove_leftovers().map_err(Failure::run)?;
    checkpoints.probe().map_err(Failure::run)?;
    Ok(Some((checkpoints, Some(Arc::new(lock)))))
}

/// What a run stores on disk.
pub(crate) struct Space<'a> {
    /// The model's parameters, which every checkpoint has.
    pub(crate) parameters: u64,
    /// The bytes of the final weights.
    pub(crate) saved_bytes: u64,
    /// The ranks' swap files.
    pub(crate) prediction: &'a Prediction,
}

/// Refuses a disk that is too small for the run's `space`: for the checkpoints that it keeps, the
/// one that is being written, and swap files and final weights on the same disk. The `damaged`
/// checkpoints stay.
///
/// # Errors
/// If there is too little room, or the disk does not say how much there is.
pub(crate) fn check_room(
    checkpoints: &Checkpoints,
    damaged: &[String],
    config: &Config,
    space: Space<'_>,
) -> Result<()> {
    let Space { parameters, saved_bytes, prediction } = space;
    let (keep, each) = (config.output.checkpoint_keep, BYTES_PER_PARAMETER * parameters);
    let there = checkpoints.names().map_err(Failure::run)?;
    let directory = checkpoints.directory();
    let swapped = swapped(config, prediction, directory);
    let saved = if shares_disk(config.output.save.as_ref(), directory) { saved_bytes } else { 0 };
    let beside = swapped + saved;
    let needed = each.saturating_mul(checkpoints_to_add(&there, damaged, keep) as u64).saturating_add(beside);
    let room = checkpoints.disk().free_bytes(directory).map_err(refused)?;
    if needed <= room {
        return Ok(());
    }
    Err(Failure::run(format!(
        "the disk of {} has no room for the checkpoints of this run: {} are free, but the run needs {} beyond the \
         checkpoints already there: {} per checkpoint; it keeps {} and writes one more before it removes the oldest{}.\n\
         Free some space, keep fewer (--checkpoint-keep), or choose a directory on another disk.",
        directory.display(),
        human(room),
        human(needed),
        human(each),
        keep,
        if beside > 0 {
            format!("; and {} for offloaded states and saved weights", human(beside))
        } else {
            String::new()
        },
    )))
}

/// Returns the bytes of the swap files that the ranks on this machine have on the disk of
/// `directory`.
fn swapped(config: &Config, prediction: &Prediction, directory: &Path) -> u64 {
    if !shares_disk(config.offload.directory.as_ref(), directory) {
        return 0;
    }
    prediction.ranks.iter().take(config.ranks_here()).map(|rank| rank.disk.total_peak).sum()
}

/// True if `path` is there and on the same file system as `directory`.
fn shares_disk(path: Option<&PathBuf>, directory: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    path.and_then(|path| device(path)).is_some_and(|device_of_path| Some(device_of_path) == device(directory))
}

/// Returns how many checkpoints the run adds before it first removes one. Damaged ones are never
/// removed and do not count.
fn checkpoints_to_add(there: &[String], damaged: &[String], keep: usize) -> usize {
    let sound = there.iter().filter(|name| !damaged.contains(name)).count();
    keep + 1 - sound.min(keep)
}

/// Returns the failure of a save of weights: a usage failure if the directory is unsuitable.
pub(crate) fn save_failure(error: CheckpointError) -> Failure {
    use CheckpointError::{IsCheckpoint, NotADirectory, NotAFile, NotReplaceable};
    match error {
        IsCheckpoint(_) | NotADirectory(_) | NotAFile(_) | NotReplaceable { .. } => Failure::usage(error),
        error => Failure::run(error),
    }
}

fn refused(error: storage::Error) -> Failure {
    Failure::run(CheckpointError::from(error))
}

/// Returns a token that is unique to this run.
fn token() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let here = Box::new(0u8);
    let seen = format!("{now:?} {} {:p}", std::process::id(), &*here);
    blake3::hash(seen.as_bytes()).to_hex()[..32].to_string()
}

#[cfg(test)]
mod tests {
    use super::checkpoints_to_add;

    /// In the directory at a path of this length, there is room for the name of the lock, but for
    /// no checkpoint's. Unlike a missing permission, that stops root, too.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_directory_where_no_checkpoint_can_be_created_is_refused() {
        use clap::Parser;
        /// The longest path that Linux takes.
        const LONGEST: usize = 4095;
        let root = tempfile::tempdir().unwrap();
        let opened = |length: usize| {
            let mut path = root.path().join(length.to_string());
            while path.as_os_str().len() < length {
                let room = length - path.as_os_str().len() - 1;
                path.push("d".repeat(if room > 200 { 100 } else { room }));
            }
            assert_eq!(path.as_os_str().len(), length);
            let flags = ["zero", "--device", "cpu", "--checkpoint", path.to_str().unwrap()];
            let config = super::Config::new(settings::cli::Cli::parse_from(flags).train).unwrap();
            let outcome = super::open(&config).map(|_| ());
            let left = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(left.collect::<Vec<_>>(), ["lock"]);
            outcome
        };
        opened(LONGEST - 100).unwrap();
        let failure = opened(LONGEST - 10).unwrap_err();
        let said = failure.to_string();
        assert!(said.contains("cannot create the directory") && said.contains("name is too long"), "{said}");
        assert_eq!(failure.code(), 1);
    }

    #[test]
    fn damaged_checkpoints_make_no_room_for_others() {
        let there = ["step-2", "step-4", "step-6"].map(String::from);
        assert_eq!(checkpoints_to_add(&[], &[], 2), 3);
        assert_eq!(checkpoints_to_add(&there[..1], &[], 2), 2);
        assert_eq!(checkpoints_to_add(&there, &[], 2), 1);
        assert_eq!(checkpoints_to_add(&there, &there[1..], 2), 2);
        assert_eq!(checkpoints_to_add(&there, &there, 2), 3);
    }
}
