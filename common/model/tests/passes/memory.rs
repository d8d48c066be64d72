//! The layers' allocation tables, checked event by event, and the peaks that follow from them.

use crate::flat::{Flat, LayerGradients, LayerWeights};
use device::{Buffer, Class, DType, Device, Ledger};
use events::{Event, Place, Receiver, What};
use model::{Batch, Checkpointing, Gradients, Keep, Model, ModelConfig, Weights};
use proptest::prelude::*;
use std::time::Instant;

const A: Class = Class::Activations;
const W: Class = Class::Workspace;

/// Sizes in bytes, named as in the tables.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    d: u64,
    qkv: u64,
    attended: u64,
    log_sum: u64,
    f: u64,
    logits: u64,
    statistic: u64,
}

impl Sizes {
    fn new(c: &ModelConfig, shape: Batch, dtype: DType) -> Self {
        let row = |width: usize| (shape.rows() * width * dtype.size()) as u64;
        let statistics = |per_row: usize| (shape.rows() * per_row * 4) as u64;
        Sizes {
            d: row(c.width),
            qkv: row((c.heads + 2 * c.kv_heads) * c.head_dim),
            attended: row(c.heads * c.head_dim),
            log_sum: statistics(c.heads),
            f: row(c.feed_forward),
            logits: row(c.vocabulary),
            statistic: statistics(1),
        }
    }
}

/// Allocations in order, then frees in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    allocates: Vec<(Class, u64)>,
    frees: Vec<(Class, u64)>,
}

fn change(allocates: &[(Class, u64)], frees: &[(Class, u64)]) -> Change {
    let mut frees = frees.to_vec();
    frees.sort_unstable();
    Change { allocates: allocates.to_vec(), frees }
}

/// Splits a sequence of signed sizes after each run of frees.
fn changes(events: &[Event]) -> Vec<Change> {
    let mut changes = Vec::new();
    let (mut allocates, mut frees): (Vec<_>, Vec<_>) = Default::default();
    for event in events {
        let What::Memory { place: Place::Device, class, delta, .. } = event.what else { panic!("{event:?}") };
        if delta > 0 {
            if !frees.is_empty() {
                changes.push(change(&std::mem::take(&mut allocates), &std::mem::take(&mut frees)));
            }
            allocates.push((class, delta.unsigned_abs()));
        } else {
            frees.push((class, delta.unsigned_abs()));
        }
    }
    if !(allocates.is_empty() && frees.is_empty()) {
        changes.push(change(&allocates, &frees));
    }
    changes
}

/// A model of one block on a device whose allocations are recorded.
struct Watched {
    device: Device,
    receiver: Receiver,
    model: Model,
    weights: Flat,
    gradients: Flat,
    ids: Buffer,
    shape: Batch,
}

impl Watched {
    fn new(config: &ModelConfig, shape: Batch, dtype: DType) -> Self {
        let (emitter, receiver) = events::channel(0, 1000, Instant::now(), None);
        let device = Device::cpu(Ledger::new(emitter, None), 1);
        let model = Model::new(config.clone()).unwrap();
        let tensors = &model.layout.tensors;
        let weights = Flat::new(&device, dtype, tensors, |tensor| vec![0.1; tensor.elements()]);
        let gradients = Flat::gradients(&device, dtype, tensors);
        let ids = device.upload(A, &vec![1u32; shape.rows()]).unwrap();
        receiver.drain(&mut Vec::new());
        Watched { device, receiver, model, weights, gradients, ids, shape }
    }

