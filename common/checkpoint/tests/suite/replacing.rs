//! A save replaces the previous one atomically, whenever it dies, and moves other programs' files
//! along.

use crate::common::{assert_reads_back, config, names, save, values};
use checkpoint::{CheckpointError, Checkpoints, Destination, Format, ModelFiles, Reader, Writer};
use model::{Layout, ModelConfig};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use storage::{Call, CallKind, Disk, DiskFault, Effect};

/// Returns a model with a tokenizer, of other sizes than [`config`]'s.
fn other() -> ModelConfig {
    ModelConfig { vocabulary: 256, width: 16, feed_forward: 9, head_dim: 8, layers: 1, ..config() }
}

/// Saves `config`'s model through a disk with `faults`. Also returns its calls.
fn save_on(faults: &[DiskFault], path: &Path, config: &ModelConfig) -> (checkpoint::Result<()>, Vec<Call>) {
    let disk = Arc::new(Disk::recording(1, faults.to_vec()));
    let layout = Layout::new(config);
    let destination = Destination { path, disk: disk.clone(), timeout: Duration::ZERO };
    let saved = Writer::on(destination, config, &layout, Format::default(), &ModelFiles::default()).and_then(
        |mut writer| {
            (0..layout.tensors.len()).try_for_each(|id| writer.write(id, &values(&layout, id)))?;
            writer.finish()
        },
    );
    (saved, disk.record())
}

/// Saves [`config`]'s model to `out`, with files that do not belong to the save.
fn with_others(out: &Path) {
    save(out, &config()).unwrap();
    fs::write(out.join("notes.txt"), "mine").unwrap();
    fs::create_dir_all(out.join("kept/deeper")).unwrap();
    fs::write(out.join("kept/deeper/state"), "too").unwrap();
    std::os::unix::fs::symlink("notes.txt", out.join("link")).unwrap();
}

/// Asserts that `out` has one complete model and, if `complete`, all files that are not the save's.
fn assert_whole(out: &Path, complete: bool, why: &str) {
    let reader = Reader::open(out).unwrap();
    let found = reader.config().unwrap();
    assert_reads_back(&reader, &Layout::new(&found));
    let is_new = found.width == other().width;
    let ours = if is_new { vec!["tokenizer.json", "tokenizer_config.json"] } else { vec![] };
    let mut expected = [&["config.json", "model.safetensors"][..], &ours].concat();
    if complete {
        expected.extend(["kept", "link", "notes.txt"]);
        assert_eq!(fs::read_to_string(out.join("kept/deeper/state")).unwrap(), "too", "{why}");
    }
    // A file may already have its second name, and a directory may not have moved yet.
    let there = names(out);
    assert!(expected.iter().all(|name| there.iter().any(|found| found == name)), "{why}: {there:?}");
    assert_eq!(fs::read_to_string(out.join("link")).unwrap(), "mine", "{why}");
}

/// Ends a save at each of its calls by `effect`. After each, the directory is complete, and the
/// next save recovers everything left behind. `exchanges` says whether the file system can exchange
/// names.
fn dies_everywhere(effect: Effect, exchanges: bool) {
    let cannot = DiskFault {
        kind: Some(CallKind::Exchange),
        number: 1,
        effect: Effect::Error(ErrorKind::Unsupported),
    };
    let given = if exchanges { vec![] } else { vec![cannot] };
    let (mut number, mut ended) = (0, false);
    while !ended {
        number += 1;
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("out");
        with_others(&out);
        let faults = [&given[..], &[DiskFault { kind: None, number, effect }]].concat();
        let (saved, calls) = save_on(&faults, &out, &other());
        ended = calls.len() < number as usize;
        let why = format!("{effect:?} at {:?} of {calls:?}: {saved:?}", calls.get(number as usize - 1));
        assert!(!ended || saved.is_ok(), "{why}");
        if let Err(CheckpointError::Unpublished { kept, .. }) = &saved {
            assert_eq!(Reader::open(kept).unwrap().config().unwrap().width, other().width, "{why}");
            fs::remove_dir_all(kept).unwrap();
        }
        if fs::exists(&out).unwrap() {
            assert_whole(&out, saved.is_ok(), &why)
        } else {
            assert!(!exchanges, "{why}")
        }
        Writer::probe(&out).unwrap();
        assert_whole(&out, true, &format!("{why}, put right"));
        let last = save_on(&[], &out, &other()).0;
        assert!(last.is_ok(), "{why}, then {last:?}");
        assert_whole(&out, true, &why);
        assert_eq!(Reader::open(&out).unwrap().config().unwrap().width, other().width, "{why}");
        assert_eq!(names(parent.path()), ["out"], "{why}");
    }
    assert!(number > 20, "all calls were hit: {number}");
}

