//! The directory of a run's checkpoints, made ready before the run begins.

use checkpoint::{CheckpointError, Checkpoints, Locking, RunLock};
use settings::size::human;
use settings::{Config, Failure, Result};
use std::sync::Arc;
use std::time::SystemTime;
use storage::Disk;

/// Bytes per parameter of a checkpoint: three states in f32.
const BYTES: u64 = 12;

/// Threads that write a rank's part of a checkpoint: disks are fastest with several writes at once.
const WRITERS: usize = 4;

/// Returns the disk of `rank` for its checkpoints.
pub(crate) fn disk(config: &Config, rank: usize) -> Disk {
    let ours = config.checkpoint_faults.iter().filter(|(struck, _)| *struck == rank);
    match ours.map(|(_, fault)| *fault).collect::<Vec<_>>() {
        none if none.is_empty() => Disk::new(WRITERS),
        faults => Disk::with_faults(WRITERS, faults),
    }
}

/// Opens the directory of the checkpoints of a run of a model with so many parameters, if it saves
/// any. The rank that leads creates it, takes its lock, and removes what killed runs have left
/// there.
///
/// # Errors
/// If another run has the lock, the disk refuses, or it has no room.
pub(crate) fn open(config: &Config, parameters: u64) -> Result<Option<(Checkpoints, Option<Arc<RunLock>>)>> {
    let Some(directory) = &config.output.checkpoint else { return Ok(None) };
    let checkpoints = Checkpoints::new(directory, Arc::new(Disk::new(1)));
    if !config.leads() {
        return Ok(Some((checkpoints, None)));
    }
    checkpoints.disk().create_directory_durably(directory).map_err(refused)?;
    let lock = RunLock::acquire(directory, &token(), Locking::default()).map_err(Failure::run)?;
    checkpoints.remove_leftovers().map_err(Failure::run)?;
    check_room(&checkpoints, config.output.checkpoint_keep, BYTES * parameters)?;
    Ok(Some((checkpoints, Some(Arc::new(lock)))))
}

/// Refuses a disk without room for the checkpoints that are kept and the one that is being written.
fn check_room(checkpoints: &Checkpoints, keep: usize, each: u64) -> Result<()> {
    let there = checkpoints.names().map_err(Failure::run)?.len().min(keep);
    let needed = each.saturating_mul((keep + 1 - there) as u64);
    let room = checkpoints.disk().room(checkpoints.directory()).map_err(refused)?;
    if needed <= room {
        return Ok(());
    }
    Err(Failure::run(format!(
        "the disk of {} has no room for the checkpoints of this run: {} are free, and it needs {} more: {} each, of \
         which {} are kept while one more is written.\n\
         Free some space, keep fewer (--checkpoint-keep), or choose a directory on another disk.",
        checkpoints.directory().display(),
        human(room),
        human(needed),
        human(each),
        keep,
    )))
}

fn refused(error: storage::Error) -> Failure {
    Failure::run(CheckpointError::from(error))
}

/// Returns a word that no other run has.
fn token() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let here = Box::new(0u8);
    let seen = format!("{now:?} {} {:p}", std::process::id(), &*here);
    blake3::hash(seen.as_bytes()).to_hex()[..32].to_string()
}