    /// Returns the events since the previous call.
    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.receiver.drain(&mut events);
        events
    }

    fn layer(&self, layer: usize) -> LayerWeights<'_> {
        LayerWeights(&self.weights, &self.model.layout.layers[layer].tensors, true)
    }

    /// Runs forward and backward of the three layers. Returns the events of each of the six passes
    /// and, as the fifth element, of recomputation.
    fn run(mut self, keep: Keep) -> [Vec<Event>; 7] {
        let (device, shape) = (self.device.clone(), self.shape);
        let x = self.model.embed(&device, &self.layer(0), &self.ids, shape).unwrap();
        let embed = self.events();
        let (x, block) = self.model.block(&device, &self.layer(1), x, shape, keep).unwrap();
        let forward = self.events();
        let (_, head) = self.model.head(&device, &self.layer(2), x, &self.ids, 1.0, shape, keep).unwrap();
        let loss = self.events();
        let dx = self.backward(2, |model, weights, places| {
            model.head_backward(&device, weights, places, head.unwrap(), shape)
        });
        let loss_back = self.events();
        let block = self.model.block_recompute(&device, &self.layer(1), block.unwrap(), shape).unwrap();
        let again = self.events();
        let dx = self.backward(1, |model, weights, places| {
            model.block_backward(&device, weights, places, block, dx, shape)
        });
        let backward = self.events();
        let ids = device.upload(A, self.ids.as_slice::<u32>()).unwrap();
        self.events();
        self.backward(0, |model, _, places| model.embed_backward(&device, places, &ids, dx, shape));
        [embed, forward, loss, loss_back, again, backward, self.events()]
    }

    fn backward<T>(
        &mut self,
        layer: usize,
        run: impl FnOnce(&Model, &dyn Weights, &mut dyn Gradients) -> device::Result<T>,
    ) -> T {
        let Watched { model, weights, gradients, .. } = self;
        let tensors = &model.layout.layers[layer].tensors;
        let mut places = LayerGradients(gradients, tensors, true);
        run(model, &LayerWeights(weights, tensors, true), &mut places).unwrap()
    }
}

/// Returns the maximum bytes of activations, of workspace and of both together.
fn measured_peaks<'a>(events: impl Iterator<Item = &'a Event>) -> [u64; 3] {
    let (mut live, mut peaks) = ([0u64; 2], [0u64; 3]);
    for event in events {
        let What::Memory { class, delta, .. } = event.what else { panic!("{event:?}") };
        let index = [A, W].iter().position(|&c| c == class).unwrap();
        live[index] = live[index].checked_add_signed(delta).unwrap();
        for (peak, now) in peaks.iter_mut().zip([live[0], live[1], live[0] + live[1]]) {
            *peak = now.max(*peak);
        }
    }
    peaks
}

/// Returns the tables for blocks that keep `keep`.
fn tables(s: Sizes, keep: Keep) -> [Vec<Change>; 7] {
    let Sizes { d, qkv, attended, log_sum, f, logits, statistic } = s;
    let (forward, again) = tables_of_a_block(s, keep);
    let head = change(&[(A, statistic), (A, d), (A, logits), (W, statistic)], &[(W, statistic)]);
    let head_back =
        vec![change(&[(W, d)], &[(A, logits), (A, d)]), change(&[(W, d)], &[(W, d), (A, d), (A, statistic)])];
    let block_back = vec![
        change(&[(W, f)], &[(A, f)]),
        change(&[(W, 2 * f)], &[(W, f), (A, 2 * f)]),
        change(&[(W, d)], &[(W, 2 * f), (A, d), (W, d), (A, d), (A, statistic)]),
        change(&[(W, attended), (W, qkv)], &[(W, attended), (A, attended), (A, log_sum), (A, qkv)]),
        change(&[(W, d)], &[(W, qkv), (A, d), (W, d), (A, d), (A, statistic)]),
    ];
    let embed_back = vec![change(&[], &[(W, d)])];
    [vec![change(&[(A, d)], &[])], forward, vec![head], head_back, again, block_back, embed_back]
}

