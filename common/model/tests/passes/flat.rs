//! A model whose weights and gradients are each stored in one buffer, in `state_dict` order.

use device::{Buffer, Class, DType, Device, Ledger, View, ViewMut, Write};
use events::Emitter;
use model::{Batch, Gradients, Keep, Model, TensorId, TensorSpec, Weights};
use std::ops::Range;

pub(crate) fn device() -> Device {
    Device::cpu(Ledger::new(Emitter::silent(0), None), 1)
}

/// One buffer for all tensors.
pub(crate) struct Flat {
    pub(crate) buffer: Buffer,
    starts: Vec<usize>,
    written: Vec<bool>,
}

impl Flat {
    /// Returns a buffer with the elements that `values` returns for each tensor, converted to
    /// `dtype`.
    pub(crate) fn new(
        device: &Device,
        dtype: DType,
        tensors: &[TensorSpec],
        values: impl FnMut(&TensorSpec) -> Vec<f32>,
    ) -> Self {
        let mut starts = vec![0];
        starts.extend(tensors.iter().scan(0, |end, tensor| {
            *end += tensor.elements();
            Some(*end)
        }));
        let values: Vec<f32> = tensors.iter().flat_map(values).collect();
        let values = device.upload(Class::Parameters, &values).unwrap();
        let mut buffer = device.allocate(Class::Parameters, dtype, values.len()).unwrap();
        device.kernels().copy(buffer.view_mut(), values.view()).unwrap();
        Flat { buffer, starts, written: vec![false; tensors.len()] }
    }

    /// Returns a buffer of NaN, which exposes a gradient that is never written, or is added to
    /// before it is written.
    pub(crate) fn gradients(device: &Device, dtype: DType, tensors: &[TensorSpec]) -> Self {
        Flat::new(device, dtype, tensors, |tensor| vec![f32::NAN; tensor.elements()])
    }

    fn range(&self, tensors: &[TensorId]) -> Range<usize> {
        self.starts[tensors[0]]..self.starts[tensors[tensors.len() - 1] + 1]
    }

    pub(crate) fn tensor(&self, tensor: TensorId) -> &[f32] {
        &self.buffer.as_slice()[self.range(&[tensor])]
    }
}

/// A layer's tensors in a [`Flat`]. If `joined`, adjacent tensors are one view, as in a unit's flat
/// buffer. Otherwise each tensor is a view of its own, as if it were stored separately.
pub(crate) struct LayerWeights<'a>(pub(crate) &'a Flat, pub(crate) &'a [TensorId], pub(crate) bool);

impl Weights for LayerWeights<'_> {
    fn weights(&self, tensors: Range<usize>) -> Option<View<'_>> {
        let joined = self.2 || tensors.len() == 1;
        joined.then(|| self.0.buffer.slice(self.0.range(&self.1[tensors])))
    }
}

pub(crate) struct LayerGradients<'a>(pub(crate) &'a mut Flat, pub(crate) &'a [TensorId], pub(crate) bool);

impl Gradients for LayerGradients<'_> {
    fn gradients(&mut self, tensors: Range<usize>) -> Option<(ViewMut<'_>, Write)> {
        let joined = self.2 || tensors.len() == 1;
        let tensors = &self.1[tensors];
        let written = tensors.iter().map(|&tensor| self.0.written[tensor]).collect::<Vec<_>>();
        if !joined || written.iter().any(|&w| w != written[0]) {
            return None;
        }
        tensors.iter().for_each(|&tensor| self.0.written[tensor] = true);
        let write = if written[0] { Write::Accumulate } else { Write::Replace };
        let range = self.0.range(tensors);
        Some((self.0.buffer.slice_mut(range), write))
    }
}

/// A model on a device, with its weights.
pub(crate) struct Fixture {
    pub(crate) device: Device,
    pub(crate) model: Model,
    pub(crate) weights: Flat,
    pub(crate) joined: bool,
}

/// A micro-batch on a device.
pub(crate) struct Tokens {
    pub(crate) ids: Buffer,
    pub(crate) targets: Buffer,
    pub(crate) shape: Batch,
}

impl Tokens {
    pub(crate) fn new(device: &Device, ids: &[u32], targets: &[u32], shape: Batch) -> Self {
        let upload = |tokens| device.upload(Class::Activations, tokens).unwrap();
        Tokens { ids: upload(ids), targets: upload(targets), shape }
    }
}

impl Fixture {
    pub(crate) fn layer(&self, layer: usize) -> LayerWeights<'_> {
        LayerWeights(&self.weights, &self.model.layout.layers[layer].tensors, self.joined)
    }

    fn places<'a>(&'a self, gradients: &'a mut Flat, layer: usize) -> LayerGradients<'a> {
        LayerGradients(gradients, &self.model.layout.layers[layer].tensors, self.joined)
    }

    /// Returns the mean loss of `tokens`. Adds its gradients to `gradients`, or writes them if it
    /// holds none yet.
    pub(crate) fn step(&self, gradients: &mut Flat, tokens: &Tokens) -> f64 {
        self.step_keeping(gradients, tokens, Keep::Everything)
    }

    /// Runs [`Fixture::step`] with blocks that keep `keep`.
    pub(crate) fn step_keeping(&self, gradients: &mut Flat, tokens: &Tokens, keep: Keep) -> f64 {
        let Tokens { ids, targets, shape } = tokens;
        let Fixture { device, model, .. } = self;
        let head = model.layout.layers.len() - 1;
        let mut x = model.embed(device, &self.layer(0), ids, *shape).unwrap();
        let mut saved = Vec::new();
        for block in 1..head {
            let (out, kept) = model.block(device, &self.layer(block), x, *shape, keep).unwrap();
            x = out;
            saved.push(kept.unwrap());
        }
        let scale = 1.0 / shape.rows() as f32;
        let (losses, kept) = model.head(device, &self.layer(head), x, targets, scale, *shape, keep).unwrap();
        let mut places = self.places(gradients, head);
        let mut dx =
            model.head_backward(device, &self.layer(head), &mut places, kept.unwrap(), *shape).unwrap();
        for block in (1..head).rev() {
            let (weights, kept) = (self.layer(block), saved.pop().unwrap());
            let kept = model.block_recompute(device, &weights, kept, *shape).unwrap();
            let mut places = self.places(gradients, block);
            dx = model.block_backward(device, &weights, &mut places, kept, dx, *shape).unwrap();
        }
        model.embed_backward(device, &mut self.places(gradients, 0), ids, dx, *shape).unwrap();
        losses.wait().unwrap() / shape.rows() as f64
    }

    /// Returns the output of the last block, keeping nothing.
    pub(crate) fn blocks(&self, tokens: &Tokens) -> Buffer {
        let x = self.model.embed(&self.device, &self.layer(0), &tokens.ids, tokens.shape).unwrap();
        (1..=self.model.config.layers).fold(x, |x, block| {
            let (out, kept) =
                self.model.block(&self.device, &self.layer(block), x, tokens.shape, Keep::Nothing).unwrap();
            assert!(kept.is_none());
            out
        })
    }
}
