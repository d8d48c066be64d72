//! Checkpoints that several ranks write: their contents, and their state after any damage, fault or
//! loss of power.

use crate::common::{names, put_a_pipe_at};
use checkpoint::{
    CheckpointError, Checkpoints, ElementRange, FileRecord, LockOptions, Manifest, ModelFiles,
    OpenCheckpoint, Result, RunLock, ShardLayout, ShardWriter,
};
use model::{Layout, ModelConfig, TrainingState};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use storage::{Disk, DiskFault, Effect};

/// Returns a small model whose checkpoint of one rank has two blocks.
pub(crate) fn layout() -> Layout {
    let config =
        ModelConfig { vocabulary: 300, width: 120, layers: 1, heads: 2, head_dim: 60, ..ModelConfig::tiny() };
    Layout::new(&ModelConfig { kv_heads: 1, feed_forward: 30, ..config })
}

/// Returns an element of a state after `steps` steps. All elements differ.
fn value(state: TrainingState, tensor: usize, element: usize, steps: u32) -> f32 {
    (state as usize * 1_000_003 + tensor * 100_003 + element) as f32 + steps as f32 / 4.0
}

/// Returns the elements of each tensor that rank `rank` of `ranks` saves: an equal part, the last
/// shorter.
fn part(elements: usize, rank: usize, ranks: usize) -> std::ops::Range<usize> {
    let each = elements.div_ceil(ranks);
    (rank * each).min(elements)..((rank + 1) * each).min(elements)
}

/// Writes the file of one rank.
fn write_shard(
    checkpoints: &Checkpoints,
    partial: &Path,
    (rank, ranks): (usize, usize),
    steps: u32,
) -> Result<FileRecord> {
    let layout = layout();
    checkpoints.disk().create_directory(partial)?;
    let range =
        |tensor: usize| ElementRange { tensor, range: part(layout.tensors[tensor].elements(), rank, ranks) };
    let ranges: Vec<ElementRange> =
        (0..layout.tensors.len()).map(range).filter(|stored| !stored.range.is_empty()).collect();
    let shard = ShardLayout::new(&layout, std::slice::from_ref(&ranges));
    let mut values = Vec::with_capacity(shard.data_bytes() / size_of::<f32>());
    for state in TrainingState::ALL {
        for ElementRange { tensor, range } in &ranges {
            values.extend(range.clone().map(|element| value(state, *tensor, element, steps)));
        }
    }
    let bytes = bytemuck::cast_slice(&values).to_vec();
    assert_eq!(bytes.len(), shard.data_bytes());
    let name = format!("rank-{rank}-of-{ranks}.safetensors");
    let length = bytes.len();
    ShardWriter::create(checkpoints.disk(), partial, &name, &shard)?.write_all(bytes, length).1
}