/// Returns the tables for forward and recomputation of a block that keeps `keep`.
fn tables_of_a_block(s: Sizes, keep: Keep) -> (Vec<Change>, Vec<Change>) {
    let Sizes { d, qkv, attended, log_sum, f, statistic, .. } = s;
    let made = [statistic, d, qkv, attended, log_sum, d, statistic, d, 2 * f, f];
    match keep {
        Keep::Everything => (activations(&[(&[&made[..], &[d]].concat(), &[])]), vec![]),
        Keep::Selective => {
            let forward = activations(&[
                (&[statistic, d, qkv], &[d, statistic]),
                (&[attended, log_sum, d, statistic, d, 2 * f], &[d, statistic]),
                (&[f, d], &[f]),
            ]);
            (forward, activations(&[(&[statistic, d, statistic, d, f], &[])]))
        }
        Keep::Input => (table_of_a_block_unkept(s, &[]), activations(&[(&made, &[])])),
        Keep::Nothing => (table_of_a_block_unkept(s, &[d]), vec![]),
    }
}

/// Returns the table for a block that keeps nothing, or only its input, which is freed with `x`.
fn table_of_a_block_unkept(s: Sizes, x: &[u64]) -> Vec<Change> {
    let Sizes { d, qkv, attended, log_sum, f, statistic, .. } = s;
    activations(&[
        (&[statistic, d, qkv], &[d, statistic]),
        (&[attended, log_sum], &[qkv, log_sum]),
        (&[d], &[&[attended], x].concat()),
        (&[statistic, d, 2 * f], &[d, statistic]),
        (&[f], &[2 * f]),
        (&[d], &[f, d]),
    ])
}

/// Returns changes of activations: allocated sizes, then freed sizes.
fn activations(changes: &[(&[u64], &[u64])]) -> Vec<Change> {
    let of_class = |sizes: &[u64]| sizes.iter().map(|&size| (A, size)).collect::<Vec<_>>();
    changes.iter().map(|(allocates, frees)| change(&of_class(allocates), &of_class(frees))).collect()
}

/// Returns the bytes that a block keeps between forward and backward, including its input.
fn kept(s: Sizes, keep: Keep) -> u64 {
    let Sizes { d, qkv, attended, log_sum, f, statistic, .. } = s;
    match keep {
        Keep::Everything => 4 * d + 2 * statistic + qkv + attended + log_sum + 3 * f,
        Keep::Selective => 2 * d + qkv + attended + log_sum + 2 * f,
        Keep::Input => d,
        Keep::Nothing => 0,
    }
}

/// Returns the maximum bytes of activations in a block's forward, from its input to its output. The
/// candidates are the last moments before something is freed.
fn forward_peak(s: Sizes, keep: Keep) -> u64 {
    let Sizes { d, qkv, attended, log_sum, f, statistic, .. } = s;
    let norm = statistic + d;
    let attention = d + qkv + attended + log_sum;
    let moments = match keep {
        Keep::Everything => vec![kept(s, keep) + d],
        Keep::Selective => {
            vec![d + norm + qkv, attention + d + norm + 2 * f, attention + d + 2 * f + f + d]
        }
        _ => {
            vec![d + norm + qkv, attention, 2 * d + attended, 2 * d + norm + 2 * f, 2 * d + 3 * f, 3 * d + f]
        }
    };
    moments.into_iter().max().unwrap()
}

