//! Every damaged file gives an error with the file's name and a remedy, never a panic.

use crate::common::{config, put_a_pipe_at, save};
use checkpoint::{CheckpointError, Reader};
use model::{Layout, ModelConfig};
use proptest::prelude::*;
use rustix::io::Errno;
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use storage::CallKind;

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The intact weights of the odd model.
static INTACT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), &config()).unwrap();
    std::fs::read(directory.path().join(WEIGHTS)).unwrap()
});

/// Opens `bytes` and reads all of every tensor.
fn load(bytes: &[u8]) -> checkpoint::Result<()> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(WEIGHTS), bytes).unwrap();
    let reader = Reader::open(directory.path())?;
    for spec in &Layout::new(&config()).tensors {
        reader.read(spec, 0..spec.elements(), &mut vec![0.0; spec.elements()])?;
    }
    Ok(())
}

/// One kind of damage: a byte changed, the file cut, bytes added, or a part of the header replaced.
#[derive(Clone, Debug)]
enum Wound {
    Change(usize, u8),
    Cut(usize),
    Append(Vec<u8>),
    Splice(usize, String),
}

fn wounds() -> impl Strategy<Value = Wound> {
    prop_oneof![
        3 => (0usize..2600, any::<u8>()).prop_map(|(at, byte)| Wound::Change(at, byte)),
        1 => (0usize..8, any::<u8>()).prop_map(|(at, byte)| Wound::Change(at, byte)),
        1 => any::<prop::sample::Index>().prop_map(|at| Wound::Cut(at.index(INTACT.len()))),
        1 => prop::collection::vec(any::<u8>(), 1..9).prop_map(Wound::Append),
        3 => (8usize..2600, "[0-9]{1,21}|\\[|\\]|\\{|\"|,|-1|1e9|null|F64|BF16").prop_map(|(at, text)| Wound::Splice(at, text)),
    ]
}