/// A directory that the system cannot rename does not cost hours of training.
#[test]
fn a_save_that_cannot_take_its_place_has_a_name_of_its_own() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    with_others(&out);
    let refused = Effect::Error(ErrorKind::CrossesDevices);
    let fault = DiskFault { kind: Some(CallKind::Exchange), number: 1, effect: refused };
    for name in ["out.unpublished".into(), format!("out.unpublished-{}", std::process::id())] {
        let error = save_on(&[fault], &out, &other()).0.unwrap_err();
        let CheckpointError::Unpublished { kept, .. } = &error else { panic!("{error}") };
        assert_eq!(kept, &out.canonicalize().unwrap().with_file_name(name));
        assert_reads_back(&Reader::open(kept).unwrap(), &Layout::new(&other()));
        assert!(error.to_string().contains(&*kept.to_string_lossy()), "{error}");
        assert_whole(&out, true, "the old one");
        assert_eq!(Reader::open(&out).unwrap().config().unwrap().width, config().width);
    }
}

/// A checkpoint in a directory of weights follows the exchange. A process killed before that has
/// left it aside, and a run that saves no weights must find it as well.
#[test]
fn checkpoints_that_a_killed_save_has_not_moved_are_found_again() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    save(&out, &config()).unwrap();
    let aside = parent.path().join(".out.4000000.partial");
    for name in ["kept/step-00000004", "step-00000007"] {
        fs::create_dir_all(aside.join(name)).unwrap();
    }
    let names_of = |path: &Path| {
        let checkpoints = Checkpoints::new(path, Arc::new(Disk::new(1)));
        checkpoints.prepare().unwrap();
        checkpoints.names().unwrap()
    };
    assert_eq!(names_of(&out.join("kept")), ["step-00000004"]);
    assert_eq!(names_of(&out), ["step-00000007"]);
    assert_eq!(names(parent.path()), ["out"]);
    // A directory of another program, which has a configuration and no weights, is left alone.
    let theirs = [parent.path().join(".app.4000000.partial"), parent.path().join("app/kept")];
    theirs.iter().for_each(|directory| fs::create_dir_all(directory).unwrap());
    fs::write(parent.path().join("app/config.json"), "{}").unwrap();
    assert_eq!(names_of(&theirs[1]), [""; 0]);
    assert!(theirs[0].exists());
}

/// A directory cannot have two names. It is missing for one call, not until everything is flushed
/// and removed.
#[test]
fn directories_of_others_follow_at_once() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    with_others(&out);
    let (saved, calls) = save_on(&[], &out, &other());
    saved.unwrap();
    let change = calls.iter().position(|call| call.kind == CallKind::Exchange).unwrap();
    assert_eq!(calls[change + 1].kind, CallKind::Rename);
    assert!(calls[change + 1].path.ends_with("kept"), "{:?}", calls[change + 1]);
}

#[test]
fn a_death_at_any_call_leaves_one_whole_save() {
    dies_everywhere(Effect::Crash, true);
}

#[test]
fn a_death_at_any_call_is_put_right_where_names_cannot_be_exchanged() {
    dies_everywhere(Effect::Crash, false);
}

#[test]
fn an_error_of_any_call_leaves_one_whole_save() {
    dies_everywhere(Effect::Error(ErrorKind::Other), true);
    dies_everywhere(Effect::Error(ErrorKind::Other), false);
}

#[test]
fn a_missing_directory_is_found_again_by_a_probe() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    with_others(&out);
    let aside = parent.path().join(".out.4000000.replaced");
    fs::rename(&out, &aside).unwrap();
    Writer::probe(&out).unwrap();
    assert_whole(&out, true, "the old one alone");
    assert_eq!(names(parent.path()), ["out"]);
}

#[test]
fn no_file_of_an_earlier_save_stays_beside_the_new_ones() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    fs::create_dir(&out).unwrap();
    for name in ["model-00001-of-00002.safetensors", "model.safetensors.index.json", "exp_avg.safetensors"] {
        fs::write(out.join(name), "old").unwrap();
    }
    save(&out, &config()).unwrap();
    assert_eq!(names(&out), ["config.json", "model.safetensors"]);
}