/// Returns the peaks of activations, workspace and both in forward and backward of one block,
/// without the tokens.
fn peaks(s: Sizes, keep: Keep) -> [u64; 3] {
    let Sizes { d, qkv, attended, log_sum, f, logits, statistic } = s;
    let attention = d + statistic + d + qkv + attended + log_sum;
    let feed_forward = d + statistic + d + 2 * f + f;
    let head = d + statistic + d + logits;
    let kept = kept(s, keep);
    let activations = (kept + head).max(forward_peak(s, keep)).max(attention + feed_forward);
    let block_back = d + [3 * f, 2 * f + d, attended + qkv, qkv + d].into_iter().max().unwrap();
    // Each moment of backward at which the last allocation before a free is made.
    let together = [
        activations,
        kept + head + statistic.max(d),
        kept + d + statistic + 2 * d,
        attention + feed_forward + d + f,
        attention + feed_forward - f + d + 3 * f,
        attention + feed_forward - 3 * f + d + 2 * f + d,
        attention + d + attended + qkv,
        d + statistic + d + d + qkv + d,
    ];
    [activations, block_back.max(2 * d).max(statistic), together.into_iter().max().unwrap()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn tables_and_peaks_hold(
        (kv_heads, group, half_head, per_head) in (1usize..3, 1usize..4, 1usize..9, 1usize..20),
        (feed_forward, vocabulary) in (1usize..60, 2usize..300),
        (batch, tokens) in (1usize..4, 1usize..8),
        bf16: bool,
        checkpointing in proptest::sample::select(Checkpointing::ALL.to_vec()),
    ) {
        let heads = kv_heads * group;
        let config = ModelConfig {
            vocabulary, layers: 1, width: heads * per_head, heads, kv_heads, head_dim: 2 * half_head, feed_forward,
            ..ModelConfig::tiny()
        };
        let (shape, dtype) = (Batch { batch, tokens }, if bf16 { DType::Bf16 } else { DType::F32 });
        let sizes = Sizes::new(&config, shape, dtype);
        let keep = checkpointing.keep();
        let events = Watched::new(&config, shape, dtype).run(keep);
        prop_assert_eq!(measured_peaks(events.iter().flatten()), peaks(sizes, keep));
        prop_assert_eq!(events.map(|events| changes(&events)), tables(sizes, keep));
    }
}

#[test]
fn evaluation_frees_as_it_goes() {
    let config = ModelConfig { layers: 1, kv_heads: 2, ..ModelConfig::tiny() };
    let shape = Batch { batch: 2, tokens: 5 };
    let sizes = Sizes::new(&config, shape, DType::F32);
    let watched = Watched::new(&config, shape, DType::F32);
    let (device, model) = (&watched.device, &watched.model);
    let x = model.embed(device, &watched.layer(0), &watched.ids, shape).unwrap();
    watched.events();
    let (x, _) = model.block(device, &watched.layer(1), x, shape, Keep::Nothing).unwrap();
    assert_eq!(changes(&watched.events()), tables_of_a_block(sizes, Keep::Nothing).0);
    drop(model.head(device, &watched.layer(2), x, &watched.ids, 1.0, shape, Keep::Nothing).unwrap());
    let Sizes { d, logits, statistic, .. } = sizes;
    let expected = [
        change(&[(A, statistic), (A, d), (A, logits)], &[(A, d), (A, statistic)]),
        change(&[(W, statistic)], &[(W, statistic), (A, logits), (A, d)]),
    ];
    assert_eq!(changes(&watched.events()), expected);
}

#[test]
fn running_out_leaves_nothing_behind() {
    let config = ModelConfig { layers: 1, ..ModelConfig::tiny() };
    let shape = Batch { batch: 1, tokens: 4 };
    let Watched { device, weights, model, ids, .. } = Watched::new(&config, shape, DType::F32);
    let x_bytes = Sizes::new(&config, shape, DType::F32).d;
    let live = device.ledger().live_total(Place::Device);
    let full = Device::cpu(Ledger::new(events::Emitter::silent(0), Some(x_bytes)), 1);
    let layer = |layer: usize| LayerWeights(&weights, &model.layout.layers[layer].tensors, true);
    let x = model.embed(&full, &layer(0), &ids, shape).unwrap();
    let error = model.block(&full, &layer(1), x, shape, Keep::Everything).err().unwrap();
    assert!(error.to_string().contains("out of memory"), "{error}");
    assert_eq!(
        (full.ledger().live_total(Place::Device), device.ledger().live_total(Place::Device)),
        (0, live)
    );
}
