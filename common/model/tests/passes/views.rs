//! Results do not depend on how weights and gradients are laid out in memory.

use crate::flat::{Fixture, Flat, Tokens, device};
use device::DType;
use model::{Batch, Keep, LayerKind, Model, ModelConfig, init};

fn fixture(config: &ModelConfig, dtype: DType, joined: bool) -> Fixture {
    let (device, model) = (device(), Model::new(config.clone()).unwrap());
    let mut id = 0..;
    let weights = Flat::new(&device, dtype, &model.layout.tensors, |spec| {
        let mut values = vec![0.0; spec.elements()];
        init::fill((3, config.initializer_range), spec, id.next().unwrap(), 0..values.len(), &mut values);
        values
    });
    Fixture { device, model, weights, joined }
}

fn tokens(fixture: &Fixture, shape: Batch) -> Tokens {
    let token = |i: usize| (i * 7919 % fixture.model.config.vocabulary) as u32;
    let tokens: Vec<u32> = (0..shape.rows() + 1).map(token).collect();
    Tokens::new(&fixture.device, &tokens[..shape.rows()], &tokens[1..], shape)
}

fn step(config: &ModelConfig, dtype: DType, joined: bool, times: usize) -> (f64, Vec<f32>) {
    step_keeping(config, dtype, joined, times, Keep::Everything)
}

fn step_keeping(
    config: &ModelConfig,
    dtype: DType,
    joined: bool,
    times: usize,
    keep: Keep,
) -> (f64, Vec<f32>) {
    let fixture = fixture(config, dtype, joined);
    let tokens = tokens(&fixture, Batch { batch: 2, tokens: 24 });
    let mut gradients = Flat::gradients(&fixture.device, dtype, &fixture.model.layout.tensors);
    let losses: Vec<f64> = (0..times).map(|_| fixture.step_keeping(&mut gradients, &tokens, keep)).collect();
    assert!(losses.iter().all(|&loss| loss == losses[0]), "{losses:?}");
    let device = &fixture.device;
    let mut wide = device.zeros(device::Class::Gradients, DType::F32, gradients.buffer.len()).unwrap();
    device.kernels().copy(wide.view_mut(), gradients.buffer.view()).unwrap();
    (losses[0], wide.as_slice().to_vec())
}

fn grouped() -> ModelConfig {
    ModelConfig { kv_heads: 2, layers: 2, ..ModelConfig::tiny() }
}

/// Returns the largest difference, relative to the largest magnitude.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    let most = |values: &mut dyn Iterator<Item = f32>| values.fold(0f32, |most, v| most.max(v.abs()));
    assert!(a.iter().chain(b).all(|v| v.is_finite()));
    most(&mut a.iter().zip(b).map(|(a, b)| a - b)) / most(&mut b.iter().copied())
}

/// Returns loss and gradients in a form that compares bit for bit.
fn bits((loss, gradients): (f64, Vec<f32>)) -> (u64, Vec<u32>) {
    (loss.to_bits(), gradients.iter().map(|g| g.to_bits()).collect())
}

#[test]
fn tensor_by_tensor_is_the_same_model() {
    let wide = ModelConfig { layers: 1, ..ModelConfig::preset("small").unwrap() };
    let odd =
        ModelConfig { width: 36, heads: 6, kv_heads: 2, head_dim: 10, feed_forward: 77, ..wide.clone() };
    for config in [grouped(), wide, odd] {
        for dtype in [DType::F32, DType::Bf16] {
            assert_eq!(bits(step(&config, dtype, false, 1)), bits(step(&config, dtype, true, 1)));
        }
    }
}

#[test]
fn runs_repeat_bit_for_bit() {
    assert_eq!(bits(step(&grouped(), DType::F32, true, 1)), bits(step(&grouped(), DType::F32, true, 1)));
}

#[test]
fn a_second_micro_batch_is_added() {
    for tied in [false, true] {
        let config = ModelConfig { tied, ..grouped() };
        let (_, once) = step(&config, DType::F32, true, 1);
        let (_, twice) = step(&config, DType::F32, true, 2);
        let doubled: Vec<f32> = once.iter().map(|g| 2.0 * g).collect();
        assert!(distance(&twice, &doubled) < 1e-6);
    }
}

#[test]
fn sixteen_bits_are_near() {
    let (loss, gradients) = step(&grouped(), DType::F32, true, 1);
    for (dtype, tolerance) in [(DType::Bf16, 0.05), (DType::F16, 0.01)] {
        let (narrow_loss, narrow) = step(&grouped(), dtype, true, 1);
        assert!((narrow_loss - loss).abs() < 0.01, "{dtype}: {narrow_loss} for {loss}");
        assert!(distance(&narrow, &gradients) < tolerance, "{dtype}");
    }
}

#[test]
fn forward_is_the_same_if_nothing_is_kept() {
    let fixture = fixture(&grouped(), DType::F32, true);
    let tokens = tokens(&fixture, Batch { batch: 2, tokens: 24 });
    let head = fixture.layer(fixture.model.layout.layers.len() - 1);
    let (losses, kept) = fixture
        .model
        .head(
            &fixture.device,
            &head,
            fixture.blocks(&tokens),
            &tokens.targets,
            1.0,
            tokens.shape,
            Keep::Nothing,
        )
        .unwrap();
    assert!(kept.is_none());
    let mut gradients = Flat::gradients(&fixture.device, DType::F32, &fixture.model.layout.tensors);
    let mean = losses.wait().unwrap() / tokens.shape.rows() as f64;
    assert_eq!(mean.to_bits(), fixture.step(&mut gradients, &tokens).to_bits());
}

#[test]
fn what_is_kept_changes_no_bit() {
    let odd = ModelConfig {
        width: 36,
        heads: 6,
        kv_heads: 2,
        head_dim: 10,
        feed_forward: 77,
        tied: true,
        ..grouped()
    };
    for config in [grouped(), odd] {
        for dtype in [DType::F32, DType::Bf16] {
            let everything = bits(step(&config, dtype, true, 2));
            for keep in [Keep::Selective, Keep::Input] {
                assert_eq!(bits(step_keeping(&config, dtype, true, 2, keep)), everything, "{keep:?} {dtype}");
            }
        }
    }
}

#[test]
fn layers_come_in_order() {
    let model = Model::new(grouped()).unwrap();
    let kinds: Vec<LayerKind> = model.layout.layers.iter().map(|layer| layer.kind).collect();
    assert_eq!(kinds, [LayerKind::Embedding, LayerKind::Block(0), LayerKind::Block(1), LayerKind::Head]);
}
