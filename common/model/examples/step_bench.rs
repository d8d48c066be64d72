//! How fast one rank computes: forward and backward of one micro-batch, by kind of layer.
//!
//! ```text
//! cargo run --release -p model --example step_bench -- small 5 1            # preset, measured steps, threads
//! cargo run --release -p model --example step_bench -- small 5 1 block      # with activation checkpointing
//! ```
//!
//! FLOPs are those of `ModelConfig::flops_per_token`: attention is counted without halving for
//! causality.

use device::{Buffer, Class, DType, Device, Ledger, Place, View, ViewMut, Write};
use events::Emitter;
use model::{
    Batch, Checkpointing, Gradients, Keep, Layer, LayerKind, Model, ModelConfig, SavedBlock, Weights, init,
};
use std::error::Error;
use std::ops::Range;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// All tensors of the model in one buffer.
struct Flat {
    buffer: Buffer,
    starts: Vec<usize>,
}

impl Flat {
    fn new(device: &Device, class: Class, model: &Model) -> Result<Self> {
        let mut starts = vec![0];
        for tensor in &model.layout.tensors {
            starts.push(starts[starts.len() - 1] + tensor.elements());
        }
        let buffer = device.zeros(class, DType::F32, starts[starts.len() - 1])?;
        Ok(Flat { buffer, starts })
    }

    fn initialise(&mut self, model: &Model) {
        for (id, tensor) in model.layout.tensors.iter().enumerate() {
            let out = &mut self.buffer.as_mut_slice()[self.starts[id]..self.starts[id + 1]];
            init::fill(0, tensor, id, 0..tensor.elements(), out);
        }
    }
}

/// The tensors of one layer.
struct OfLayer<F>(F, Layer);

impl<F> OfLayer<F> {
    fn elements(&self, starts: &[usize], tensors: Range<usize>) -> Range<usize> {
        let tensors = &self.1.tensors[tensors];
        starts[tensors[0]]..starts[tensors[tensors.len() - 1] + 1]
    }
}

impl Weights for OfLayer<&Flat> {
    fn weights(&self, tensors: Range<usize>) -> Option<View<'_>> {
        Some(self.0.buffer.slice(self.elements(&self.0.starts, tensors)))
    }
}

impl Gradients for OfLayer<&mut Flat> {
    fn gradients(&mut self, tensors: Range<usize>) -> Option<(ViewMut<'_>, Write)> {
        let elements = self.elements(&self.0.starts, tensors);
        Some((self.0.buffer.slice_mut(elements), Write::Accumulate))
    }
}

/// Seconds spent in each kind of layer.
#[derive(Default)]
struct Seconds {
    embedding: [f64; 2],
    blocks: [f64; 2],
    head: [f64; 2],
}

const FORWARD: usize = 0;
const BACKWARD: usize = 1;

struct Bench {
    device: Device,
    model: Model,
    weights: Flat,
    gradients: Flat,
    ids: Buffer,
    targets: Buffer,
    shape: Batch,
    checkpointing: Checkpointing,
    seconds: Seconds,
}

impl Bench {
    fn new(config: ModelConfig, threads: usize, checkpointing: Checkpointing) -> Result<Self> {
        let device = Device::cpu(Ledger::new(Emitter::silent(0), None), threads);
        let model = Model::new(config)?;
        let mut weights = Flat::new(&device, Class::Parameters, &model)?;
        weights.initialise(&model);
        let gradients = Flat::new(&device, Class::Gradients, &model)?;
        let shape = Batch { batch: model.config.batch_size, tokens: model.config.sequence_length };
        let token = |i: usize| (i * 7919 % model.config.vocabulary) as u32;
        let tokens: Vec<u32> = (0..=shape.rows()).map(token).collect();
        let ids = device.upload(Class::Activations, &tokens[..shape.rows()])?;
        let targets = device.upload(Class::Activations, &tokens[1..])?;
        let seconds = Seconds::default();
        Ok(Bench { device, model, weights, gradients, ids, targets, shape, checkpointing, seconds })
    }

    /// Runs `pass` and adds its time to the layer kind's.
    fn timed<T>(&mut self, layer: usize, pass: usize, run: impl FnOnce(&mut Self) -> T) -> T {
        let start = Instant::now();
        let out = run(self);
        let seconds = match self.model.layout.layers[layer].kind {
            LayerKind::Embedding => &mut self.seconds.embedding,
            LayerKind::Block(_) => &mut self.seconds.blocks,
            LayerKind::Head => &mut self.seconds.head,
        };
        seconds[pass] += start.elapsed().as_secs_f64();
        out
    }

    fn layer(&self, layer: usize) -> OfLayer<&Flat> {
        OfLayer(&self.weights, self.model.layout.layers[layer].clone())
    }

