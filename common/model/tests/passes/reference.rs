//! A second implementation of the whole model, in f64, element by element, with which the passes'
//! gradients are compared.

use crate::flat::{Fixture, Flat, Tokens, device};
use crate::scalar::{Tape, Var};
use device::DType;
use model::{Batch, Layout, Model, ModelConfig, TensorSpec, init};
use proptest::prelude::*;
use std::collections::HashMap;

type Row = Vec<Var>;

/// The model, written from the paper's formulas. `weights` are looked up by their Hugging Face
/// names.
struct Reference<'a> {
    config: &'a ModelConfig,
    weights: HashMap<String, Vec<Var>>,
    tape: Tape,
}

impl<'a> Reference<'a> {
    fn new(config: &'a ModelConfig, tensors: &[(TensorSpec, Vec<f64>)]) -> Self {
        let mut tape = Tape::default();
        let weights = tensors
            .iter()
            .map(|(spec, values)| (spec.name.clone(), values.iter().map(|&v| tape.leaf(v)).collect()))
            .collect();
        Reference { config, weights, tape }
    }

    /// Returns row `row` of a weight matrix with `columns` columns.
    fn weight_row(&self, name: &str, row: usize, columns: usize) -> Row {
        self.weights[name][row * columns..(row + 1) * columns].to_vec()
    }

    fn linear(&mut self, name: &str, x: &[Var]) -> Row {
        let rows = self.weights[name].len() / x.len();
        (0..rows)
            .map(|row| {
                let weight = self.weight_row(name, row, x.len());
                self.tape.dot(&weight, x)
            })
            .collect()
    }

    fn norm(&mut self, name: &str, x: &[Var]) -> Row {
        let squares = self.tape.dot(x, x);
        let mean = self.tape.scale(squares, 1.0 / x.len() as f64);
        let mean = self.tape.shift(mean, f64::from(self.config.norm_eps));
        let inverse = self.tape.power(mean, -0.5);
        let weights = self.weights[name].clone();
        x.iter()
            .zip(weights)
            .map(|(&x, weight)| {
                let normed = self.tape.mul(x, inverse);
                self.tape.mul(normed, weight)
            })
            .collect()
    }

    /// Rotates pair (i, i + half) of a head by position · θ^(−2i / head_dim).
    fn rotate(&mut self, head: &[Var], position: usize) -> Row {
        let (dim, half) = (head.len(), head.len() / 2);
        let mut out = head.to_vec();
        for i in 0..half {
            let frequency = f64::from(self.config.rope_theta).powf(-2.0 * i as f64 / dim as f64);
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let tape = &mut self.tape;
            let [a, b] = [(head[i], cos), (head[i + half], -sin)].map(|(x, factor)| tape.scale(x, factor));
            let [c, d] = [(head[i], sin), (head[i + half], cos)].map(|(x, factor)| tape.scale(x, factor));
            (out[i], out[i + half]) = (tape.add(a, b), tape.add(c, d));
        }
        out
    }

    /// Projects every token and splits the result into heads, rotated if `rotated`:
    /// `[token][head][head_dim]`.
    fn heads(&mut self, name: &str, sequence: &[Row], rotated: bool) -> Vec<Vec<Row>> {
        let project = |(position, x): (usize, &Row)| {
            let projected = self.linear(name, x);
            let heads = projected.chunks(self.config.head_dim);
            heads.map(|head| if rotated { self.rotate(head, position) } else { head.to_vec() }).collect()
        };
        sequence.iter().enumerate().map(project).collect()
    }

    fn softmax(&mut self, scores: &[Var]) -> Row {
        let exps: Row = scores.iter().map(|&score| self.tape.exp(score)).collect();
        let sum = self.tape.sum(&exps);
        let inverse = self.tape.power(sum, -1.0);
        exps.iter().map(|&exp| self.tape.mul(exp, inverse)).collect()
    }

    /// Attends with one query to the keys and values of the tokens up to its own.
    fn attend(&mut self, query: &[Var], keys: &[&Row], values: &[&Row]) -> Row {
        let root = (query.len() as f64).sqrt();
        let scores: Row = keys
            .iter()
            .map(|key| {
                let score = self.tape.dot(query, key);
                self.tape.scale(score, 1.0 / root)
            })
            .collect();
        let probabilities = self.softmax(&scores);
        (0..query.len())
            .map(|i| {
                let column: Row = values.iter().map(|value| value[i]).collect();
                self.tape.dot(&probabilities, &column)
            })
            .collect()
    }

