//! The small files that come with a model are saved with the weights that training makes of it.

use crate::common::{config, names, save, values};
use crate::sharded;
use checkpoint::{
    CheckpointError, Checkpoints, Destination, ElementType, Format, ModelFiles, Reader, Writer,
};
use model::{Layout, ModelConfig};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::Disk;

/// Returns a config of [`config`]'s model as its authors may have written it.
fn theirs(config: &ModelConfig) -> Value {
    let mut theirs = config.to_hugging_face();
    let more = json!({
        "bos_token_id": 1, "eos_token_id": [2, 7], "pad_token_id": 0, "initializer_range": 0.041666666666666664,
        "rope_scaling": { "rope_type": "default" }, "auto_map": { "AutoConfig": "theirs" }, "dtype": "float32",
    });
    theirs.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    theirs
}

/// Creates a model with every kind of small file, next to weights that are stored as `stored`.
fn bring(directory: &Path, config: &ModelConfig, stored: ElementType) -> ModelFiles {
    let format = Format { element_type: Some(stored), ..Format::default() };
    write(directory, config, format, &ModelFiles::default()).unwrap();
    for own in ["tokenizer.json", "tokenizer_config.json"] {
        let _ = fs::remove_file(directory.join(own));
    }
    fs::write(directory.join("config.json"), theirs(config).to_string()).unwrap();
    for name in ["generation_config.json", "tokenizer.model", "chat_template.jinja", "notes.txt"] {
        fs::write(directory.join(name), format!("their {name}")).unwrap();
    }
    Reader::open(directory).unwrap().model_files().unwrap()
}

fn write(out: &Path, config: &ModelConfig, format: Format, own_files: &ModelFiles) -> checkpoint::Result<()> {
    let layout = Layout::new(config);
    let disk = Arc::new(Disk::new(1));
    let destination = Destination { path: out, disk, timeout: Duration::ZERO };
    let mut writer = Writer::on(destination, config, &layout, format, own_files)?;
    (0..layout.tensors.len()).try_for_each(|id| writer.write(id, &values(&layout, id)))?;
    writer.finish()
}

fn saved_config(out: &Path) -> Value {
    serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap()
}

#[test]
fn what_a_model_brought_is_saved_with_what_training_made_of_it() {
    let [from, out] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for stored in ElementType::ALL {
        // A model of 256 tokens would get the byte-level tokenizer if it came without one.
        let config = ModelConfig { vocabulary: 256, ..config() };
        let own_files = bring(from.path(), &config, stored);
        assert_eq!(own_files.element_type(), stored);
        write(out.path(), &config, Format::default(), &own_files).unwrap();
        let mut expected = theirs(&config);
        let word = match stored {
            ElementType::F32 => "float32",
            ElementType::Bf16 => "bfloat16",
            ElementType::F16 => "float16",
        };
        (expected["dtype"], expected["torch_dtype"]) = (word.into(), word.into());
        assert_eq!(saved_config(out.path()), expected, "{stored}");
        for name in ["generation_config.json", "tokenizer.model", "chat_template.jinja"] {
            assert_eq!(fs::read_to_string(out.path().join(name)).unwrap(), format!("their {name}"));
        }
        let files = ["chat_template.jinja", "config.json", "generation_config.json", "model.safetensors"];
        assert_eq!(names(out.path()), [&files[..], &["tokenizer.model"]].concat());
        assert_eq!(Reader::open(out.path()).unwrap().model_files().unwrap(), own_files, "{stored}");
    }
}

#[test]
fn only_what_training_decides_changes_in_a_config() {
    let [from, out] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let own_files = bring(from.path(), &config(), ElementType::F16);
    let format = Format { element_type: Some(ElementType::Bf16), ..Format::default() };
    let longer = ModelConfig { sequence_length: 1000, ..config() };
    write(out.path(), &longer, format, &own_files).unwrap();
    let mut expected = theirs(&config());
    (expected["dtype"], expected["torch_dtype"]) = ("bfloat16".into(), "bfloat16".into());
    expected["max_position_embeddings"] = 1000.into();
    assert_eq!(saved_config(out.path()), expected);
    let shorter = ModelConfig { sequence_length: 5, ..config() };
    write(out.path(), &shorter, format, &own_files).unwrap();
    expected["max_position_embeddings"] = 128.into();
    assert_eq!(saved_config(out.path()), expected);
}

