//! Forward and backward over all layers, through whatever a stage hands out.

use crate::run::{Ending, Result};
use crate::stage::Stage;
use device::{Buffer, Class};
use events::Pass;
use model::{Batch, CompleteBlock, Keep, Layer, LayerKind, Losses, Model, SavedBlock, SavedHead};
use planner::Moment;
use sharding::{
    Bracket, FullGradients, FullParameters, LayerGradients, LayerWeights, Micro, Partition, Rank, Schedule,
    UnitId, Visits,
};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tokens of one micro-batch: inputs and targets, u32, row by row.
pub(crate) struct Tokens {
    /// What the model reads.
    pub inputs: Vec<u32>,
    /// What it should say next.
    pub targets: Vec<u32>,
}

/// Fails where a failure of recomputation is asked for.
pub(crate) type Tripwire<'a> = dyn Fn() -> Result<()> + 'a;

/// The micro-batch of a pass that is no step's.
const ONLY: Micro = Micro { index: 0, count: 1 };

/// A slow rank is slow even where a pass takes no time.
const LEAST_DELAY: Duration = Duration::from_millis(20);

/// The model on one rank: its layers' passes over what the stage hands out.
pub(crate) struct Passes {
    rank: Rc<Rank>,
    model: Arc<Model>,
    partition: Arc<Partition>,
    schedule: Arc<Schedule>,
    batch: Batch,
    keep: Keep,
    recompute_seconds: f64,
    slow: bool,
    moment: Moment,
    ending: Ending,
    parameters: Vec<Option<FullParameters>>,
    gradients: Vec<Option<FullGradients>>,
}

enum Saved {
    Embedding,
    Block(Box<SavedBlock>),
    Head(Box<SavedHead>),
}

/// What backward of a layer starts from.
enum Complete {
    Embedding,
    Block(Box<CompleteBlock>),
    Head(Box<SavedHead>),
}

/// What forward leaves for backward.
pub(crate) struct Kept {
    inputs: Buffer,
    _targets: Buffer,
    saved: Vec<Saved>,
}

impl Passes {
    /// Passes of `model` under `partition`, over micro-batches of shape `batch`. Forward for training keeps `keep`.
    pub(crate) fn new(
        rank: Rc<Rank>,
        model: Arc<Model>,
        partition: Arc<Partition>,
        schedule: Arc<Schedule>,
        batch: Batch,
        keep: Keep,
    ) -> Self {
        let units = partition.units.len();
        Passes {
            rank,
            model,
            partition,
            schedule,
            batch,
            keep,
            recompute_seconds: 0.0,
            slow: false,
            moment: Moment::Setup,
            ending: Ending::Never,
            parameters: (0..units).map(|_| None).collect(),
            gradients: (0..units).map(|_| None).collect(),
        }
    }

    /// The same, to be broken off where `ending` says so.
    pub(crate) fn until(self, ending: Ending) -> Self {
        Passes { ending, ..self }
    }

    /// The passes over a micro-batch, or a validation's batch, begin.
    ///
    /// # Errors
    /// If the run ends here, or the ranks cannot agree about that.
    pub(crate) fn begin(&self, micro: Micro) -> Result<()> {
        self.ending.before(micro)
    }

    /// Forward over one micro-batch: its losses, and what backward needs. Waits for neither.
    ///
    /// # Errors
    /// If the stage, a kernel or an allocation fails, or the run ends.
    pub(crate) fn forward(
        &mut self,
        stage: &mut dyn Stage,
        tokens: &Tokens,
        micro: Micro,
        gradient_scale: f32,
    ) -> Result<(Losses, Kept)> {
        self.losses(stage, (Pass::Forward, micro), tokens, gradient_scale, self.keep)
    }

    /// Forward alone: the sum of the losses in nats.
    ///
    /// # Errors
    /// If the stage, a kernel or an allocation fails, or the run ends.
    pub(crate) fn evaluate(&mut self, stage: &mut dyn Stage, tokens: &Tokens) -> Result<f64> {
        Ok(self.losses(stage, (Pass::Evaluate, ONLY), tokens, 0.0, Keep::Nothing)?.0.wait()?)
    }

    /// The logits of each sequence's last token, f32 `[batch, vocabulary]`, for `inputs` of shape `batch`.
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

