//! Weights read back as they were written, by this crate and by the format's own.

use crate::common::{assert_reads_back, config, names, save, value, values};
use checkpoint::{CheckpointError, Format, Reader, Writer};
use model::{Layout, ModelConfig};
use proptest::prelude::*;
use safetensors::SafeTensors;
use std::sync::LazyLock;

/// Saves and opens the odd model.
fn saved() -> (tempfile::TempDir, Reader) {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), &config()).unwrap();
    let reader = Reader::open(directory.path()).unwrap();
    (directory, reader)
}

/// Opens the weights of the odd model; the file stays open after its directory is removed.
static OPEN: LazyLock<Reader> = LazyLock::new(|| saved().1);

#[test]
fn a_saved_model_reads_back() {
    let (directory, reader) = saved();
    assert_reads_back(&reader, &Layout::new(&config()));
    assert_eq!(names(directory.path()), ["config.json", "model.safetensors"]);
    let single = Reader::open(directory.path().join("model.safetensors")).unwrap();
    assert_eq!(single.directory(), directory.path());
    assert_reads_back(&single, &Layout::new(&config()));
}

#[test]
fn the_configuration_survives_and_is_named_after_its_directory() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("some-model");
    save(&directory, &config()).unwrap();
    let found = Reader::open(&directory).unwrap().config().unwrap();
    assert_eq!(found, ModelConfig { name: "some-model".into(), ..config() });
}

#[test]
fn the_formats_own_reader_agrees() {
    let (directory, _) = saved();
    let bytes = std::fs::read(directory.path().join("model.safetensors")).unwrap();
    let (header, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header % 8, 0);
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let layout = Layout::new(&config());
    assert_eq!(file.len(), layout.tensors.len());
    for (id, spec) in layout.tensors.iter().enumerate() {
        let tensor = file.tensor(&spec.name).unwrap();
        assert_eq!(tensor.shape(), spec.shape);
        let expected: Vec<u8> = values(&layout, id).iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(tensor.data(), expected, "{}", spec.name);
    }
}

#[test]
fn tied_embeddings_are_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let config = ModelConfig { tied: true, ..config() };
    save(directory.path(), &config).unwrap();
    let reader = Reader::open(directory.path()).unwrap();
    assert!(reader.config().unwrap().tied);
    assert_reads_back(&reader, &Layout::new(&config));
    let untied = reader.check(&Layout::new(&ModelConfig { tied: false, ..config })).unwrap_err();
    assert!(untied.to_string().contains("tie_word_embeddings"), "{untied}");
}

#[test]
fn a_head_beside_tied_embeddings_is_left_alone() {
    assert_reads_back(&OPEN, &Layout::new(&ModelConfig { tied: true, ..config() }));
}

#[test]
fn a_byte_level_model_brings_its_tokenizer() {
    let directory = tempfile::tempdir().unwrap();
    save(directory.path(), &ModelConfig { vocabulary: 256, ..config() }).unwrap();
    let files = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
    assert_eq!(names(directory.path()), files);
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(directory.path().join(name)).unwrap()).unwrap()
    };
    let config_json = read("config.json");
    assert_eq!(read("tokenizer_config.json")["model_max_length"], config_json["max_position_embeddings"]);
    let (tokenizer, bytes) = (read("tokenizer.json"), serde_json::json!("ByteLevel"));
    assert_eq!((&tokenizer["pre_tokenizer"]["type"], &tokenizer["decoder"]["type"]), (&bytes, &bytes));
    // Neither adds a space nor splits words, so that the bytes and the tokens are the same.
    for switch in ["add_prefix_space", "use_regex"] {
        assert_eq!(tokenizer["pre_tokenizer"][switch], false, "{switch}");
    }
    assert_eq!(tokenizer["model"]["type"], "BPE");
    assert_eq!(tokenizer["model"]["merges"], serde_json::json!([]));
    let vocabulary = tokenizer["model"]["vocab"].as_object().unwrap();
    // GPT-2's symbols for these bytes.
    for (byte, symbol) in
        [(b'a', "a"), (b' ', "Ġ"), (b'\n', "Ċ"), (0, "Ā"), (0x7F, "ġ"), (0xC3, "Ã"), (0xAD, "Ń")]
    {
        assert_eq!(vocabulary[symbol], byte, "{symbol}");
    }
    let mut ids: Vec<u64> = vocabulary.values().map(|id| id.as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..256).collect::<Vec<_>>());
}

#[test]
fn what_a_caller_gets_wrong_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::new(&config());
    let mut writer = Writer::create(directory.path(), &config(), &layout, Format::default()).unwrap();
    let unknown = writer.write(layout.tensors.len(), &[]).unwrap_err();
    assert!(matches!(unknown, CheckpointError::UnknownTensor { .. }), "{unknown}");
    let short = writer.write(0, &[0.0; 3]).unwrap_err();
    assert!(matches!(short, CheckpointError::Elements { given: 3, elements: 228, .. }), "{short}");
    writer.write(0, &values(&layout, 0)).unwrap();
    let incomplete = writer.finish().unwrap_err();
    let CheckpointError::Incomplete { missing, tensors, first } = incomplete else { panic!("{incomplete}") };
    assert_eq!((missing, tensors), (layout.tensors.len() - 1, layout.tensors.len()));
    assert_eq!(first, layout.tensors[1].name);
    assert!(names(directory.path()).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_slice_is_that_part_of_the_whole(id in 0usize..21, a in 0usize..230, b in 0usize..230) {
        let spec = &Layout::new(&config()).tensors[id];
        let (start, end) = (a.min(b).min(spec.elements()), a.max(b).min(spec.elements()));
        let mut found = vec![f32::NAN; end - start];
        OPEN.read(spec, start..end, &mut found).unwrap();
        prop_assert_eq!(found, (start..end).map(|i| value(id, i)).collect::<Vec<_>>());
    }

    #[test]
    fn a_range_beyond_the_tensor_or_of_another_length_is_refused(
        start in prop_oneof![0usize..300, Just(usize::MAX)], length in 0usize..300, given in 0usize..300,
    ) {
        let spec = &Layout::new(&config()).tensors[0];
        let end = start.wrapping_add(length);
        let fits = start <= end && end <= spec.elements() && end - start == given;
        let result = OPEN.read(spec, start..end, &mut vec![0.0; given]);
        prop_assert_eq!(result.is_ok(), fits);
    }
}