/// Returns the model's small files.
fn own_files() -> ModelFiles {
    ModelFiles::of_config(r#"{"eos_token_id": 2}"#)
}

/// Saves a checkpoint of `ranks` ranks after `steps` steps, and removes all but the two newest.
pub(crate) fn save(checkpoints: &Checkpoints, ranks: usize, steps: u32) -> Result<()> {
    save_with(checkpoints, ranks, steps, &own_files())
}

/// Saves like [`save`], with model files.
pub(crate) fn save_with(
    checkpoints: &Checkpoints,
    ranks: usize,
    steps: u32,
    own_files: &ModelFiles,
) -> Result<()> {
    checkpoints.disk().create_directory_durably(checkpoints.directory())?;
    let partial = checkpoints.partial(steps, 1);
    let shards = (0..ranks).map(|rank| write_shard(checkpoints, &partial, (rank, ranks), steps));
    let files = shards.collect::<Result<_>>()?;
    let (progress, record) = (json!({"steps": steps}), json!({"ranks": ranks}));
    let (identity, model_files) = (json!({}), checkpoints.write_model_files(&partial, own_files)?);
    let block_bytes = checkpoint::BLOCK as u64;
    let manifest = Manifest { progress, identity, record, block_bytes, files, model_files };
    let name = checkpoints.publish(&partial, steps, &manifest)?;
    checkpoints.prune(&name, 2, &[])
}

/// Opens the checkpoint `name` and verifies all of it.
pub(crate) fn open(checkpoints: &Checkpoints, name: &str) -> Result<OpenCheckpoint> {
    let checkpoint = checkpoints.open(name, checkpoints.manifest(name)?, &layout())?;
    for state in TrainingState::ALL {
        for (tensor, spec) in layout().tensors.iter().enumerate() {
            checkpoint.verify(state, tensor, &(0..spec.elements()))?;
        }
    }
    Ok(checkpoint)
}

/// Asserts that elements `range` of every state of every tensor have their values after `steps`
/// steps.
pub(crate) fn assert_holds(
    checkpoint: &OpenCheckpoint,
    steps: u32,
    cut: impl Fn(usize) -> std::ops::Range<usize>,
) {
    assert_eq!(checkpoint.manifest().progress["steps"], steps);
    assert_eq!(**checkpoint.model_files(), own_files());
    for state in TrainingState::ALL {
        for (tensor, spec) in layout().tensors.iter().enumerate() {
            let range = cut(spec.elements());
            let mut found = vec![0.0; range.len()];
            checkpoint.read(state, (tensor, spec), range.clone(), &mut found).unwrap();
            let expected: Vec<f32> = range.map(|element| value(state, tensor, element, steps)).collect();
            assert!(found == expected, "{state:?} of {}", spec.name);
        }
    }
}

/// Returns the checkpoints in `folder`.
pub(crate) fn checkpoints(folder: &Path, disk: Disk) -> Checkpoints {
    Checkpoints::new(&folder.join("kept"), Arc::new(disk))
}

/// Returns the newest intact checkpoint.
pub(crate) fn newest(checkpoints: &Checkpoints) -> Option<OpenCheckpoint> {
    let names = checkpoints.names().unwrap();
    names.iter().find_map(|name| open(checkpoints, name).ok())
}

#[test]
fn any_number_of_ranks_reads_what_any_other_wrote() {
    for ranks in 1..=8 {
        let folder = tempfile::tempdir().unwrap();
        let written = checkpoints(folder.path(), Disk::new(2));
        save(&written, ranks, 7).unwrap();
        let name = &written.names().unwrap()[0];
        assert_eq!(name, "step-00000007");
        for readers in 1..=8 {
            let checkpoint = written.open(name, written.manifest(name).unwrap(), &layout()).unwrap();
            for reader in 0..readers {
                assert_holds(&checkpoint, 7, |elements| part(elements, reader, readers));
            }
        }
    }
}

#[test]
fn the_newest_are_kept_and_a_second_of_as_many_steps_replaces_none() {
    let folder = tempfile::tempdir().unwrap();
    let kept = checkpoints(folder.path(), Disk::new(2));
    for steps in [2, 4, 6, 6] {
        save(&kept, 2, steps).unwrap();
    }
    assert_eq!(kept.names().unwrap(), ["step-00000006-1", "step-00000006"]);
    save(&kept, 3, 8).unwrap();
    assert_eq!(kept.names().unwrap(), ["step-00000008", "step-00000006-1"]);
    kept.prune("step-00000008", 1, &["step-00000006-1".into()]).unwrap();
    assert_eq!(kept.names().unwrap().len(), 2, "a damaged one is left as it is");
}

#[test]
fn state_that_is_not_finite_is_refused_and_gives_its_memory_back() {
    let folder = tempfile::tempdir().unwrap();
    let shard = ShardLayout::new(&layout(), &[vec![ElementRange { tensor: 0, range: 0..4 }]]);
    let mut values = [1f32; 12];
    values[9] = f32::NAN;
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let writer = ShardWriter::create(&Arc::new(Disk::new(1)), folder.path(), "rank", &shard).unwrap();
    let (memory, written) = writer.write_all(bytes.clone(), bytes.len());
    assert_eq!(memory, Some(bytes));
    assert!(written.unwrap_err().to_string().contains("not finite"));
}

#[test]
fn a_checkpoint_is_no_directory_of_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let kept = checkpoints(folder.path(), Disk::new(1));
    save(&kept, 1, 3).unwrap();
    kept.prepare().unwrap();
    let one = Checkpoints::new(&kept.directory().join("step-00000003"), kept.disk().clone());
    let error = one.prepare().unwrap_err();
    assert!(matches!(error, CheckpointError::InCheckpoint(_)), "{error}");
    assert!(error.to_string().contains(&format!("({})", kept.directory().display())), "{error}");
    let file = Checkpoints::new(&kept.directory().join("step-00000003/manifest.json"), kept.disk().clone());
    assert!(matches!(file.prepare().unwrap_err(), CheckpointError::NotADirectory(_)));
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_an_error_that_does_not_wait() {
    for name in ["manifest.json", "rank-1-of-2.safetensors", "config.json"] {
        let folder = tempfile::tempdir().unwrap();
        let kept = checkpoints(folder.path(), Disk::new(1));
        save(&kept, 2, 3).unwrap();
        put_a_pipe_at(&kept.directory().join("step-00000003").join(name));
        let error = open(&kept, "step-00000003").err().unwrap().to_string();
        assert!(error.contains(&format!("{name}: it is not a regular file.\nMove away")), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    put_a_pipe_at(&folder.path().join("lock"));
    let locked = [true, false]
        .map(|flock| RunLock::acquire(folder.path(), "run", LockOptions { flock, ..LockOptions::default() }));
    for error in locked.map(|locked| locked.unwrap_err().to_string()) {
        assert!(error.contains("lock: it is not a regular file"), "{error}");
    }
}

/// Weights that are being saved next to checkpoints, and users' files, are not leftovers.
#[test]
fn leftovers_are_those_of_checkpoints_alone() {
    let folder = tempfile::tempdir().unwrap();
    let others = [".model.7.partial", ".step.partial", "step-00000003.partial"];
    for name in [".step-00000003-1.partial", ".step-00000001-old.partial"].into_iter().chain(others) {
        std::fs::create_dir_all(folder.path().join("kept").join(name)).unwrap();
    }
    checkpoints(folder.path(), Disk::new(1)).remove_leftovers().unwrap();
    assert_eq!(names(&folder.path().join("kept")), others);
}

#[test]
fn a_file_that_is_named_like_a_leftover_is_reported_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let kept = checkpoints(folder.path(), Disk::new(1));
    for partial in [kept.partial(3, 1), kept.partial(0, 0)] {
        save(&kept, 1, 2).unwrap();
        std::fs::write(&partial, "notes").unwrap();
        let error = kept.remove_leftovers().unwrap_err().to_string();
        let expected = format!("{} is not a directory, but a run writes", partial.display());
        assert!(error.starts_with(&expected) && error.ends_with("\nMove it away, or remove it."), "{error}");
        assert_eq!(std::fs::read(&partial).unwrap(), b"notes");
        std::fs::remove_file(&partial).unwrap();
    }
    kept.remove_leftovers().unwrap();
}

/// A run that has resumed later removes the checkpoint, whose disk space must then be free.
#[cfg(target_os = "linux")]
#[test]
fn what_was_read_is_not_kept_open() {
    let folder = tempfile::tempdir().unwrap();
    save(&checkpoints(folder.path(), Disk::new(1)), 2, 2).unwrap();
    let found = newest(&checkpoints(folder.path(), Disk::new(1))).unwrap();
    assert_holds(&found, 2, |elements| 0..elements);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let inside =
        open.filter_map(|entry| entry.path().read_link().ok()).filter(|at| at.starts_with(found.path()));
    assert_eq!(inside.count(), 0);
}

/// Every call of a save may fail, be cut short, or find the disk full: either the previous
/// checkpoint stays, or the new one is complete.
#[test]
fn a_fault_at_any_call_of_a_save_loses_nothing() {
    let save_with = |number: u64, effect: Effect| {
        let folder = tempfile::tempdir().unwrap();
        save(&checkpoints(folder.path(), Disk::new(2)), 2, 2).unwrap();
        let disk = Disk::recording(2, vec![DiskFault { kind: None, number, effect }]);
        let faulty = checkpoints(folder.path(), disk);
        let saved = save(&faulty, 3, 4);
        let sound = checkpoints(folder.path(), Disk::new(1));
        let found = newest(&sound).unwrap();
        let steps = found.manifest().progress["steps"].as_u64().unwrap() as u32;
        assert_holds(&found, steps, |elements| 0..elements);
        assert!(steps == 4 || saved.is_err(), "what was saved is found: call {number} {effect:?}");
        sound.remove_leftovers().unwrap();
        save(&sound, 1, 6).unwrap();
        assert_holds(&newest(&sound).unwrap(), 6, |elements| 0..elements);
        (saved, faulty.disk().record().len() as u64)
    };
    // Saves mostly wait for the disk, so all effects are tried in parallel. A full disk may be hit
    // where it does not matter.
    let effects = [
        (Effect::Error(std::io::ErrorKind::PermissionDenied), Some(false)),
        (Effect::Short(5000), Some(true)),
        (Effect::Full, None),
        (Effect::Crash, Some(false)),
    ];
    std::thread::scope(|threads| {
        for (effect, saves) in effects {
            let save_with = &save_with;
            threads.spawn(move || {
                // The system may move fewer bytes than it was asked to, so saves differ in their
                // calls: the first save without that many ends the search.
                for number in 1.. {
                    let (saved, calls) = save_with(number, effect);
                    if calls < number {
                        saved.unwrap();
                        return assert!(calls > 20, "{calls}");
                    }
                    assert!(saves.is_none_or(|saves| saves == saved.is_ok()), "call {number} {effect:?}");
                }
            });
        }
    });
}

/// Every call of a resume may fail or be cut short: either it returns an error with the file's
/// name, or the data is correct.
#[test]
fn a_fault_at_any_call_of_a_resume_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    save(&checkpoints(folder.path(), Disk::new(2)), 3, 2).unwrap();
    let open_with = |number: u64, effect: Effect| {
        let disk = Disk::recording(1, vec![DiskFault { kind: None, number, effect }]);
        let faulty = checkpoints(folder.path(), disk);
        let opened = faulty.names().and_then(|names| open(&faulty, &names[0]));
        (opened, faulty.disk().record().len() as u64)
    };
    // What is read directly depends on where its memory begins, so resumes differ in their calls:
    // the first without that many ends the search.
    for number in 1.. {
        let (opened, calls) = open_with(number, Effect::Error(std::io::ErrorKind::TimedOut));
        if calls < number {
            opened.unwrap();
            return assert!(calls > 12, "{calls}");
        }
        let error = opened.err().unwrap();
        assert!(error.to_string().contains("kept"), "{error}");
        assert_holds(&open_with(number, Effect::Short(100)).0.unwrap(), 2, |elements| 0..elements);
    }
}