    /// A pass that ends in losses: these, and what it leaves.
    fn losses(
        &mut self,
        stage: &mut dyn Stage,
        pass: (Pass, Micro),
        tokens: &Tokens,
        gradient_scale: f32,
        keep: Keep,
    ) -> Result<(Losses, Kept)> {
        let (model, rank, batch) = (self.model.clone(), self.rank.clone(), self.batch);
        let inputs = rank.device.upload(Class::Activations, &tokens.inputs)?;
        let targets = rank.device.upload(Class::Activations, &tokens.targets)?;
        let mut losses = None;
        let saved = self.walk(stage, pass, (&inputs, batch), keep, |weights, x| {
            let (sums, saved) =
                model.head(&rank.device, weights, x, &targets, gradient_scale, batch, keep)?;
            losses = Some(sums);
            Ok(saved)
        })?;
        let losses = losses.unwrap_or_else(|| unreachable!("a model's last layer is its head"));
        Ok((losses, Kept { inputs, _targets: targets, saved }))
    }

    /// A pass from the embedding to `head`, which gets the last block's output; what it leaves for backward.
    fn walk(
        &mut self,
        stage: &mut dyn Stage,
        (pass, micro): (Pass, Micro),
        (inputs, batch): (&Buffer, Batch),
        keep: Keep,
        mut head: impl FnMut(&LayerWeights<'_>, Buffer) -> Result<Option<SavedHead>>,
    ) -> Result<Vec<Saved>> {
        let (schedule, model, rank) = (self.schedule.clone(), self.model.clone(), self.rank.clone());
        let visits = schedule.pass(pass);
        let (mut x, mut saved) = (None, Vec::new());
        for at in 0..visits.layers.len() {
            self.ending.before_layer()?;
            let layer = &model.layout.layers[visits.layers[at]];
            let bracket = self.enter(stage, pass, visits, at, micro)?;
            let began = Instant::now();
            let weights = self.weights(layer);
            let kept = match (layer.kind, x.take()) {
                (LayerKind::Embedding, _) => {
                    x = Some(model.embed(&rank.device, &weights, inputs, batch)?);
                    Some(Saved::Embedding)
                }
                (LayerKind::Block(_), Some(input)) => {
                    let (output, kept) = model.block(&rank.device, &weights, input, batch, keep)?;
                    x = Some(output);
                    kept.map(|kept| Saved::Block(Box::new(kept)))
                }
                (LayerKind::Head, Some(input)) => {
                    head(&weights, input)?.map(|kept| Saved::Head(Box::new(kept)))
                }
                (_, None) => None,
            };
            saved.extend(kept);
            self.linger(began);
            drop(bracket);
            self.leave(stage, pass, visits, at)?;
        }
        Ok(saved)
    }

    /// Backward over one micro-batch; hands every unit's gradients to the stage as they are complete. Before it computes
    /// anything again it touches `tripwire`.
    ///
    /// # Errors
    /// The tripwire's, or if the stage, a kernel or an allocation fails, or the run ends.
    pub(crate) fn backward(
        &mut self,
        stage: &mut dyn Stage,
        kept: Kept,
        micro: Micro,
        tripwire: &Tripwire<'_>,
    ) -> Result<()> {
        let (schedule, model, rank) = (self.schedule.clone(), self.model.clone(), self.rank.clone());
        let visits = &schedule.backward;
        let Kept { inputs, _targets, mut saved } = kept;
        let mut dx: Option<Buffer> = None;
        for at in 0..visits.layers.len() {
            self.ending.before_layer()?;
            let layer = &model.layout.layers[visits.layers[at]];
            self.acquire(stage, Pass::Backward, visits, at)?;
            let saved = self.recompute(layer, saved.pop(), micro, tripwire)?;
            let bracket = self.bracket(layer, Pass::Backward, micro);
            let began = Instant::now();
            for &unit in &visits.first[at] {
                self.gradients[unit] = Some(stage.gradients(unit, micro)?);
            }
            let weights =
                LayerWeights { tensors: &layer.tensors, partition: &self.partition, held: &self.parameters };
            let gradients = &mut LayerGradients {
                tensors: &layer.tensors,
                partition: &self.partition,
                held: &mut self.gradients,
            };
            let device = &rank.device;
            dx = match (saved, dx.take()) {
                (Some(Complete::Head(saved)), _) => {
                    Some(model.head_backward(device, &weights, gradients, *saved, self.batch)?)
                }
                (Some(Complete::Block(saved)), Some(dout)) => {
                    Some(model.block_backward(device, &weights, gradients, *saved, dout, self.batch)?)
                }
                (Some(Complete::Embedding), Some(dx)) => {
                    model.embed_backward(device, gradients, &inputs, dx, self.batch)?;
                    None
                }
                _ => None,
            };
            self.linger(began);
            drop(bracket);
            self.leave(stage, Pass::Backward, visits, at)?;
            for &unit in &visits.last[at] {
                if let Some(gradients) = self.gradients[unit].take() {
                    stage.reduce(gradients, micro)?;
                }
            }
        }
        Ok(())
    }

    /// Completes what a layer's forward has saved, while its unit is held for backward anyway.
    fn recompute(
        &mut self,
        layer: &Layer,
        saved: Option<Saved>,
        micro: Micro,
        tripwire: &Tripwire<'_>,
    ) -> Result<Option<Complete>> {
        let saved = match saved {
            Some(Saved::Block(saved)) => saved,
            Some(Saved::Head(saved)) => return Ok(Some(Complete::Head(saved))),
            Some(Saved::Embedding) => return Ok(Some(Complete::Embedding)),
            None => return Ok(None),
        };
        let bracket = (self.keep != Keep::Everything).then(|| self.bracket(layer, Pass::Recompute, micro));
        if bracket.is_some() {
            tripwire()?;
        }
        let started = Instant::now();
        let weights = self.weights(layer);
        let block = self.model.block_recompute(&self.rank.device, &weights, *saved, self.batch)?;
        if bracket.is_some() {
            self.recompute_seconds += started.elapsed().as_secs_f64();
        }
        Ok(Some(Complete::Block(Box::new(block))))
    }

    /// Hands back what is held of a pass that was broken off.
    ///
    /// # Errors
    /// If the stage fails.
    pub(crate) fn let_go(&mut self, stage: &mut dyn Stage) -> Result<()> {
        self.gradients.iter_mut().for_each(|held| *held = None);
        for full in self.parameters.iter_mut().filter_map(Option::take) {
            // Nothing is gathered ahead or kept after a pass of this kind.
            stage.release(full, Pass::Evaluate)?;
        }
        Ok(())
    }

    /// `layer`'s weights in the units that are held.
    fn weights<'a>(&'a self, layer: &'a Layer) -> LayerWeights<'a> {
        LayerWeights { tensors: &layer.tensors, partition: &self.partition, held: &self.parameters }
    }

    /// Whether passes take three times as long from now on.
    pub(crate) fn slow_down(&mut self, slow: bool) {
        self.slow = slow;
    }

    /// The delay of a slow rank in a pass over a layer that began at `began`.
    fn linger(&self, began: Instant) {
        if self.slow {
            std::thread::sleep((2 * began.elapsed()).max(LEAST_DELAY));
        }
    }

    /// Where the rank is, or was last.
    pub(crate) fn moment(&self) -> Moment {
        self.moment
    }

    /// The passes of a step are over.
    pub(crate) fn update(&mut self) {
        self.moment = Moment::Update;
    }

    /// Seconds spent in recomputation so far.
    pub(crate) fn recompute_seconds(&self) -> f64 {
        self.recompute_seconds
    }

    /// Acquires what the layer at `at` needs for the first time in this pass, and opens its bracket of events.
    fn enter(
        &mut self,
        stage: &mut dyn Stage,
        pass: Pass,
        visits: &Visits,
        at: usize,
        micro: Micro,
    ) -> Result<Bracket> {
        self.acquire(stage, pass, visits, at)?;
        Ok(self.bracket(&self.model.layout.layers[visits.layers[at]], pass, micro))
    }

    /// Acquires what the layer at `at` needs for the first time in this pass.
    fn acquire(&mut self, stage: &mut dyn Stage, pass: Pass, visits: &Visits, at: usize) -> Result<()> {
        self.moment = Moment::Layer(pass, self.model.layout.layers[visits.layers[at]].kind);
        for &unit in &visits.first[at] {
            self.parameters[unit] = Some(stage.acquire(unit, pass)?);
        }
        Ok(())
    }

    /// Says that a pass over `layer` begins.
    fn bracket(&self, layer: &Layer, pass: Pass, micro: Micro) -> Bracket {
        self.rank.bracket(pass, self.standing_for(layer), micro.index)
    }

    /// The unit that a layer's passes are shown for: the first of its own that is gathered, if any is.
    fn standing_for(&self, layer: &Layer) -> UnitId {
        let first = layer.tensors[0];
        let own = layer.tensors.iter().filter(|&&tensor| tensor >= first);
        let mut units = own.map(|&tensor| self.partition.home(tensor).0);
        let gathered = units.find(|&unit| !self.partition.units[unit].persistent);
        gathered.unwrap_or(self.partition.home(first).0)
    }

    /// Releases what no later layer of this pass needs.
    fn leave(&mut self, stage: &mut dyn Stage, pass: Pass, visits: &Visits, at: usize) -> Result<()> {
        for &unit in &visits.last[at] {
            if let Some(full) = self.parameters[unit].take() {
                stage.release(full, pass)?;
            }
        }
        Ok(())
    }
}