    fn attention(&mut self, prefix: &str, sequence: &[Row]) -> Vec<Row> {
        let [q, k, v] = [("q", true), ("k", true), ("v", false)]
            .map(|(name, rotated)| self.heads(&format!("{prefix}.{name}_proj.weight"), sequence, rotated));
        let group = self.config.heads / self.config.kv_heads;
        (0..sequence.len())
            .map(|token| {
                let mut attended = Vec::new();
                for head in 0..self.config.heads {
                    let keys: Vec<&Row> = k[..=token].iter().map(|heads| &heads[head / group]).collect();
                    let values: Vec<&Row> = v[..=token].iter().map(|heads| &heads[head / group]).collect();
                    attended.extend(self.attend(&q[token][head], &keys, &values));
                }
                self.linear(&format!("{prefix}.o_proj.weight"), &attended)
            })
            .collect()
    }

    fn feed_forward(&mut self, prefix: &str, x: &[Var]) -> Row {
        let gate = self.linear(&format!("{prefix}.gate_proj.weight"), x);
        let up = self.linear(&format!("{prefix}.up_proj.weight"), x);
        let hidden: Row = gate
            .into_iter()
            .zip(up)
            .map(|(gate, up)| {
                let tape = &mut self.tape;
                let negative = tape.scale(gate, -1.0);
                let exp = tape.exp(negative);
                let one_more = tape.shift(exp, 1.0);
                let sigmoid = tape.power(one_more, -1.0);
                let silu = tape.mul(gate, sigmoid);
                tape.mul(silu, up)
            })
            .collect();
        self.linear(&format!("{prefix}.down_proj.weight"), &hidden)
    }

    fn add_rows(&mut self, a: &[Var], b: &[Var]) -> Row {
        a.iter().zip(b).map(|(&a, &b)| self.tape.add(a, b)).collect()
    }

    fn block(&mut self, prefix: &str, sequence: &[Row]) -> Vec<Row> {
        let norm = format!("{prefix}.input_layernorm.weight");
        let normed: Vec<Row> = sequence.iter().map(|x| self.norm(&norm, x)).collect();
        let attended = self.attention(&format!("{prefix}.self_attn"), &normed);
        let norm = format!("{prefix}.post_attention_layernorm.weight");
        let finish = |(x, attended): (&Row, &Row)| {
            let x = self.add_rows(x, attended);
            let normed = self.norm(&norm, &x);
            let fed = self.feed_forward(&format!("{prefix}.mlp"), &normed);
            self.add_rows(&x, &fed)
        };
        sequence.iter().zip(&attended).map(finish).collect()
    }

    fn logits(&mut self, ids: &[u32]) -> Vec<Row> {
        let (table, width) = ("model.embed_tokens.weight", self.config.width);
        let mut sequence: Vec<Row> =
            ids.iter().map(|&id| self.weight_row(table, id as usize, width)).collect();
        for layer in 0..self.config.layers {
            sequence = self.block(&format!("model.layers.{layer}"), &sequence);
        }
        let output = if self.config.tied { table } else { "lm_head.weight" };
        let head = |x: &Row| {
            let normed = self.norm("model.norm.weight", x);
            self.linear(output, &normed)
        };
        sequence.iter().map(head).collect()
    }

    /// Returns the mean loss over all sequences of `tokens` tokens.
    fn loss(&mut self, ids: &[u32], targets: &[u32], tokens: usize) -> Var {
        let mut losses = Vec::new();
        for (ids, targets) in ids.chunks(tokens).zip(targets.chunks(tokens)) {
            for (logits, &target) in self.logits(ids).iter().zip(targets) {
                let probability = self.softmax(logits)[target as usize];
                let log = self.tape.ln(probability);
                losses.push(self.tape.scale(log, -1.0 / targets.len() as f64));
            }
        }
        let sequences = ids.len() / tokens;
        let sum = self.tape.sum(&losses);
        self.tape.scale(sum, 1.0 / sequences as f64)
    }
}

/// A model with weights large enough to matter, and a micro-batch.
#[derive(Debug)]
struct Case {
    config: ModelConfig,
    tensors: Vec<(TensorSpec, Vec<f64>)>,
    ids: Vec<u32>,
    targets: Vec<u32>,
    shape: Batch,
}

/// Returns `count` numbers below `bound` (Knuth's linear congruential generator).
fn numbers(seed: u64, count: usize, bound: usize) -> Vec<u32> {
    let next = |state: &mut u64, _| {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Some(((*state >> 33) % bound as u64) as u32)
    };
    (0..count).scan(seed, next).collect()
}

impl Case {
    fn new(config: ModelConfig, shape: Batch, seed: u64) -> Self {
        let tensors = Layout::new(&config).tensors.into_iter().enumerate();
        let tensors = tensors.map(|(id, spec)| (spec.clone(), weights(seed, &spec, id))).collect();
        let tokens = |salt| numbers(seed ^ salt, shape.rows(), config.vocabulary);
        Case { ids: tokens(1), targets: tokens(2), config: config.clone(), tensors, shape }
    }