fn wound(bytes: &mut Vec<u8>, wound: &Wound) {
    match wound {
        Wound::Change(at, byte) => bytes.get_mut(*at).into_iter().for_each(|old| *old = *byte),
        Wound::Cut(length) => bytes.truncate(*length),
        Wound::Append(more) => bytes.extend(more),
        Wound::Splice(at, text) => {
            let end = bytes.len().min(at + text.len());
            if let Some(old) = bytes.get_mut(*at..end) {
                old.copy_from_slice(&text.as_bytes()[..end - at]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A file opens if and only if the format's own reader accepts it.
    #[test]
    fn a_damaged_file_is_refused_or_still_sound(wounds in prop::collection::vec(wounds(), 1..4)) {
        let mut bytes = INTACT.clone();
        wounds.iter().for_each(|each| wound(&mut bytes, each));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(WEIGHTS);
        std::fs::write(&path, &bytes).unwrap();
        let opened = Reader::open(&path);
        prop_assert_eq!(opened.is_ok(), SafeTensors::deserialize(&bytes).is_ok(), "{:?}", opened.err());
        if let Err(error) = load(&bytes) {
            prop_assert!(error.to_string().contains(WEIGHTS), "{}", error);
            prop_assert!(error.to_string().len() < 1200, "{}", error);
        }
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(load(&bytes).is_err());
    }

    #[test]
    fn a_damaged_index_is_refused_or_names_its_shard(at in 0usize..80, text in "[ -~]{1,6}") {
        let directory = tempfile::tempdir().unwrap();
        let mut index = br#"{"metadata": {}, "weight_map": {"model.norm.weight": "one.safetensors"}}"#.to_vec();
        wound(&mut index, &Wound::Splice(at, text));
        std::fs::write(directory.path().join(INDEX), index).unwrap();
        if let Err(error) = Reader::open(directory.path()) {
            prop_assert!(error.to_string().contains(INDEX), "{}", error);
        }
    }
}

/// Writes `file` to a directory as `name`, opens the directory and returns the error without the
/// directory's name.
fn complaint(name: &str, file: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(name), file).unwrap();
    let error = Reader::open(directory.path()).and_then(|reader| reader.check(&Layout::new(&config())));
    plain(error.unwrap_err(), directory.path())
}

fn plain(error: CheckpointError, directory: &Path) -> String {
    error.to_string().replace(directory.to_str().unwrap(), "DIR")
}

fn with_header(json: &str) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat()
}

#[test]
fn too_many_open_files_are_no_reason_for_another_directory() {
    for (errno, limit) in [(Errno::MFILE, "`ulimit -n`"), (Errno::NFILE, "fs.file-max")] {
        let cause = || std::io::Error::from(errno);
        let path = PathBuf::from("kept");
        let disk = storage::Error { call: CallKind::Open, path: path.clone(), offset: None, cause: cause() };
        for error in
            [CheckpointError::Io { action: "open", path, source: cause() }, CheckpointError::Disk(disk)]
        {
            let text = error.to_string();
            assert!(text.contains("kept") && text.contains(limit) && !text.contains("directory"), "{text}");
        }
    }
}

#[test]
fn every_complaint_names_the_file_and_the_remedy() {
    let zeros = r#"{"model.embed_tokens.weight":{"dtype":"F32","shape":[0,12],"data_offsets":[0,0]}}"#;
    const MOST: u64 = (1 << 61) - 1;
    let tensor = |number: u64| {
        let (from, to) = (number * MOST, (number + 1) * MOST);
        format!(r#""{number}":{{"dtype":"U8","shape":[{MOST}],"data_offsets":[{from},{to}]}}"#)
    };
    let beyond = format!("{{{}}}", [0, 1, 2, 3, 4, 5, 6, 7].map(tensor).join(","));
    let huge = r#"{"a":{"dtype":"F32","shape":[9999999999,9999999999],"data_offsets":[0,8]}}"#;
    let complaints = [
        ("nothing there", complaint("README.md", b"")),
        ("pickled weights", complaint("pytorch_model.bin", b"")),
        ("empty file", complaint(WEIGHTS, b"")),
        ("cut in the data", complaint(WEIGHTS, &INTACT[..INTACT.len() - 1])),
        ("cut in the header", complaint(WEIGHTS, &INTACT[..100])),
        ("bytes at the end", complaint(WEIGHTS, &[&INTACT[..], b"more"].concat())),
        ("Git LFS", complaint(WEIGHTS, b"version https://git-lfs.github.com/spec/v1")),
        ("PyTorch", complaint(WEIGHTS, b"PK\x03\x04\x00\x00\x08\x08\x00\x00")),
        ("web page", complaint(WEIGHTS, b"<!DOCTYPE html>")),
        ("header too long", complaint(WEIGHTS, &[0xAA; 20])),
        ("no JSON", complaint(WEIGHTS, &with_header("{not JSON}"))),
        ("overflow", complaint(WEIGHTS, &[with_header(huge), vec![0; 8]].concat())),
        ("length overflow", complaint(WEIGHTS, &with_header(&beyond))),
        ("no tensors", complaint(WEIGHTS, &with_header("{}"))),
        ("wrong shape", complaint(WEIGHTS, &with_header(zeros))),
        ("index: no JSON", complaint(INDEX, b"{")),
        (
            "index: missing shard",
            complaint(INDEX, br#"{"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}"#),
        ),
        ("index: elsewhere", complaint(INDEX, br#"{"weight_map": {"a": "../x.safetensors"}}"#)),
        ("index: no shards", complaint(INDEX, br#"{"weight_map": {}}"#)),
    ];
    let screen: Vec<_> = complaints.iter().map(|(case, text)| format!("[{case}]\n{text}\n")).collect();
    insta::assert_snapshot!(screen.join("\n"));
}

#[test]
fn an_index_that_promises_too_much_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("x.safetensors"), with_header("{}")).unwrap();
    std::fs::write(directory.path().join(INDEX), br#"{"weight_map": {"a": "x.safetensors"}}"#).unwrap();
    let error = Reader::open(directory.path()).unwrap_err();
    assert!(plain(error, directory.path()).contains("tensor `a` is not in x.safetensors"));
}

#[test]
fn weights_of_another_model_are_refused_by_tensor_and_shape() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), &config()).unwrap();
    let reader = Reader::open(directory.path()).unwrap();
    let wider = Layout::new(&ModelConfig { feed_forward: 8, ..config() });
    let CheckpointError::WrongShape { tensor, expected, found, .. } = reader.check(&wider).unwrap_err()
    else {
        panic!("not a wrong shape");
    };
    assert_eq!(tensor, "model.layers.0.mlp.gate_proj.weight");
    assert_eq!((expected, found), (vec![8, 12], vec![7, 12]));
    let deeper = Layout::new(&ModelConfig { layers: 3, ..config() });
    let CheckpointError::MissingTensor { tensor, .. } = reader.check(&deeper).unwrap_err() else {
        panic!("not a missing tensor");
    };
    assert_eq!(tensor, "model.layers.2.self_attn.q_proj.weight");
}

#[test]
fn a_damaged_or_missing_configuration_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), &config()).unwrap();
    let path = directory.path().join("config.json");
    let complaint = || plain(Reader::open(directory.path()).unwrap().config().unwrap_err(), directory.path());
    for damage in ["", "[]", "{\"hidden_size\": -1}", "{\"vocab_size\": 9e99}"] {
        std::fs::write(&path, damage).unwrap();
        assert!(complaint().starts_with("DIR/config.json does not describe a model"), "{}", complaint());
    }
    std::fs::remove_file(&path).unwrap();
    assert!(complaint().starts_with("cannot open DIR/config.json"), "{}", complaint());
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let error = Reader::open("/dev/null").unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
    for name in ["config.json", "generation_config.json", "tokenizer.json", INDEX] {
        let directory = tempfile::tempdir().unwrap();
        save(directory.path(), &config()).unwrap();
        if name == INDEX {
            std::fs::remove_file(directory.path().join(WEIGHTS)).unwrap();
        }
        put_a_pipe_at(&directory.path().join(name));
        let read = |reader: Reader| reader.model_files().and_then(|_| reader.config());
        let error = Reader::open(directory.path()).and_then(read).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("it is not a regular file"), "{name}: {error}");
    }
}
