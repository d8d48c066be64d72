//! Models from other programs: Transformers' own, shards, 16-bit weights, additional tensors.

use crate::common::{assert_reads_back, config, save, value, values};
use checkpoint::{CheckpointError, Format, Reader, Writer};
use half::{bf16, f16};
use model::{Layout, ModelConfig};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::path::Path;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/curve");

/// Saves the tensors `ids` of the odd model, stored as `dtype`, with the format's own writer.
fn save_some(path: &Path, dtype: Dtype, ids: impl Iterator<Item = usize>) {
    let layout = Layout::new(&config());
    let tensors: Vec<_> = ids
        .map(|id| {
            let bytes: Vec<u8> =
                values(&layout, id).into_iter().flat_map(|value| stored(value, dtype)).collect();
            (&layout.tensors[id], bytes)
        })
        .collect();
    let views = tensors
        .iter()
        .map(|(spec, bytes)| (&spec.name, TensorView::new(dtype, spec.shape.clone(), bytes).unwrap()));
    let frequencies = ("model.layers.0.self_attn.rotary_emb.inv_freq".to_string(), [0u8; 8]);
    let extra = TensorView::new(Dtype::F64, vec![1], &frequencies.1).unwrap();
    let file = safetensors::serialize(views.chain([(&frequencies.0, extra)]), None).unwrap();
    std::fs::write(path, file).unwrap();
}

fn stored(value: f32, dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::BF16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        Dtype::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        Dtype::F64 => f64::from(value).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

#[test]
fn a_model_saved_by_transformers_reads_as_pytorch_saw_it() {
    let reader = Reader::open(FIXTURE).unwrap();
    let config = reader.config().unwrap();
    assert_eq!((config.width, config.layers, config.kv_heads, config.head_dim), (48, 3, 2, 12));
    let layout = Layout::new(&config);
    reader.check(&layout).unwrap();
    let curve = std::fs::read_to_string(Path::new(FIXTURE).join("curve.json")).unwrap();
    let curve: serde_json::Value = serde_json::from_str(&curve).unwrap();
    let weights = curve["weights"].as_object().unwrap();
    assert_eq!(weights.len(), layout.tensors.len());
    for spec in &layout.tensors {
        let expected = &weights[&spec.name];
        let mut values = vec![0.0; spec.elements()];
        reader.read(spec, 0..spec.elements(), &mut values).unwrap();
        assert_eq!(expected["first"], f64::from(values[0]), "{}", spec.name);
        assert_eq!(expected["last"], f64::from(*values.last().unwrap()), "{}", spec.name);
        let sum: f64 = values.iter().copied().map(f64::from).sum();
        assert!((sum - expected["sum"].as_f64().unwrap()).abs() < 1e-9, "{}: {sum}", spec.name);
    }
}

#[test]
fn sixteen_bit_weights_are_widened() {
    let layout = Layout::new(&config());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weights.safetensors");
    for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
        save_some(&path, dtype, 0..layout.tensors.len());
        let reader = Reader::open(&path).unwrap();
        assert_reads_back(&reader, &layout);
        let mut middle = [0.0; 5];
        reader.read(&layout.tensors[4], 7..12, &mut middle).unwrap();
        assert_eq!(middle.to_vec(), (7..12).map(|i| value(4, i)).collect::<Vec<_>>());
    }
}

#[test]
fn a_large_sixteen_bit_tensor_is_read_across_chunks() {
    let elements = 100_000;
    let bytes: Vec<u8> = (0..elements).flat_map(|i| stored(value(0, i), Dtype::BF16)).collect();
    let spec = model::TensorSpec { name: "large".into(), shape: vec![100, 1000] };
    let view = TensorView::new(Dtype::BF16, spec.shape.clone(), &bytes).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.safetensors");
    std::fs::write(&path, safetensors::serialize([("large", view)], None).unwrap()).unwrap();
    let mut found = vec![0.0; 70_001];
    Reader::open(&path).unwrap().read(&spec, 29_000..99_001, &mut found).unwrap();
    assert_eq!(found, (29_000..99_001).map(|i| value(0, i)).collect::<Vec<_>>());
}

#[test]
fn other_types_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weights.safetensors");
    save_some(&path, Dtype::F64, 0..21);
    let error = Reader::open(&path).unwrap().check(&Layout::new(&config())).unwrap_err();
    let CheckpointError::UnsupportedType { tensor, found, .. } = &error else { panic!("{error}") };
    assert_eq!((tensor.as_str(), found.as_str()), ("model.embed_tokens.weight", "F64"));
}

