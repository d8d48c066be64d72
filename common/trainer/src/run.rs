//! The training loop of one rank: for each step forward and backward over every micro-batch, then
//! one update; validation and checkpoints in between. [`hooks`](crate::hooks) wraps its phases, and
//! [`record`] records them.

use crate::hooks::Hooks;
use crate::instrumented_stage::InstrumentedStage;
use crate::passes::{Passes, SavedForward, Tokens};
use crate::plan::Plan;
use crate::rank_error::{RankError, Result};
use crate::resume::ResumeState;
use crate::stage::{Setup, Stage};
use collectives::{ControlChannel, Topic};
use device::Place;
use events::What;
use model::{Batch, Losses};
use prediction::Moment;
use report::Measured;
use settings::fault::Phase;
use sharding::{LossScaler, MicroBatch, OffloadPlacement, Rank, Update};
use std::ops::ControlFlow;
use std::rc::Rc;

mod exchange;
mod record;
mod samples;
mod saver;
mod weight_writer;
mod weights;

pub(crate) use exchange::share;
use exchange::{Agreed, OwnStatus, agree, tell_peers};
pub(crate) use record::{Observer, RunEvent};
use record::{Record, StepOutcome};
use samples::Samples;
use saver::Saver;
use weights::first_weights;

/// One rank of a run.
struct Worker<'a> {
    plan: &'a Plan,
    rank: Rc<Rank>,
    stage: InstrumentedStage,
    passes: Passes,
    samples: Samples<'a>,
    /// The number of tokens in the current step that carry a loss, on all ranks together.
    targets: u64,
    scaler: Option<LossScaler>,
    /// Number of steps that are done, including those of earlier runs.
    steps: u32,
    /// Number of steps that were not skipped.
    updates: u32,
    hooks: Rc<Hooks>,
    record: Record<'a>,
    /// The channel on which ranks exchange whether rank 0 still writes.
    writing_channel: ControlChannel,
    /// Saves checkpoints; `None` if the run saves none.
    saver: Option<Saver>,
    /// The number of steps done at the newest checkpoint that this run has saved.
    last_saved_step: Option<u32>,
    /// Why the last checkpoint was not saved; `None` if it was.
    save_error: Option<String>,
}

/// Runs `rank` from the first weights to the last.
///
/// # Errors
/// The rank's own error, or a peer's.
pub(crate) fn train(plan: &Plan, rank: Rc<Rank>, observer: &Observer<'_>) -> Result<Measured> {
    let mut worker = Worker::new(plan, rank.clone(), observer)
        .map_err(|error| tell_peers(&rank, "its setup", error.at(Moment::Setup)))?;
    // Peers learn of a failure while the worker still holds its buffers and pending collectives: a
    // group reports its first failure.
    worker.train().map_err(|error| {
        let step = format!("step {}", worker.hooks.step());
        tell_peers(&rank, &step, error.at(worker.hooks.moment()))
    })?;
    worker.finish().map_err(|error| tell_peers(&rank, "saving", error))
}

/// Returns where model states are stored in `plan`'s run.
fn offload_placement(plan: &Plan) -> OffloadPlacement {
    let offload = &plan.config.offload;
    let whole = if offload.placement().any_states() { prediction::SUB_GROUP as usize } else { usize::MAX };
    OffloadPlacement {
        optimizer: offload.optimizer,
        parameters: offload.parameters,
        buffers: offload.buffers,
        sub_group_size: plan.config.communication.sub_group_size.unwrap_or(whole),
    }
}

