//! Forward and backward over all layers: acquire a layer's units from the stage, compute, release
//! them.

use crate::hooks::Hooks;
use crate::rank_error::Result;
use crate::stage::{Setup, Stage};
use device::{Buffer, Class, Place};
use events::Pass;
use model::{Batch, CompleteBlock, Keep, Layer, LayerKind, Losses, Model, SavedBlock, SavedHead};
use settings::fault::Phase;
use sharding::{LayerWeights, MicroBatch, Rank, Schedule};
use std::rc::Rc;
use std::sync::Arc;

mod inputs;
mod loans;
use inputs::OffloadedInputs;
use loans::Loans;

/// Tokens of one micro-batch: inputs and targets, u32, row by row.
pub(crate) struct Tokens {
    /// The model's input.
    pub inputs: Vec<u32>,
    /// The token that follows each input.
    pub targets: Vec<u32>,
}

/// The micro-batch of a pass outside training.
const ONLY: MicroBatch = MicroBatch { index: 0, count: 1 };

/// The model on one rank: its layers' passes over what the stage hands out.
pub(crate) struct Passes {
    rank: Rc<Rank>,
    model: Arc<Model>,
    schedule: Arc<Schedule>,
    batch: Batch,
    keep: Keep,
    hooks: Rc<Hooks>,
    loans: Loans,
    /// Inputs of blocks that are stored beyond the device until backward; `None` if they stay on
    /// it.
    offloaded: Option<OffloadedInputs>,
}

/// The values that a layer's forward saves for its backward.
enum SavedLayer {
    Embedding,
    Block(Box<SavedBlock>),
    /// The number of a block whose input is stored beyond the device.
    Offloaded(usize),
    Head(Box<SavedHead>),
}

/// A layer's saved values, with everything recomputed that forward did not keep.
enum CompleteLayer {
    Embedding,
    Block(Box<CompleteBlock>),
    Head(Box<SavedHead>),
}

/// The values that forward saves for backward.
pub(crate) struct SavedForward {
    /// The model's input, u32.
    tokens: Buffer,
    /// Held until backward ends: the planner counts it so.
    _targets: Buffer,
    layers: Vec<SavedLayer>,
}

impl Passes {
    /// Returns the passes of `model` over micro-batches of shape `batch`, on the rank and under the
    /// partition of `setup`. Forward for training keeps `keep`; inputs of blocks are stored in
    /// `place`.
    ///
    /// # Errors
    /// If there is no room on the disk for inputs.
    pub(crate) fn new(
        hooks: Rc<Hooks>,
        model: Arc<Model>,
        setup: &Setup,
        batch: Batch,
        (keep, place): (Keep, Place),
    ) -> Result<Self> {
        let (rank, schedule) = (setup.rank.clone(), setup.schedule.clone());
        let loans = Loans::none(setup.partition.clone());
        let blocks = model.config.layers;
        let len = batch.batch * batch.tokens * model.config.width;
        let offloaded = OffloadedInputs::new(rank.clone(), place, blocks, (len, setup.precision.parameters))?;
        Ok(Passes { rank, model, schedule, batch, keep, hooks, loans, offloaded })
    }

    /// Runs forward over one micro-batch. Returns its losses and the values that backward needs;
    /// waits for neither.
    ///
    /// # Errors
    /// If the stage, a kernel or an allocation fails, or the run ends.
    pub(crate) fn forward(
        &mut self,
        stage: &mut dyn Stage,
        tokens: &Tokens,
        micro: MicroBatch,
        gradient_scale: f32,
    ) -> Result<(Losses, SavedForward)> {
        self.losses(stage, (Pass::Forward, micro), tokens, gradient_scale, self.keep)
    }

    /// Runs forward alone. Returns the sum of the losses in nats.
    ///
    /// # Errors
    /// If the stage, a kernel or an allocation fails, or the run ends.
    pub(crate) fn evaluate(&mut self, stage: &mut dyn Stage, tokens: &Tokens) -> Result<f64> {
        Ok(self.losses(stage, (Pass::Evaluate, ONLY), tokens, 0.0, Keep::Nothing)?.0.wait()?)
    }

