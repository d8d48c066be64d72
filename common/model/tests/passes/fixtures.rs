//! Comparison with Transformers' models of each family; see `tests/fixtures/make.py`.

use crate::flat::{Fixture, Flat, Tokens, device};
use device::DType;
use model::{Batch, Model, ModelConfig, TensorSpec};
use safetensors::{Dtype, SafeTensors};
use std::path::PathBuf;

fn read(model: &str, file: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/fixtures", model, file].iter().collect();
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn words(file: &SafeTensors<'_>, name: &str, dtype: Dtype) -> Vec<[u8; 4]> {
    let tensor = file.tensor(name).unwrap();
    assert_eq!(tensor.dtype(), dtype, "{name}");
    tensor.data().chunks_exact(4).map(|word| word.try_into().unwrap()).collect()
}

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    words(file, name, Dtype::F32).into_iter().map(f32::from_le_bytes).collect()
}

fn ids(file: &SafeTensors<'_>, name: &str) -> Vec<u32> {
    words(file, name, Dtype::I32).into_iter().map(u32::from_le_bytes).collect()
}

/// Returns a fixture's weights, read by the layout's names.
fn fixture(name: &str, joined: bool) -> Fixture {
    let config = String::from_utf8(read(name, "config.json")).unwrap();
    let model = Model::new(ModelConfig::from_hugging_face(&config, name).unwrap()).unwrap();
    let bytes = read(name, "model.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = |spec: &TensorSpec| {
        assert_eq!(file.tensor(&spec.name).unwrap().shape(), spec.shape, "{}", spec.name);
        floats(&file, &spec.name)
    };
    assert_eq!(file.len(), model.layout.tensors.len());
    let device = device();
    let weights = Flat::new(&device, DType::F32, &model.layout.tensors, values);
    Fixture { device, model, weights, joined }
}

fn tokens(fixture: &Fixture, expected: &SafeTensors<'_>) -> Tokens {
    let shape = expected.tensor("ids").unwrap().shape().to_vec();
    let shape = Batch { batch: shape[0], tokens: shape[1] };
    Tokens::new(&fixture.device, &ids(expected, "ids"), &ids(expected, "targets"), shape)
}

/// Returns the largest difference, relative to the largest expected magnitude.
fn relative_error(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    assert!(got.iter().all(|g| g.is_finite()));
    let error = got.iter().zip(expected).fold(0f32, |most, (g, e)| most.max((g - e).abs()));
    error / expected.iter().fold(0f32, |most, e| most.max(e.abs()))
}

fn check(name: &str, joined: bool) {
    let fixture = fixture(name, joined);
    let bytes = read(name, "expected.safetensors");
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let tokens = tokens(&fixture, &expected);
    let layout = &fixture.model.layout;
    let mut gradients = Flat::gradients(&fixture.device, DType::F32, &layout.tensors);
    let loss = fixture.step(&mut gradients, &tokens);
    let expected_loss = f64::from(floats(&expected, "loss")[0]);
    assert!((loss - expected_loss).abs() < 1e-5, "{loss} for {expected_loss}");
    for (id, spec) in layout.tensors.iter().enumerate() {
        let error = relative_error(gradients.tensor(id), &floats(&expected, &spec.name));
        assert!(error < 1e-4, "{} is off by {error}", spec.name);
    }
}

#[test]
fn untied() {
    check("untied", true);
}

#[test]
fn untied_tensor_by_tensor() {
    check("untied", false);
}

#[test]
fn tied() {
    check("tied", true);
}

#[test]
fn scaled_rotations() {
    check("llama3", true);
    check("linear", true);
}

#[test]
fn a_window_as_long_as_the_sequence() {
    check("mistral", true);
}

#[test]
fn biases() {
    check("qwen2", true);
    check("qwen2", false);
}

#[test]
fn norms_of_heads() {
    check("qwen3", true);
    check("qwen3", false);
}

#[test]
fn logits_of_the_last_tokens() {
    for name in ["untied", "tied", "qwen2", "qwen3"] {
        let fixture = fixture(name, true);
        let bytes = read(name, "expected.safetensors");
        let expected = SafeTensors::deserialize(&bytes).unwrap();
        let tokens = tokens(&fixture, &expected);
        let x = fixture.blocks(&tokens);
        let head = fixture.layer(fixture.model.layout.layers.len() - 1);
        let logits = fixture.model.logits(&fixture.device, &head, x, tokens.shape).unwrap();
        let error = relative_error(logits.as_slice(), &floats(&expected, "logits"));
        assert!(error < 1e-5, "{name}: off by {error}");
    }
}