/// Aborts a step without an update: discards what the stage and the optimizer have in flight.
fn abort_step(stage: &mut InstrumentedStage, rank: &Rank) -> Result<()> {
    stage.abort_step()?;
    Ok(stage.states().optimizer.abort(rank)?)
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, rank: Rc<Rank>, observer: &'a Observer<'a>) -> Result<Self> {
        let config = &plan.config;
        let hooks = Rc::new(Hooks::new(plan, rank.clone()));
        hooks.fire(Phase::Setup)?;
        let setup = Setup {
            source: first_weights(plan, &rank, &hooks)?,
            rank: rank.clone(),
            partition: plan.partition.clone(),
            schedule: plan.schedule.clone(),
            moments: plan.resume.as_ref().map(ResumeState::moments),
            communication: config.communication.clone(),
            grad_sync: config.grad_sync,
            strategy: config.strategy.unwrap_or_default(),
            precision: config.precision,
            micro_batches: config.micro_batches,
            placement: offload_placement(plan),
        };
        let passes = Passes::new(
            hooks.clone(),
            plan.model.clone(),
            &setup,
            Batch { batch: config.batch_size, tokens: config.sequence_length },
            (config.memory.checkpoint_activations.keep(), config.offload.activations),
        )?;
        let resume = plan.resume.as_deref();
        let mut stage = InstrumentedStage::new(plan, setup, hooks.clone())?;
        Ok(Worker {
            saver: Saver::new(plan, rank.clone(), stage.states().optimizer)?,
            last_saved_step: None,
            save_error: None,
            stage,
            passes,
            samples: Samples::new(plan, rank.clone(), hooks.clone()),
            targets: 0,
            scaler: config.loss_scaling.map(|scaling| ResumeState::scaler(resume, scaling)),
            steps: plan.first_step(),
            updates: resume.map_or(0, |state| state.progress.updates),
            record: Record::new(plan, rank.clone(), hooks.clone(), observer),
            writing_channel: rank.group.control_channel(Topic::Writing),
            plan,
            rank,
            hooks,
        })
    }

    /// Trains until the last step, or until a stop is requested. A step or validation that is
    /// interrupted does not count: it has changed no weight. If the previous step's update is in
    /// progress, all ranks complete it.
    fn train(&mut self) -> Result<()> {
        match self.train_steps() {
            Err(RankError::Stopped) => {
                // All ranks stop before the same layer, so the same part of an update remains on
                // each.
                self.stage.finish_update()?;
                self.record.interrupted(self.stage.states().optimizer.deferred_cost());
                self.rank.transfers.wind_down();
                self.passes.hand_back(&mut self.stage)?;
                self.rank.group.wind_down();
                abort_step(&mut self.stage, &self.rank)
            }
            done => done,
        }
    }

    fn train_steps(&mut self) -> Result<()> {
        let plan = self.plan;
        for step in plan.first_step()..plan.config.steps {
            if self.step(step)?.is_break() {
                if plan.config.validates_after(step) {
                    plan.stop.note_missing_validation();
                }
                break;
            }
            if plan.config.validates_after(step) && self.validate()?.is_break() {
                break;
            }
            if plan.checkpoints_after(step) {
                self.save_checkpoint()?;
            }
        }
        Ok(())
    }

    /// Runs one optimizer step. Breaks if a rank has seen a stop request.
    fn step(&mut self, step: u32) -> Result<ControlFlow<()>> {
        self.begin(step)?;
        let count = self.plan.config.micro_batches;
        let mut losses = Vec::new();
        for index in 0..count {
            losses.push(self.micro_batch(MicroBatch { index, count })?);
        }
        self.update(losses)
    }

    /// Begins `step` in the hooks, the record and the stage.
    fn begin(&mut self, step: u32) -> Result<()> {
        self.hooks.begin(step);
        self.record.begin(self.stage.states().optimizer.is_updating())?;
        self.targets = self.samples.training_targets()?;
        self.stage.begin();
        Ok(())
    }

    /// Runs forward and backward over one micro-batch. Returns its losses, which a GPU may still be
    /// computing.
    fn micro_batch(&mut self, micro: MicroBatch) -> Result<Losses> {
        self.hooks.before_micro_batch(micro)?;
        let tokens = self.hooks.phase(Phase::Data, || self.samples.training(micro))?;
        let (losses, saved) = self.forward(&tokens, micro)?;
        self.hooks.phase(Phase::Backward, || self.passes.backward(&mut self.stage, saved, micro))?;
        Ok(losses)
    }

    /// Runs forward. The cost of the previous step's update, which forward continues, is charged to
    /// the optimizer step.
    fn forward(&mut self, tokens: &Tokens, micro: MicroBatch) -> Result<(Losses, SavedForward)> {
        let scale = self.gradient_scale();
        let Worker { hooks, stage, passes, .. } = self;
        let before = stage.states().optimizer.deferred_cost();
        let forward = hooks.phase(Phase::Forward, || passes.forward(stage, tokens, micro, scale))?;
        hooks.charge_update_to_step(stage.states().optimizer.deferred_cost() - before);
        Ok(forward)
    }

    /// Returns the loss scale over the tokens of the global batch that carry a loss: sums over
    /// micro-batches and ranks are then means.
    fn gradient_scale(&self) -> f32 {
        let scale = self.loss_scale().unwrap_or(1.0) / self.targets as f64;
        self.hooks.gradient_scale(scale) as f32
    }

    /// Updates the weights with the gradients of all micro-batches, and records the step. Breaks
    /// if a rank has seen a stop request.
    fn update(&mut self, losses: Vec<Losses>) -> Result<ControlFlow<()>> {
        let (hooks, plan) = (self.hooks.clone(), self.plan);
        // The host waits here for a GPU, which computed these losses before backward.
        let wait = |sum, losses: Losses| Ok::<_, RankError>(sum + losses.wait()?);
        let loss_sum = losses.into_iter().try_fold(0.0, wait)?;
        let update = plan.config.update(hooks.step(), self.updates, self.loss_scale());
        let (outcome, agreed) = hooks.phase(Phase::Step, || self.update_weights(&update, loss_sum))?;
        let deferred_cost = self.stage.states().optimizer.deferred_cost();
        self.record.step(agreed.loss, &update, outcome, deferred_cost)?;
        self.steps += 1;
        self.updates += u32::from(!outcome.skipped);
        self.adjust_loss_scale(outcome.skipped)?;
        if !agreed.any_rank_saving {
            self.advance_checkpoint()?;
        }
        Ok(agreed.control_flow())
    }

    /// Updates the weights, or skips the update if gradients overflowed, and agrees with the other
    /// ranks on the loss, of which this rank has `loss_sum`. Completes the update unless it may
    /// continue in the next step.
    fn update_weights(&mut self, update: &Update, loss_sum: f64) -> Result<(StepOutcome, Agreed)> {
        let is_saving = self.saver.as_ref().is_some_and(Saver::is_busy);
        let targets_per_rank = self.targets as f64 / self.plan.config.world_size as f64;
        let grad_norm = update.unscale_norm(self.stage.gradient_norm()?);
        // The ranks agree before the update: its all-gathers may be in flight until forward.
        let status = OwnStatus { loss: loss_sum / self.targets as f64, is_saving };
        let agreed = agree(self.plan, &self.rank, status)?;
        let mean_loss = loss_sum / targets_per_rank;
        // A norm that ends the run is explained by what the ranks have contributed.
        let clipped = update.clip(grad_norm).inspect_err(|_| self.stage.end(mean_loss))?;
        match clipped {
            Some(update) => self.stage.update(update)?,
            None => abort_step(&mut self.stage, &self.rank)?,
        }
        let outcome = StepOutcome { grad_norm, skipped: clipped.is_none() };
        if agreed.stop || !self.plan.updates_continue_after(self.hooks.step()) {
            self.stage.finish_update()?;
        }
        self.stage.end(mean_loss);
        Ok((outcome, agreed))
    }

    /// Computes the loss on the validation part. Breaks if a rank has seen a stop request.
    fn validate(&mut self) -> Result<ControlFlow<()>> {
        let Worker { plan, rank, hooks, stage, passes, samples, .. } = self;
        let count = plan.evaluation_batches;
        let before = rank.transfers.moved();
        let batches = || {
            let mut sum = 0.0;
            for index in 0..count {
                hooks.before_micro_batch(MicroBatch { index, count })?;
                sum += passes.evaluate(stage, &samples.validation(index)?)?;
            }
            let loss = sum / samples.validation_targets()? as f64;
            agree(plan, rank, OwnStatus { loss, is_saving: false })
        };
        let outcome = hooks.phase(Phase::Evaluate, || rank.device.uncounted(batches));
        if matches!(outcome, Err(RankError::Stopped)) {
            plan.stop.note_missing_validation();
        }
        let agreed = outcome?;
        self.record.validation(agreed.loss, rank.transfers.moved() - before);
        Ok(agreed.control_flow())
    }

    /// Reads the meters, then saves the last checkpoint and the weights.
    fn finish(&mut self) -> Result<Measured> {
        let measured = self.record.finish()?;
        let (plan, hooks) = (self.plan, self.hooks.clone());
        let weights_blake3 = hooks.phase(Phase::Save, || {
            plan.stop.note_training_done();
            self.stage.states().optimizer.free_buffers();
            // The checkpoint comes first: only training makes it again.
            self.save_last_checkpoint()?;
            self.save_weights()
        })?;
        // The device's peak is that of training; saving counts in main memory and on disk only.
        let mut memory = record::peaks(self.rank.device.ledger());
        let device = Place::Device.index();
        memory[device] = measured.memory[device].clone();
        Ok(Measured { weights_blake3, memory, unsaved: self.save_error.take(), ..measured })
    }

    /// Returns the factor of the loss before backward; `None` if it is not scaled.
    fn loss_scale(&self) -> Option<f64> {
        self.scaler.as_ref().map(|scaler| scaler.at().scale)
    }

    /// Adjusts the loss scale after a step, which was `skipped` if gradients overflowed.
    fn adjust_loss_scale(&mut self, skipped: bool) -> Result<()> {
        let (step, Some(scaler)) = (self.hooks.step(), &mut self.scaler) else { return Ok(()) };
        let scale = scaler.at().scale;
        let next = scaler.finished(skipped);
        self.rank.emitter.emit(What::LossScale { step, scale, skipped: scaler.at().skipped });
        Ok(next?)
    }
}