    /// Returns the logits of each sequence's last token, f32 `[batch, vocabulary]`, for `inputs` of
    /// shape `batch`.
    ///
    /// # Errors
    /// If the stage, a kernel or an allocation fails, or the run ends.
    pub(crate) fn next_logits(
        &mut self,
        stage: &mut dyn Stage,
        inputs: &[u32],
        batch: Batch,
    ) -> Result<Vec<f32>> {
        let (model, rank) = (self.model.clone(), self.rank.clone());
        let inputs = rank.device.upload(Class::Activations, inputs)?;
        let mut out = Vec::new();
        self.walk(stage, (Pass::Evaluate, ONLY), (&inputs, batch), Keep::Nothing, |weights, x| {
            let logits = model.logits(&rank.device, weights, x, batch)?;
            out = rank.device.read::<f32>(logits.view())?.into_owned();
            Ok(None)
        })?;
        Ok(out)
    }

    /// Runs a forward pass that ends in losses. Returns the losses and the saved values.
    fn losses(
        &mut self,
        stage: &mut dyn Stage,
        pass: (Pass, MicroBatch),
        tokens: &Tokens,
        gradient_scale: f32,
        keep: Keep,
    ) -> Result<(Losses, SavedForward)> {
        let (model, rank, batch) = (self.model.clone(), self.rank.clone(), self.batch);
        let inputs = rank.device.upload(Class::Activations, &tokens.inputs)?;
        let targets = rank.device.upload(Class::Activations, &tokens.targets)?;
        let mut losses = None;
        let layers = self.walk(stage, pass, (&inputs, batch), keep, |weights, x| {
            let (sums, saved) =
                model.head(&rank.device, weights, x, &targets, gradient_scale, batch, keep)?;
            losses = Some(sums);
            Ok(saved)
        })?;
        let losses = losses.unwrap_or_else(|| unreachable!("a model's last layer is its head"));
        Ok((losses, SavedForward { tokens: inputs, _targets: targets, layers }))
    }