    fn reference(&self) -> (f64, Vec<Vec<f64>>) {
        let mut reference = Reference::new(&self.config, &self.tensors);
        let loss = reference.loss(&self.ids, &self.targets, self.shape.tokens);
        let gradient = |(spec, _): &(TensorSpec, Vec<f64>)| {
            reference.tape.gradient(loss, &reference.weights[&spec.name])
        };
        (reference.tape.value(loss), self.tensors.iter().map(gradient).collect())
    }

    fn passes(&self) -> (f64, Flat) {
        let (device, model) = (device(), Model::new(self.config.clone()).unwrap());
        let tensors = &model.layout.tensors;
        let mut values = self.tensors.iter().map(|(_, values)| values.iter().map(|&v| v as f32).collect());
        let weights = Flat::new(&device, DType::F32, tensors, |_| values.next().unwrap());
        let mut gradients = Flat::gradients(&device, DType::F32, tensors);
        let tokens = Tokens::new(&device, &self.ids, &self.targets, self.shape);
        let fixture = Fixture { device, model, weights, joined: true };
        (fixture.step(&mut gradients, &tokens), gradients)
    }
}

/// Returns ten times the initial weights, and norms around 1, exactly representable in f32.
fn weights(seed: u64, spec: &TensorSpec, id: usize) -> Vec<f64> {
    let matrix = TensorSpec { name: spec.name.clone(), shape: vec![1, spec.elements()] };
    let mut values = vec![0f32; spec.elements()];
    init::fill((seed, 0.02), &matrix, id, 0..values.len(), &mut values);
    let centre = if spec.decays() { 0.0 } else { 1.0 };
    values.iter().map(|value| f64::from(centre + 10.0 * value)).collect()
}

fn config((kv_heads, group, half_head, per_head): (usize, usize, usize, usize), tied: bool) -> ModelConfig {
    let heads = kv_heads * group;
    ModelConfig {
        name: "case".into(),
        vocabulary: 11,
        width: heads * per_head,
        layers: 2,
        heads,
        kv_heads,
        head_dim: 2 * half_head,
        feed_forward: 7,
        rope_theta: 100.0,
        tied,
        ..ModelConfig::tiny()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn loss_and_gradients_are_the_reference_model_s(
        sizes in (1usize..3, 1usize..4, 1usize..4, 1usize..5),
        (layers, feed_forward, vocabulary) in (1usize..4, 1usize..9, 2usize..20),
        (batch, tokens) in (1usize..4, 1usize..8),
        tied: bool,
        seed: u64,
    ) {
        let config = ModelConfig { layers, feed_forward, vocabulary, ..config(sizes, tied) };
        let case = Case::new(config, Batch { batch, tokens }, seed);
        let (expected_loss, expected) = case.reference();
        let (loss, gradients) = case.passes();
        prop_assert!((loss - expected_loss).abs() <= 1e-5 * expected_loss, "{loss} for {expected_loss}");
        let worst = expected.iter().flatten().fold(0.0f64, |most, g| most.max(g.abs()));
        for (id, (spec, _)) in case.tensors.iter().enumerate() {
            // A tensor's gradients may almost cancel. Rounding is then measured against the model's
            // largest gradient.
            let scale = expected[id].iter().fold(1e-2 * worst, |most, g| most.max(g.abs()));
            for (got, expected) in gradients.tensor(id).iter().zip(&expected[id]) {
                let error = (f64::from(*got) - expected).abs();
                prop_assert!(error <= 1e-4 * scale, "{}: {got} for {expected} of {scale}", spec.name);
            }
        }
    }
}

/// Compares every seventh gradient of the passes, in f32, with central differences of the
/// reference's loss, in f64.
#[test]
fn gradients_are_differences_of_the_loss() {
    let mut case = Case::new(config((1, 2, 2, 3), true), Batch { batch: 2, tokens: 4 }, 5);
    let (_, gradients) = case.passes();
    let flat: Vec<f32> = gradients.buffer.as_slice().to_vec();
    let worst = flat.iter().fold(0.0f32, |most, g| most.max(g.abs()));
    let places = (0..case.tensors.len()).flat_map(|t| (0..case.tensors[t].1.len()).map(move |i| (t, i)));
    for (position, (tensor, element)) in places.collect::<Vec<_>>().into_iter().enumerate().step_by(7) {
        let mut loss = |change: f64| {
            let value = case.tensors[tensor].1[element];
            case.tensors[tensor].1[element] = value + change;
            let mut reference = Reference::new(&case.config, &case.tensors);
            let loss = reference.loss(&case.ids, &case.targets, case.shape.tokens);
            let loss = reference.tape.value(loss);
            case.tensors[tensor].1[element] = value;
            loss
        };
        let difference = (loss(1e-5) - loss(-1e-5)) / 2e-5;
        let error = (f64::from(flat[position]) - difference).abs();
        assert!(error < 1e-5 * f64::from(worst), "element {element} of tensor {tensor}: {difference}");
    }
}
