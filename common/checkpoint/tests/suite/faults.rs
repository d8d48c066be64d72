//! Saving under adverse conditions: the previous files stay intact until the new ones are on the
//! disk.

use crate::common::{assert_reads_back, config, names, save, values};
use checkpoint::{CheckpointError, Format, Reader, Writer};
use model::{Layout, ModelConfig};
use std::path::Path;

/// Returns a model of other sizes than [`config`]'s, about 170 KB.
fn larger() -> ModelConfig {
    ModelConfig { vocabulary: 256, width: 48, feed_forward: 64, head_dim: 24, ..config() }
}

fn write_all(writer: &mut Writer, config: &ModelConfig) {
    let layout = Layout::new(config);
    (0..layout.tensors.len()).for_each(|id| writer.write(id, &values(&layout, id)).unwrap());
}

/// Asserts that `directory` holds [`config`]'s model and nothing else.
fn assert_untouched(directory: &Path) {
    assert_eq!(names(directory), ["config.json", "model.safetensors"]);
    let reader = Reader::open(directory).unwrap();
    assert_eq!(reader.config().unwrap().width, config().width);
    assert_reads_back(&reader, &Layout::new(&config()));
}

#[test]
fn the_old_model_stays_until_the_end_and_is_then_replaced() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), &config()).unwrap();
    std::fs::write(directory.path().join("notes.txt"), "mine").unwrap();
    let reader = Reader::open(directory.path()).unwrap();
    let mut writer =
        Writer::create(directory.path(), &larger(), &Layout::new(&larger()), Format::default()).unwrap();
    write_all(&mut writer, &larger());
    assert_reads_back(&Reader::open(directory.path()).unwrap(), &Layout::new(&config()));
    writer.finish().unwrap();
    assert_reads_back(&Reader::open(directory.path()).unwrap(), &Layout::new(&larger()));
    assert_reads_back(&reader, &Layout::new(&config()));
    let files = ["config.json", "model.safetensors", "notes.txt", "tokenizer.json", "tokenizer_config.json"];
    assert_eq!(names(directory.path()), files);
}

#[test]
fn an_obstacle_that_appears_during_a_save_is_named_and_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer =
        Writer::create(directory.path(), &larger(), &Layout::new(&larger()), Format::default()).unwrap();
    write_all(&mut writer, &larger());
    std::fs::create_dir(directory.path().join("model.safetensors")).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(error.to_string().contains("model.safetensors is a directory"), "{error}");
    assert_eq!(names(directory.path()), ["model.safetensors"]);
    let CheckpointError::Unpublished { kept, .. } = error else { panic!("{error}") };
    assert_reads_back(&Reader::open(&kept).unwrap(), &Layout::new(&larger()));
    std::fs::remove_dir_all(kept).unwrap();
}

#[test]
fn an_abandoned_save_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), &config()).unwrap();
    let mut writer =
        Writer::create(directory.path(), &larger(), &Layout::new(&larger()), Format::default()).unwrap();
    write_all(&mut writer, &larger());
    drop(writer);
    assert_untouched(directory.path());
}

#[test]
fn two_writers_do_not_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let first =
        Writer::create(directory.path(), &config(), &Layout::new(&config()), Format::default()).unwrap();
    let second = Writer::create(directory.path(), &config(), &Layout::new(&config()), Format::default())
        .err()
        .unwrap();
    assert!(matches!(second, CheckpointError::Busy(_)), "{second}");
    drop(first);
    save(directory.path(), &config()).unwrap();
}

#[test]
fn leftovers_of_a_killed_run_are_removed_and_other_hidden_directories_stay() {
    let parent = tempfile::tempdir().unwrap();
    let others = [".film.partial", ".out.7.partial.mine", ".out.x.partial", ".output.7.partial"];
    for name in others.into_iter().chain([".out.123.partial"]) {
        std::fs::create_dir(parent.path().join(name)).unwrap();
        std::fs::write(parent.path().join(name).join("model.safetensors"), "half").unwrap();
    }
    save(&parent.path().join("out"), &config()).unwrap();
    assert_eq!(names(parent.path()), [&others[..], &["out"]].concat());
}

#[test]
fn a_file_in_the_directorys_place_is_named_and_kept() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("out");
    std::fs::write(&path, "mine").unwrap();
    let error = save(&path, &config()).unwrap_err();
    assert!(matches!(error, CheckpointError::NotADirectory(_)), "{error}");
    let below = save(&path.join("deeper"), &config()).unwrap_err();
    assert!(below.to_string().contains("A part of the path is a file"), "{below}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "mine");
}

#[test]
fn a_probe_finds_what_a_save_would_and_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("new");
    Writer::probe(&directory).unwrap();
    assert!(names(&directory).is_empty());
    std::fs::create_dir(directory.join("model.safetensors")).unwrap();
    let error = Writer::probe(&directory).unwrap_err();
    assert!(matches!(error, CheckpointError::NotAFile(_)), "{error}");
}