#[test]
fn settings_of_generation_stay_with_weights_of_their_vocabulary() {
    let out = tempfile::tempdir().unwrap();
    bring(out.path(), &config(), ElementType::F32);
    save(out.path(), &ModelConfig { layers: 1, ..config() }).unwrap();
    assert!(names(out.path()).contains(&"generation_config.json".to_string()));
    save(out.path(), &ModelConfig { vocabulary: 20, ..config() }).unwrap();
    assert_eq!(names(out.path()), ["config.json", "model.safetensors", "notes.txt"]);
}

#[test]
fn a_model_file_that_cannot_be_read_is_named() {
    let from = tempfile::tempdir().unwrap();
    bring(from.path(), &config(), ElementType::F32);
    fs::create_dir(from.path().join("merges.txt")).unwrap();
    let error = Reader::open(from.path()).unwrap().model_files().unwrap_err();
    assert!(error.to_string().contains("merges.txt"), "{error}");
}

/// Saves a checkpoint with model files. Returns the directory of checkpoints.
fn kept(directory: &Path, own_files: &ModelFiles) -> Checkpoints {
    let checkpoints = Checkpoints::new(directory, Arc::new(Disk::new(1)));
    sharded::save_with(&checkpoints, 2, 4, own_files).unwrap();
    checkpoints
}

#[test]
fn a_checkpoint_keeps_what_the_model_brought() {
    let [from, directory] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let own_files = bring(from.path(), &config(), ElementType::Bf16);
    let checkpoints = kept(directory.path(), &own_files);
    let found = sharded::open(&checkpoints, "step-00000004").unwrap();
    assert_eq!(**found.model_files(), own_files);
    assert_eq!(found.model_files().element_type(), ElementType::Bf16);
}

#[test]
fn another_tokenizer_replaces_the_models_whole() {
    let [from, other, out] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let config = ModelConfig { vocabulary: 256, ..config() };
    let own_files = bring(from.path(), &config, ElementType::F32);
    for name in ["own.json", "tokenizer_config.json", "generation_config.json"] {
        fs::write(other.path().join(name), format!("other {name}")).unwrap();
    }
    let with = own_files.with_tokenizer(&other.path().join("own.json")).unwrap();
    write(out.path(), &config, Format::default(), &with).unwrap();
    for (name, contents) in [
        ("tokenizer.json", "other own.json"),
        ("tokenizer_config.json", "other tokenizer_config.json"),
        ("generation_config.json", "their generation_config.json"),
    ] {
        assert_eq!(fs::read_to_string(out.path().join(name)).unwrap(), contents);
    }
    let all = names(out.path());
    assert!(!all.iter().any(|name| name == "tokenizer.model" || name == "chat_template.jinja"), "{all:?}");
    let missing = ModelFiles::default().with_tokenizer(&other.path().join("none.json")).unwrap_err();
    assert!(missing.to_string().contains("none.json"), "{missing}");
}

#[test]
fn damage_to_what_a_checkpoint_keeps_of_a_model_is_found() {
    let [from, directory] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let checkpoints = kept(directory.path(), &bring(from.path(), &config(), ElementType::F32));
    for name in ["config.json", "generation_config.json", "tokenizer.model"] {
        let path = directory.path().join("step-00000004").join(name);
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [&flipped[..], &whole[..whole.len() - 1], &[]] {
            fs::write(&path, damaged).unwrap();
            let error = sharded::open(&checkpoints, "step-00000004").map(drop).unwrap_err();
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        fs::write(&path, whole).unwrap();
    }
    sharded::open(&checkpoints, "step-00000004").unwrap();
}