    /// Walks from the embedding to `head`, which receives the last block's output. Returns the
    /// values that each layer saves.
    fn walk(
        &mut self,
        stage: &mut dyn Stage,
        (pass, micro): (Pass, MicroBatch),
        (inputs, batch): (&Buffer, Batch),
        keep: Keep,
        mut head: impl FnMut(&LayerWeights<'_>, Buffer) -> Result<Option<SavedHead>>,
    ) -> Result<Vec<SavedLayer>> {
        let Passes { rank, model, schedule, hooks, loans, offloaded, .. } = self;
        let visits = schedule.pass(pass);
        let (mut x, mut saved) = (None, Vec::new());
        for (at, &layer) in visits.layers.iter().enumerate() {
            let layer = &model.layout.layers[layer];
            hooks.before_layer(pass, layer.kind)?;
            loans.acquire(stage, &visits.first[at], pass)?;
            let span = hooks.layer(pass, loans.shown_for(layer), micro);
            let weights = loans.weights(layer);
            saved.extend(match (layer.kind, x.take()) {
                (LayerKind::Embedding, _) => {
                    x = Some(model.embed(&rank.device, &weights, inputs, batch)?);
                    Some(SavedLayer::Embedding)
                }
                (LayerKind::Block(number), Some(input)) => {
                    let (output, saved) = model.block(&rank.device, &weights, input, batch, keep)?;
                    x = Some(output);
                    match (saved, offloaded.as_mut()) {
                        (Some(saved), Some(offloaded)) => {
                            offloaded.offload(number, saved.into_input())?;
                            Some(SavedLayer::Offloaded(number))
                        }
                        (saved, _) => saved.map(|saved| SavedLayer::Block(Box::new(saved))),
                    }
                }
                (LayerKind::Head, Some(input)) => {
                    head(&weights, input)?.map(|saved| SavedLayer::Head(Box::new(saved)))
                }
                (_, None) => unreachable!("a model's first layer is its embedding"),
            });
            span.end();
            loans.release(stage, &visits.last[at], pass)?;
        }
        if let Some(offloaded) = offloaded {
            offloaded.wait_until_offloaded()?;
        }
        Ok(saved)
    }

    /// Runs backward over one micro-batch. Hands a unit's gradients to the stage as soon as they
    /// are complete.
    ///
    /// # Errors
    /// If the stage, a kernel or an allocation fails, a fault is injected into recomputation, or
    /// the run ends.
    pub(crate) fn backward(
        &mut self,
        stage: &mut dyn Stage,
        saved: SavedForward,
        micro: MicroBatch,
    ) -> Result<()> {
        let (schedule, model) = (self.schedule.clone(), self.model.clone());
        let visits = &schedule.backward;
        let SavedForward { tokens, _targets, mut layers } = saved;
        let mut dx: Option<Buffer> = None;
        for (at, &layer) in visits.layers.iter().enumerate() {
            let layer = &model.layout.layers[layer];
            self.hooks.before_layer(Pass::Backward, layer.kind)?;
            if micro.is_last() {
                // The first states that the update reads from disk are read while backward
                // computes.
                stage.states().optimizer.read_ahead(&self.rank, visits.layers.len() - at)?;
            }
            self.loans.acquire(stage, &visits.first[at], Pass::Backward)?;
            let saved =
                layers.pop().unwrap_or_else(|| unreachable!("forward saves something for every layer"));
            let saved = self.restore_input(saved, layers.last())?;
            let saved = self.recompute(layer, saved, micro)?;
            let span = self.hooks.layer(Pass::Backward, self.loans.shown_for(layer), micro);
            self.loans.acquire_gradients(stage, &visits.first[at], micro)?;
            dx = self.layer_backward(layer, saved, dx.take(), &tokens)?;
            span.end();
            self.loans.release(stage, &visits.last[at], Pass::Backward)?;
            self.loans.reduce(stage, &visits.last[at], micro)?;
        }
        Ok(())
    }

    /// Waits until the input of `saved` is back on the device, if it is stored elsewhere, and
    /// starts to fetch the input of `next`, whose backward follows.
    fn restore_input(&mut self, saved: SavedLayer, next: Option<&SavedLayer>) -> Result<SavedLayer> {
        let Some(offloaded) = &mut self.offloaded else { return Ok(saved) };
        let saved = match saved {
            SavedLayer::Offloaded(block) => {
                SavedLayer::Block(Box::new(SavedBlock::of_input(offloaded.arrive(block)?)))
            }
            saved => saved,
        };
        if let Some(SavedLayer::Offloaded(block)) = next {
            offloaded.fetch(*block)?;
        }
        Ok(saved)
    }

    /// Recomputes the values that a block's forward did not keep, while its unit is held for
    /// backward anyway.
    fn recompute(&self, layer: &Layer, saved: SavedLayer, micro: MicroBatch) -> Result<CompleteLayer> {
        let block = |saved| {
            let weights = self.loans.weights(layer);
            let block = self.model.block_recompute(&self.rank.device, &weights, saved, self.batch)?;
            Ok(CompleteLayer::Block(Box::new(block)))
        };
        match saved {
            SavedLayer::Embedding => Ok(CompleteLayer::Embedding),
            SavedLayer::Offloaded(_) => unreachable!("inputs are fetched before"),
            SavedLayer::Head(saved) => Ok(CompleteLayer::Head(saved)),
            SavedLayer::Block(saved) if self.keep == Keep::Everything => block(*saved),
            SavedLayer::Block(saved) => {
                let span = self.hooks.layer(Pass::Recompute, self.loans.shown_for(layer), micro);
                self.hooks.phase(Phase::Recompute, || {
                    let complete = block(*saved)?;
                    span.end();
                    Ok(complete)
                })
            }
        }
    }

    /// Runs one layer's backward. Returns the gradient of its input; `None` for the embedding,
    /// whose input is tokens.
    fn layer_backward(
        &mut self,
        layer: &Layer,
        saved: CompleteLayer,
        dout: Option<Buffer>,
        tokens: &Buffer,
    ) -> Result<Option<Buffer>> {
        let (model, device, batch) = (&self.model, &self.rank.device, self.batch);
        let (weights, mut gradients) = self.loans.weights_and_gradients(layer);
        let gradients = &mut gradients;
        match (saved, dout) {
            (CompleteLayer::Head(saved), _) => {
                Ok(Some(model.head_backward(device, &weights, gradients, *saved, batch)?))
            }
            (CompleteLayer::Block(saved), Some(dout)) => {
                Ok(Some(model.block_backward(device, &weights, gradients, *saved, dout, batch)?))
            }
            (CompleteLayer::Embedding, Some(dout)) => {
                model.embed_backward(device, gradients, tokens, dout, batch)?;
                Ok(None)
            }
            (_, None) => unreachable!("backward begins with the head"),
        }
    }

    /// Hands back the buffers on loan in a pass that was interrupted.
    ///
    /// # Errors
    /// If the stage fails.
    pub(crate) fn hand_back(&mut self, stage: &mut dyn Stage) -> Result<()> {
        if let Some(offloaded) = &mut self.offloaded {
            offloaded.clear()?;
        }
        self.loans.hand_back(stage)
    }
}