/// Saves the odd model in two shards of different types.
fn save_shards(directory: &Path) {
    let layout = Layout::new(&config());
    let shard = |id: usize| if id < 8 { "a.safetensors" } else { "b.safetensors" };
    save_some(&directory.join("a.safetensors"), Dtype::BF16, 0..8);
    save_some(&directory.join("b.safetensors"), Dtype::F32, 8..layout.tensors.len());
    let map: serde_json::Map<_, _> =
        layout.tensors.iter().enumerate().map(|(id, spec)| (spec.name.clone(), shard(id).into())).collect();
    let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    std::fs::write(directory.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

#[test]
fn shards_read_as_one_model() {
    let directory = tempfile::tempdir().unwrap();
    save_shards(directory.path());
    assert_reads_back(&Reader::open(directory.path()).unwrap(), &Layout::new(&config()));
    let index = directory.path().join("model.safetensors.index.json");
    assert_reads_back(&Reader::open(index).unwrap(), &Layout::new(&config()));
}

#[test]
fn a_single_file_goes_before_an_index_as_in_transformers() {
    let directory = tempfile::tempdir().unwrap();
    save_shards(directory.path());
    crate::common::save(directory.path(), &config()).unwrap();
    std::fs::remove_file(directory.path().join("a.safetensors")).unwrap();
    assert_reads_back(&Reader::open(directory.path()).unwrap(), &Layout::new(&config()));
}

/// Saves the odd model with `head` as its head and a `config.json` that says it is tied, and opens
/// it.
fn tied_with(directory: &Path, head: impl Fn(usize) -> f32) -> Reader {
    let layout = Layout::new(&config());
    let mut writer = Writer::create(directory, &config(), &layout, Format::default()).unwrap();
    let last = layout.tensors.len() - 1;
    (0..last).for_each(|id| writer.write(id, &values(&layout, id)).unwrap());
    let head: Vec<f32> = (0..layout.tensors[last].elements()).map(head).collect();
    writer.write(last, &head).unwrap();
    writer.finish().unwrap();
    let tied = ModelConfig { tied: true, ..config() }.to_hugging_face();
    std::fs::write(directory.join("config.json"), tied.to_string()).unwrap();
    Reader::open(directory).unwrap()
}

#[test]
fn a_head_is_tied_unless_it_is_stored_with_other_values() {
    let directory = tempfile::tempdir().unwrap();
    let warnings = |reader: &Reader| {
        let config = reader.config().unwrap();
        (config.tied, reader.warnings(&config, &Layout::new(&config)).unwrap())
    };
    let copy = tied_with(directory.path(), |i| value(0, i));
    assert_eq!(warnings(&copy), (true, vec![]));
    let last = 19 * 12 - 1;
    let own = tied_with(directory.path(), |i| if i == last { 5.0 } else { value(0, i) });
    let (tied, said) = warnings(&own);
    assert!(!tied);
    let [line] = &said[..] else { panic!("{said:?}") };
    assert!(line.contains("lm_head.weight") && line.contains("Transformers 5"), "{line}");
}

#[test]
fn surplus_tensors_are_named_but_for_rotary_frequencies() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    save_some(&path, Dtype::BF16, 0..21);
    std::fs::write(directory.path().join("config.json"), config().to_hugging_face().to_string()).unwrap();
    let reader = Reader::open(&path).unwrap();
    let said = |layers| {
        let config = ModelConfig { layers, ..config() };
        reader.warnings(&config, &Layout::new(&config)).unwrap()
    };
    assert_eq!(said(2), [] as [String; 0]);
    let one = said(1);
    assert_eq!(one.len(), 1);
    assert!(one[0].contains(" has 9 tensors that the model does not have"), "{}", one[0]);
    assert!(one[0].ends_with(" and 6 more"), "{}", one[0]);
}

#[test]
fn a_tied_embedding_may_be_stored_as_the_head() {
    let directory = tempfile::tempdir().unwrap();
    let tied = ModelConfig { tied: true, ..config() };
    save(directory.path(), &tied).unwrap();
    let path = directory.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&bytes[8..data]).unwrap();
    let header = header.replace("model.embed_tokens.weight", "lm_head.weight");
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(&path, [&length[..], header.as_bytes(), &bytes[data..]].concat()).unwrap();
    let reader = Reader::open(directory.path()).unwrap();
    assert!(reader.config().unwrap().tied);
    assert_reads_back(&reader, &Layout::new(&tied));
    assert_eq!(reader.warnings(&tied, &Layout::new(&tied)).unwrap(), [] as [String; 0]);
    let missing = reader.check(&Layout::new(&config())).unwrap_err().to_string();
    assert!(missing.contains("no tensor `model.embed_tokens.weight`"), "{missing}");
}
