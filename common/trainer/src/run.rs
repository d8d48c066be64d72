//! What every rank does: set up, train step by step, report what was measured.

use crate::faults::{fault, trip};
use crate::hardware_rows::{GpuRow, KernelRow};
use crate::kept::Kept;
use crate::passes::Passes;
use crate::report::StepRow;
use crate::source::Tokenizer;
use crate::stage::{AnyStage, Setup, Stage as _};
use crate::timing::{self, Clocks, Stopwatch};
use crate::witness::{Watched, Witness};
use collectives::{ControlChannel, Topic, Traffic};
use device::cuda::Gpu;
use device::{Class, DeviceError, Place};
use events::{Boundary, Operation, What};
use model::{Batch, Losses, Model};
use planner::{Moment, Prediction};
use serde::{Deserialize, Serialize};
use settings::Config;
use settings::data::Data;
use settings::fault::{Kind, Phase};
use sharding::{LossScaler, Micro, Partition, Rank, Schedule};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

mod ending;
mod error;
mod exchange;
mod samples;
mod weights;

pub(crate) use ending::{Ending, Wish};
pub(crate) use error::RankError;
pub(crate) use exchange::share;
use exchange::tell_peers;
use weights::first_weights;

/// What all ranks of a run share, read-only but for the wish to stop.
pub(crate) struct Plan {
    /// Who trains.
    pub stage: AnyStage,
    /// The flags.
    pub config: Config,
    /// The model.
    pub model: Arc<Model>,
    /// Its units.
    pub partition: Arc<Partition>,
    /// When they are needed.
    pub schedule: Arc<Schedule>,
    /// The tokens.
    pub data: Data,
    /// The tokenizer of the weights that training starts from, to be saved with those that it ends with.
    pub tokenizer: Tokenizer,
    /// The GPUs that ranks compute on, if they do.
    pub gpus: Vec<Arc<Gpu>>,
    /// What training goes on from, if it does not begin anew.
    pub kept: Option<Arc<Kept>>,
    /// What the planner says about it.
    pub prediction: Prediction,
    /// Validation batches per rank.
    pub evaluation_batches: usize,
    /// The wish to end the run early.
    pub stop: Arc<Wish>,
    /// Who sees what ranks compute with and contribute.
    pub witness: Option<Arc<dyn Witness>>,
}

impl Plan {
    /// The step that the run begins with.
    pub(crate) fn first_step(&self) -> u32 {
        self.kept.as_ref().map_or(0, |kept| kept.progress.steps)
    }
}

/// Steps at the beginning that no speed counts, if there are more: memory is taken and code is loaded in them.
pub(crate) const UNTIMED: u32 = 2;

/// What one rank measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Its steps; the same on every rank but for the seconds.
    pub steps: Vec<StepRow>,
    /// Validation losses: after how many steps, nats per token.
    pub evaluations: Vec<(u32, f64)>,
    /// Checkpoints between two of its steps.
    pub checkpoints: u64,
    /// Peak bytes per class, in [`Class::ALL`]'s order.
    pub peaks: Vec<u64>,
    /// Peak of the sum over classes.
    pub total_peak: u64,
    /// What lies beside the ledger, on a GPU.
    pub gpu: Option<GpuRow>,
    /// Time by kind of kernel, if the device is metered.
    pub kernels: Vec<KernelRow>,
    /// Bytes and calls per operation.
    pub traffic: Traffic,
    /// Of these bytes, what it sent to neighbours, if it has a group of them.
    pub to_neighbours: Option<u64>,
    /// Seconds per phase.
    pub clocks: Clocks,
    /// Hash of the final weights; rank 0 alone has it, and only if it was asked for.
    pub weights_blake3: Option<String>,
}

pub(crate) type Result<T> = std::result::Result<T, RankError>;

/// What a rank tells while it goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News<'a> {
    /// A step is done; and the most bytes that the rank has held at once so far.
    Step(&'a StepRow, u64),
    /// After so many steps this is the loss on the validation part.
    Validation(u32, f64),
    /// After so many steps the state of training is kept.
    Kept(u32),
}