    fn block(&mut self, block: usize, x: Buffer) -> Result<(Buffer, SavedBlock)> {
        let run =
            |b: &mut Self| b.model.block(&b.device, &b.layer(block), x, b.shape, b.checkpointing.keep());
        let (x, saved) = self.timed(block, FORWARD, run)?;
        Ok((x, saved.ok_or("a block kept nothing")?))
    }

    fn block_backward(&mut self, block: usize, saved: SavedBlock, dx: Buffer) -> Result<Buffer> {
        Ok(self.timed(block, BACKWARD, |b| {
            let Bench { device, model, weights, gradients, shape, .. } = b;
            let layer = &model.layout.layers[block];
            let mut places = OfLayer(gradients, layer.clone());
            let weights = OfLayer(&*weights, layer.clone());
            let saved = model.block_recompute(device, &weights, saved, *shape)?;
            model.block_backward(device, &weights, &mut places, saved, dx, *shape)
        })?)
    }

    /// Forward and backward of the head: the mean loss, and the gradient of `x`.
    fn head(&mut self, x: Buffer) -> Result<(f64, Buffer)> {
        let (head, scale) = (self.model.layout.layers.len() - 1, 1.0 / self.shape.rows() as f32);
        let (losses, saved) = self.timed(head, FORWARD, |b| {
            b.model.head(&b.device, &b.layer(head), x, &b.targets, scale, b.shape, Keep::Everything)
        })?;
        let saved = saved.ok_or("the head kept nothing")?;
        let dx = self.timed(head, BACKWARD, |b| {
            let Bench { device, model, weights, gradients, shape, .. } = b;
            let layer = &model.layout.layers[head];
            let mut places = OfLayer(gradients, layer.clone());
            let weights = OfLayer(&*weights, layer.clone());
            model.head_backward(device, &weights, &mut places, saved, *shape)
        })?;
        Ok((losses.wait()? / self.shape.rows() as f64, dx))
    }

    /// Forward and backward of one micro-batch.
    fn step(&mut self) -> Result<f64> {
        let blocks = 1..self.model.layout.layers.len() - 1;
        let mut x = self.timed(0, FORWARD, |b| b.model.embed(&b.device, &b.layer(0), &b.ids, b.shape))?;
        let mut saved = Vec::new();
        for block in blocks.clone() {
            let kept;
            (x, kept) = self.block(block, x)?;
            saved.push(kept);
        }
        let (loss, mut dx) = self.head(x)?;
        for (block, saved) in blocks.zip(saved).rev() {
            dx = self.block_backward(block, saved, dx)?;
        }
        self.timed(0, BACKWARD, |b| {
            let Bench { device, model, gradients, ids, shape, .. } = b;
            let mut places = OfLayer(gradients, model.layout.layers[0].clone());
            model.embed_backward(device, &mut places, ids, dx, *shape)
        })?;
        Ok(loss)
    }

    fn report(&self, steps: usize, seconds: f64, loss: f64) {
        let config = &self.model.config;
        let tokens = (steps * self.shape.rows()) as f64;
        let flops = tokens * config.flops_per_token(self.shape.tokens) as f64;
        println!("{}: {} parameters, loss {loss:.4}", config.name, self.model.layout.parameters());
        println!(
            "{:.0} tokens/s, {:.1} GFLOP/s, {:.1} ms per micro-batch of {} × {} tokens",
            tokens / seconds,
            flops / seconds / 1e9,
            seconds / steps as f64 * 1e3,
            self.shape.batch,
            self.shape.tokens
        );
        let Seconds { embedding, blocks, head } = &self.seconds;
        for (kind, [forward, backward]) in [("embedding", embedding), ("blocks", blocks), ("head", head)] {
            let ms = |seconds: &f64| seconds / steps as f64 * 1e3;
            println!("  {kind:<10} forward {:>8.2} ms   backward {:>8.2} ms", ms(forward), ms(backward));
        }
        let peak = self.device.ledger().peak_total(Place::Device);
        println!("  peak memory {:.1} MB", peak as f64 / 1e6);
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize, default: &str| arguments.get(i).map_or(default.into(), String::clone);
    let (preset, steps) = (argument(0, "tiny"), argument(1, "10").parse()?);
    let checkpointing = argument(3, "none").parse()?;
    let mut bench = Bench::new(ModelConfig::preset(&preset)?, argument(2, "1").parse()?, checkpointing)?;
    let mut loss = bench.step()?;
    bench.seconds = Seconds::default();
    let start = Instant::now();
    for _ in 0..steps {
        loss = bench.step()?;
    }
    bench.report(steps, start.elapsed().as_secs_f64(), loss);
    Ok(())
}