/// A tokenizer for another vocabulary would be wrong without any error.
#[test]
fn a_tokenizer_stays_with_weights_of_its_vocabulary() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    save(&out, &config()).unwrap();
    fs::write(out.join("tokenizer.model"), "mine").unwrap();
    save(&out, &ModelConfig { layers: 1, ..config() }).unwrap();
    assert_eq!(fs::read_to_string(out.join("tokenizer.model")).unwrap(), "mine");
    save(&out, &ModelConfig { vocabulary: 20, ..config() }).unwrap();
    assert_eq!(names(&out), ["config.json", "model.safetensors"]);
}

/// Creates a directory with PyTorch's weights, a tokenizer and, if given, a `config.json`.
fn with_foreign_weights(config_json: Option<&str>) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    for name in ["pytorch_model.bin", "merges.txt", "tokenizer.json", "tokenizer_config.json"] {
        fs::write(out.path().join(name), format!("their {name}")).unwrap();
    }
    config_json.iter().for_each(|text| fs::write(out.path().join("config.json"), text).unwrap());
    out
}

#[test]
fn a_tokenizer_stays_beside_weights_that_cannot_be_read() {
    let other_family = r#"{"model_type": "gpt2", "vocab_size": 19}"#;
    for config_json in [None, Some(other_family), Some("{}"), Some("damaged")] {
        let out = with_foreign_weights(config_json);
        save(out.path(), &config()).unwrap();
        for name in ["merges.txt", "tokenizer.json", "tokenizer_config.json", "pytorch_model.bin"] {
            let kept = fs::read_to_string(out.path().join(name)).unwrap();
            assert_eq!(kept, format!("their {name}"), "{config_json:?}");
        }
        Reader::open(out.path()).unwrap().config().unwrap();
    }
    let larger = with_foreign_weights(Some(r#"{"model_type": "gpt2", "vocab_size": 20}"#));
    save(larger.path(), &config()).unwrap();
    assert_eq!(names(larger.path()), ["config.json", "model.safetensors", "pytorch_model.bin"]);
}

#[test]
fn a_tokenizer_stays_beside_weights_whose_config_is_of_another_family() {
    let out = tempfile::tempdir().unwrap();
    save(out.path(), &config()).unwrap();
    fs::write(out.path().join("config.json"), r#"{"model_type": "gpt2", "vocab_size": 19}"#).unwrap();
    fs::write(out.path().join("tokenizer.model"), "mine").unwrap();
    save(out.path(), &config()).unwrap();
    assert_eq!(fs::read_to_string(out.path().join("tokenizer.model")).unwrap(), "mine");
}

#[test]
fn a_reader_whose_directory_was_replaced_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    save(&out, &config()).unwrap();
    let reader = Reader::open(&out).unwrap();
    save(&out, &other()).unwrap();
    let errors = [reader.config().unwrap_err(), reader.model_files().unwrap_err()];
    assert!(errors.iter().all(|error| matches!(error, CheckpointError::Replaced(_))), "{errors:?}");
    // The weights are still those that were opened.
    assert_reads_back(&reader, &Layout::new(&config()));
}

/// Saves of two models take turns while a reader looks, until one look has succeeded: the reader's
/// configuration belongs to its weights.
#[test]
fn a_reader_never_finds_config_and_weights_of_two_saves() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    save(&out, &config()).unwrap();
    let (has_read, begin) = (AtomicBool::new(false), Instant::now());
    let goes_on = |turn: u32| {
        turn < 20 || !has_read.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(60)
    };
    std::thread::scope(|scope| {
        let saves = scope.spawn(|| {
            for turn in (0..).take_while(|&turn| goes_on(turn)) {
                let model = if turn % 2 == 0 { other() } else { config() };
                save(&out, &model).unwrap();
            }
        });
        while !saves.is_finished() {
            let Ok(reader) = Reader::open(&out) else { continue };
            match reader.config() {
                Ok(found) => {
                    reader.check(&Layout::new(&found)).unwrap();
                    has_read.store(true, Ordering::Relaxed);
                }
                Err(error) => assert!(
                    matches!(error, CheckpointError::Replaced(_) | CheckpointError::Io { .. }),
                    "{error}"
                ),
            }
        }
    });
    assert!(has_read.into_inner(), "no look succeeded");
}

#[test]
fn what_cannot_be_replaced_is_refused_before_training() {
    let root = Writer::probe("/").unwrap_err().to_string();
    assert!(root.contains("cannot be replaced as a whole: it is the root"), "{root}");
    assert!(root.contains("Save to a directory inside it"), "{root}");
    let here = Writer::probe(".").unwrap_err().to_string();
    assert!(here.contains("this program runs in it"), "{here}");
    let mounted = Writer::probe("/proc").unwrap_err().to_string();
    assert!(mounted.contains("a disk is mounted there"), "{mounted}");
}