/// Told by every rank, with its number.
pub(crate) type Observer<'a> = dyn Fn(usize, News<'_>) + Sync + 'a;

/// One rank of a run.
struct Worker<'a> {
    plan: &'a Plan,
    rank: Rc<Rank>,
    stage: Watched,
    passes: Passes,
    clocks: Clocks,
    scaler: Option<LossScaler>,
    /// Optimizer steps that updated something.
    updates: u32,
    steps: Vec<StepRow>,
    evaluations: Vec<(u32, f64)>,
    checkpoints: u64,
    /// Where ranks wait for what is written.
    meeting: ControlChannel,
    /// As of the last whole step, or the validation and the checkpoint after it.
    counted: Counted,
}

/// What a rank has sent and where its time went.
#[derive(Clone, Copy)]
struct Counted {
    traffic: Traffic,
    to_neighbours: Option<u64>,
    clocks: Clocks,
}

impl Counted {
    fn so_far(rank: &Rank, clocks: Clocks) -> Self {
        let to_neighbours = rank.mesh.neighbours().map(|group| group.traffic().total());
        Counted { traffic: rank.group.overall_traffic(), to_neighbours, clocks }
    }
}

/// Runs `rank` from the first weights to the last.
///
/// # Errors
/// The rank's own error, or its peers'.
pub(crate) fn train(plan: &Plan, rank: Rc<Rank>, observer: &Observer<'_>) -> Result<Measured> {
    let mut worker = match Worker::new(plan, rank.clone()) {
        Ok(worker) => worker,
        Err(error) => return Err(tell_peers(&rank, "its setup", error.at(Moment::Setup))),
    };
    for step in plan.first_step()..plan.config.steps {
        match worker.step(step, observer) {
            Ok(false) => {}
            Ok(true) => break,
            // While the worker still holds its buffers and pending collectives: the first failure of a group stays.
            Err(error) => {
                let error = error.at(worker.passes.moment());
                return Err(tell_peers(&rank, &format!("step {step}"), error));
            }
        }
    }
    worker.finish().map_err(|error| tell_peers(&rank, "saving", error))
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, rank: Rc<Rank>) -> Result<Self> {
        let number = rank.number();
        let config = &plan.config;
        trip(config, number, 0, Phase::Setup)?;
        let source = first_weights(plan, &rank)?;
        let setup = Setup {
            rank: rank.clone(),
            partition: plan.partition.clone(),
            schedule: plan.schedule.clone(),
            source,
            moments: plan.kept.as_ref().map(Kept::moments),
            communication: config.communication.clone(),
            grad_sync: config.grad_sync,
            strategy: config.strategy.unwrap_or_default(),
            precision: config.precision,
            micro_batches: config.micro_batches,
        };
        let batch = Batch { batch: config.batch_size, tokens: config.sequence_length };
        let passes = Passes::new(
            rank.clone(),
            plan.model.clone(),
            plan.partition.clone(),
            plan.schedule.clone(),
            batch,
            config.checkpointing.keep(),
        )
        .until(Ending::of(plan, &rank));
        let stage = Watched::new(plan, setup)?;
        let meeting = rank.group.control_channel(Topic::Writing);
        Ok(Worker {
            plan,
            counted: Counted::so_far(&rank, Clocks::default()),
            rank,
            stage,
            passes,
            clocks: Clocks::default(),
            scaler: config.loss_scaling.map(|scaling| Kept::scaler(plan.kept.as_deref(), scaling)),
            updates: plan.kept.as_ref().map_or(0, |kept| kept.progress.updates),
            steps: vec![],
            evaluations: vec![],
            checkpoints: 0,
            meeting,
        })
    }

    /// One optimizer step; whether it was the last. A step that is broken off does not count: no weight has changed yet.
    fn step(&mut self, step: u32, observer: &Observer<'_>) -> Result<bool> {
        match self.whole_step(step, observer) {
            Err(RankError::Stopped) => {
                self.passes.let_go(&mut self.stage)?;
                self.rank.group.wind_down();
                Ok(true)
            }
            other => other,
        }
    }

    fn whole_step(&mut self, step: u32, observer: &Observer<'_>) -> Result<bool> {
        let config = &self.plan.config;
        if step - self.plan.first_step() == UNTIMED {
            self.rank.device.reset_meter()?;
        }
        self.rank.emitter.boundary(Boundary::Step);
        self.rank.emitter.emit(What::StepStarted { step });
        self.stage.begin(step);
        self.passes.slow_down(self.suffers(Kind::Slow, step));
        let (started, waited) = (Instant::now(), self.waited_for_peers());
        let held = self.rank.emitter.held();
        let mut losses = Vec::new();
        for index in 0..config.micro_batches {
            losses.push(self.micro_batch(step, Micro { index, count: config.micro_batches })?);
        }
        // On a GPU these are past long since: all of backward is queued behind them.
        let loss =
            losses.into_iter().try_fold(0.0, |sum, losses| Ok::<_, DeviceError>(sum + losses.wait()?))?;
        self.passes.update();
        self.trip(step, Phase::Step)?;
        let watch = self.stopwatch();
        let loss_scale = self.scaler.as_ref().map(LossScaler::scale);
        let update = config.update(self.updates, loss_scale);
        let outcome = self.stage.step(&update);
        self.stage.tell(loss / config.tokens_per_rank() as f64, self.waited_for_peers() - waited);
        let outcome = outcome?;
        let (loss, stop) = self.agree(loss / config.tokens_per_step() as f64)?;
        self.stop(watch, |times| &mut times.step);
        self.rank.device.tell_past()?;
        let held_since = |before| self.rank.emitter.held().saturating_sub(before);
        let row = StepRow {
            step,
            loss,
            grad_norm: outcome.grad_norm,
            lr: update.lr,
            tokens: config.tokens_per_step(),
            seconds: started.elapsed().saturating_sub(held_since(held)).as_secs_f64(),
            loss_scale,
            skipped: outcome.skipped,
        };
        self.finished(row, observer)?;
        let last = step + 1 == config.steps;
        if config.evaluation.is_some_and(|e| last || (step + 1).is_multiple_of(e.every)) && !stop {
            let loss = self.evaluate(step)?;
            observer(self.rank.number(), News::Validation(step + 1, loss));
        }
        let every = config.checkpoint.as_ref().and_then(|checkpoint| checkpoint.every);
        if every.is_some_and(|every| (step + 1).is_multiple_of(every)) && !last && !stop {
            self.keep()?;
            self.checkpoints += 1;
            self.counted = Counted::so_far(&self.rank, self.clocks);
            observer(self.rank.number(), News::Kept(step + 1));
        }
        Ok(stop || last)
    }

    /// Tells everybody about a finished step. Its successor's loss scale follows from it.
    fn finished(&mut self, row: StepRow, observer: &Observer<'_>) -> Result<()> {
        let StepRow { step, loss, grad_norm, lr, tokens, seconds, .. } = row;
        self.rank.emitter.emit(What::StepFinished { step, loss, grad_norm, lr, tokens, seconds });
        self.updates += u32::from(!row.skipped);
        let peak = self.rank.device.ledger().peak_total(Place::Device);
        observer(self.rank.number(), News::Step(&row, peak));
        self.steps.push(row);
        self.counted = Counted::so_far(&self.rank, self.clocks);
        let Some(scaler) = &mut self.scaler else { return Ok(()) };
        let scale = scaler.scale();
        let next = scaler.finished(row.skipped);
        self.rank.emitter.emit(What::LossScale { step, scale, skipped: scaler.skipped() });
        Ok(next?)
    }

    /// Forward and backward over one micro-batch; its losses.
    fn micro_batch(&mut self, step: u32, micro: Micro) -> Result<Losses> {
        self.passes.begin(micro)?;
        self.trip(step, Phase::Data)?;
        let watch = self.stopwatch();
        let tokens = self.training_tokens(step, micro);
        self.stop(watch, |times| &mut times.data);
        self.trip(step, Phase::Forward)?;
        let watch = self.stopwatch();
        let scale = self.gradient_scale(step);
        let (losses, kept) = self.passes.forward(&mut self.stage, &tokens, micro, scale)?;
        self.stop(watch, |times| &mut times.forward);
        self.trip(step, Phase::Backward)?;
        let watch = self.stopwatch();
        let (config, number) = (&self.plan.config, self.rank.number());
        let tripwire = || trip(config, number, step, Phase::Recompute);
        self.passes.backward(&mut self.stage, kept, micro, &tripwire)?;
        self.stop(watch, |times| &mut times.backward);
        self.clocks.total.recompute = self.passes.recompute_seconds();
        Ok(losses)
    }

    /// Whether this rank has a fault that lasts in `step`.
    fn suffers(&self, kind: Kind, step: u32) -> bool {
        self.plan.config.faults.iter().any(|fault| fault.lasts(kind, self.rank.number(), step))
    }

    fn waited_for_peers(&self) -> f64 {
        self.rank.group.overall_traffic().seconds()[1]
    }

    fn stopwatch(&self) -> Stopwatch {
        Stopwatch::start(self.rank.group.overall_traffic().seconds())
    }

    fn stop(&mut self, watch: Stopwatch, phase: timing::Phase) {
        self.clocks.add(phase, watch, self.rank.group.overall_traffic().seconds());
    }

    /// What the sum of losses is multiplied with: one over the tokens of the step, times the loss scale.
    fn gradient_scale(&self, step: u32) -> f32 {
        let config = &self.plan.config;
        if fault(config, self.rank.number(), step, Phase::Backward, Kind::Overflow) {
            return f32::INFINITY;
        }
        let loss_scale = self.scaler.as_ref().map_or(1.0, LossScaler::scale);
        let own = self.suffers(Kind::Divisor, step);
        let tokens = if own { config.tokens_per_rank() } else { config.tokens_per_step() };
        (loss_scale / tokens as f64) as f32
    }

    fn trip(&self, step: u32, phase: Phase) -> Result<()> {
        trip(&self.plan.config, self.rank.number(), step, phase)
            .inspect_err(|_| self.rank.emitter.emit(What::Failing))
    }

    /// Reads the meters, then gathers what training can go on from, and the weights to hash and save them.
    fn finish(&mut self) -> Result<Measured> {
        self.rank.device.synchronize()?;
        self.rank.device.tell_past()?;
        let ledger = self.rank.device.ledger();
        let peaks: Vec<u64> = Class::ALL.iter().map(|&class| ledger.peak(Place::Device, class)).collect();
        let total_peak = ledger.peak_total(Place::Device);
        let gpu = GpuRow::of(self.rank.number(), &self.rank.device)?;
        let kernels = KernelRow::of(self.rank.number(), &self.rank.device)?;
        let Counted { traffic, to_neighbours, clocks } = self.counted;
        let sent = Operation::ALL.iter().map(|&operation| traffic.sent(operation)).collect();
        self.rank.emitter.emit(What::Finished { peaks: peaks.clone(), total_peak, sent });
        self.trip(self.plan.config.steps, Phase::Save)?;
        self.plan.stop.writing.store(true, Ordering::Relaxed);
        // First what cannot be made again without training.
        if self.plan.config.checkpoint.is_some() && !self.steps.is_empty() {
            self.keep()?;
        }
        let weights_blake3 = self.save()?;
        let (steps, evaluations) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.evaluations));
        Ok(Measured {
            steps,
            evaluations,
            checkpoints: self.checkpoints,
            peaks,
            total_peak,
            gpu,
            kernels,
            traffic,
            to_neighbours,
            clocks,
            weights_blake3,
        })
    }
}