/// The directory's tokenizer is read before training. After training, a bad tokenizer costs
/// nothing.
#[test]
fn a_tokenizer_that_cannot_be_read_is_found_by_a_probe_and_costs_no_save() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), &config()).unwrap();
    let endless = directory.path().join("tokenizer.json");
    std::os::unix::fs::symlink("tokenizer.json", &endless).unwrap();
    let error = Writer::probe(directory.path()).unwrap_err();
    assert!(error.to_string().contains("tokenizer.json"), "{error}");
    save(directory.path(), &config()).unwrap();
    assert_untouched(directory.path());
}

#[test]
fn a_directory_in_a_files_place_is_named_and_kept() {
    for name in ["model.safetensors", "config.json"] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(name)).unwrap();
        let error = save(directory.path(), &config()).unwrap_err();
        assert!(matches!(&error, CheckpointError::NotAFile(path) if path.ends_with(name)), "{error}");
        assert_eq!(names(directory.path()), [name]);
    }
}

#[test]
fn directories_are_created_however_deep() {
    let parent = tempfile::tempdir().unwrap();
    save(&parent.path().join("a/b/c"), &config()).unwrap();
    assert_untouched(&parent.path().join("a/b/c"));
}

#[test]
fn an_empty_path_is_an_error_and_not_the_current_directory() {
    let error = save(Path::new(""), &config()).unwrap_err();
    assert!(error.to_string().starts_with("cannot open an empty path"), "{error}");
}

#[test]
fn a_name_that_is_too_long_is_an_error() {
    let parent = tempfile::tempdir().unwrap();
    let error = save(&parent.path().join("x".repeat(300)), &config()).unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Output};

    #[test]
    fn a_link_to_a_directory_is_followed() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        save(&link, &config()).unwrap();
        assert_untouched(&real);
        assert_eq!(Reader::open(&link).unwrap().config().unwrap().name, "real");
    }

    #[test]
    fn a_link_to_nowhere_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let link = parent.path().join("link");
        symlink(parent.path().join("nowhere"), &link).unwrap();
        let error = save(&link, &config()).unwrap_err();
        assert!(error.to_string().contains("dangling link"), "{error}");
    }

    #[test]
    fn a_device_is_no_directory() {
        let error = save(Path::new("/dev/null"), &config()).unwrap_err();
        assert!(matches!(error, CheckpointError::NotADirectory(_)), "{error}");
    }

    #[test]
    fn a_linked_file_is_replaced_and_its_target_kept() {
        let directory = tempfile::tempdir().unwrap();
        let blob = directory.path().join("blob");
        std::fs::write(&blob, "shared with others").unwrap();
        let saved = directory.path().join("saved");
        std::fs::create_dir(&saved).unwrap();
        symlink(&blob, saved.join("model.safetensors")).unwrap();
        save(&saved, &config()).unwrap();
        assert_untouched(&saved);
        assert_eq!(std::fs::read_to_string(blob).unwrap(), "shared with others");
    }

    const DIRECTORY: &str = "CHECKPOINT_TEST_DIRECTORY";

    /// Not a test of its own: the two tests below run it in a process with a file size limit.
    #[test]
    fn saves_the_larger_model_where_it_is_told() {
        let Some(directory) = std::env::var_os(DIRECTORY) else { return };
        match save(Path::new(&directory), &larger()) {
            Ok(()) => println!("saved"),
            Err(error) => println!("{error}"),
        }
    }

    /// Saves the larger model in a process that may write files of at most 64 KiB, after running
    /// the shell code `trap`.
    fn save_with_limit(directory: &Path, trap: &str) -> Output {
        let script = format!("{trap} ulimit -f 128; exec \"$0\" --exact \"$1\" --nocapture");
        Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .arg("faults::unix::saves_the_larger_model_where_it_is_told")
            .env(DIRECTORY, directory)
            .output()
            .unwrap()
    }

    #[test]
    fn a_disk_that_takes_no_more_is_an_error_that_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        save(directory.path(), &config()).unwrap();
        let output = save_with_limit(directory.path(), "trap '' XFSZ;");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("model.safetensors at byte") && said.contains("File too large"), "{said}");
        assert!(said.contains("`ulimit -f`"), "{said}");
        assert_untouched(directory.path());
    }

    #[test]
    fn a_process_killed_while_it_saves_changes_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("out");
        save(&directory, &config()).unwrap();
        let output = save_with_limit(&directory, "");
        assert!(!output.status.success());
        let leftover = names(parent.path()).remove(0);
        assert!(leftover.starts_with(".out.") && leftover.ends_with(".partial"), "{leftover}");
        assert_untouched(&directory);
        save(&directory, &config()).unwrap();
        assert_untouched(&directory);
        assert_eq!(names(parent.path()), ["out"]);
    }
}
