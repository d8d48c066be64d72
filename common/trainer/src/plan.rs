//! The plan of a run: everything that is fixed before it starts, and its prediction.

use crate::resume::{self, Exchange, ResumeState, Resuming};
use crate::source;
use crate::stage::StageFactory;
use crate::stop::StopRequest;
use crate::witness::{At, Milestone, Witness};
use crate::{checkpoints, contribution, faults, outputs};
use checkpoint::{Checkpoints, ModelFiles, Reader, RunLock};
use device::cuda::Gpu;
use events::Place;
use model::{Layout, Model};
use prediction::{Job, Limits, Memory, Prediction, RankPrediction, RunCounts, Saving, Strategy};
use report::{Measured, Peaks, Predicted, Report, Trained, memory};
use serde_json::Value;
use settings::data::{Data, ProgressOutput, Split};
use settings::machine::{self, SwapSpace};
use settings::planned::{invalid, job};
use settings::{Config, Failure, GradSync, Result};
use sharding::{MeshShape, Partition, Schedule};
use std::ops::Range;
use std::sync::Arc;

/// The most validation batches per rank unless more are asked for.
const EVALUATION_BATCHES: usize = 20;

/// The run's immutable inputs, shared by all ranks; only the stop request changes.
pub(crate) struct Plan {
    pub stage: StageFactory,
    pub config: Config,
    pub model: Arc<Model>,
    pub partition: Arc<Partition>,
    /// The units that each pass needs, in order.
    pub schedule: Arc<Schedule>,
    pub data: Data,
    /// The settings that a run that resumes this one must match.
    pub identity: Value,
    /// The weights that `--init-from` names; `None` without it.
    pub pretrained: Option<Arc<Reader>>,
    /// The small files that are saved with the weights: the resumed checkpoint's, or else those
    /// that the flags name.
    pub model_files: Arc<ModelFiles>,
    /// The GPUs that ranks compute on; none on the CPU.
    pub gpus: Vec<Arc<Gpu>>,
    /// The directory of the run's checkpoints, if it saves any.
    pub checkpoints: Option<Checkpoints>,
    /// The lock of that directory, on the rank that leads.
    pub lock: Option<Arc<RunLock>>,
    /// How each rank saves its part of a checkpoint.
    pub saving: Saving,
    /// The checkpoint that training resumes from, if there is one.
    pub resume: Option<Arc<ResumeState>>,
    /// The prediction for the run.
    pub prediction: Prediction,
    /// Validation batches per rank.
    pub evaluation_batches: usize,
    /// The request to end the run early.
    pub stop: Arc<StopRequest>,
    /// Observes milestones, parameters and gradients; see [`Witness`].
    pub witness: Option<Arc<dyn Witness>>,
}

impl Plan {
    /// Returns the first step of the run.
    pub(crate) fn first_step(&self) -> u32 {
        self.resume.as_ref().map_or(0, |state| state.progress.steps)
    }

    /// Returns how many training tokens were read before the run's first step. Earlier steps may
    /// have had another batch size.
    pub(crate) fn tokens_before(&self) -> u64 {
        let counted = self.resume.as_ref().and_then(|state| state.progress.tokens);
        counted.unwrap_or(u64::from(self.first_step()) * self.config.tokens_per_step())
    }

    /// Returns FSDP's name for how far the run shards, if it has one for the stage.
    pub(crate) fn strategy(&self) -> Option<Strategy> {
        self.config.strategy.or(self.stage.strategies.first().copied())
    }

    /// Returns this plan, resumed from a checkpoint if there is one. See [`ResumeState::choose`].
    ///
    /// # Errors
    /// As [`ResumeState::choose`], or if a disk has no room for the run's own files.
    pub(crate) fn resumed(self, ranks: Range<usize>, exchange: &Exchange<'_>) -> Result<Self> {
        let Plan { config, model, identity, partition, stage, witness, .. } = &self;
        let run = Resuming {
            config,
            model,
            identity,
            partition,
            sharded: stage.sharded,
            ranks,
            witness: witness.as_deref(),
        };
        let resume = match &self.checkpoints {
            Some(checkpoints) => ResumeState::choose(&run, checkpoints, exchange)?,
            None => None,
        };
        let model_files = resume::unanimous(self.model_files_of(resume.as_deref()), exchange)?;
        let plan = Plan { resume, model_files, ..self };
        resume::unanimous(plan.check_room(), exchange)?;
        Ok(plan)
    }

    /// Checks, on the rank that leads, that disks have room for the final weights and checkpoints.
    /// The element type of the weights follows from the model files, and these from the checkpoint
    /// that the run resumes from.
    fn check_room(&self) -> Result<()> {
        let Plan { config, model, prediction, .. } = self;
        if !config.leads() {
            return Ok(());
        }
        let saved_bytes = outputs::saved_bytes(config, model, &self.model_files);
        outputs::check_room(config, saved_bytes)?;
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        let space = checkpoints::Space { parameters: model.layout.parameters(), saved_bytes, prediction };
        checkpoints::check_room(checkpoints, &self.damaged(), config, space)
    }

    /// Returns the run's model files: those of the checkpoint that it resumes from, with the
    /// tokenizer that a flag names, or else those that the flags name.
    ///
    /// # Errors
    /// If the tokenizer cannot be read.
    fn model_files_of(&self, resume: Option<&ResumeState>) -> Result<Arc<ModelFiles>> {
        let kept = resume.map(ResumeState::model_files).filter(|kept| !kept.is_empty());
        match (kept, &self.config.corpus.source.tokenizer) {
            (None, _) => Ok(self.model_files.clone()),
            (Some(kept), None) => Ok(kept.clone()),
            (Some(kept), Some(path)) => {
                let files = ModelFiles::clone(kept).with_tokenizer(path);
                Ok(Arc::new(files.map_err(Failure::usage)?))
            }
        }
    }

    /// Reports to the witness, if there is one, that `rank` has reached `milestone`.
    pub(crate) fn reached(&self, step: u32, rank: usize, milestone: Milestone) {
        if let Some(witness) = &self.witness {
            witness.on_milestone(At { step, rank }, milestone);
        }
    }

    /// Returns the names of checkpoints that were found damaged.
    pub(crate) fn damaged(&self) -> Vec<String> {
        let damaged = self.resume.iter().flat_map(|state| &state.damaged);
        damaged.map(|(name, _)| name.clone()).collect()
    }

    /// True if `step` is the last.
    fn is_last(&self, step: u32) -> bool {
        step + 1 == self.config.steps
    }

    /// True if an update may continue after `step`: another step follows at once, and communication
    /// overlaps with computation.
    pub(crate) fn updates_continue_after(&self, step: u32) -> bool {
        let ends = self.is_last(step) || self.config.validates_after(step) || self.checkpoints_after(step);
        self.config.communication.overlap && !ends
    }

    /// Returns what a stop request waits for: threads check it before a layer, processes between
    /// micro-batches.
    pub(crate) fn stops_after(&self) -> &'static str {
        if self.config.process.is_some() { "micro-batch" } else { "layer" }
    }

    /// True if a checkpoint follows `step`; the one after the last step is part of saving.
    pub(crate) fn checkpoints_after(&self, step: u32) -> bool {
        self.config.output.checkpoint_every.is_some_and(|every| (step + 1).is_multiple_of(every))
            && !self.is_last(step)
    }
}

/// Completes `config` to a plan, and refuses what cannot work.
///
/// # Errors
/// A usage failure for flags and data; a failed run if the plan does not fit the device's memory.
pub(crate) fn prepare(stage: StageFactory, config: Config) -> Result<Plan> {
    let prediction = check(stage, &config)?;
    let findings = config.findings.clone();
    complete(stage, config, prediction).map_err(|failure| findings.attribute(failure))
}

/// Checks that `stage` supports `config`, whatever the machine and the data. Returns the
/// prediction.
///
/// # Errors
/// A usage failure that names the flag, and the key of the file that stands for it.
pub(crate) fn check(stage: StageFactory, config: &Config) -> Result<Prediction> {
    config.findings.check(stage.id)?;
    let predicted = check_stage(stage, config)
        .and_then(|()| contribution::check(config))
        .and_then(|()| faults::check(config, stage))
        .and_then(|()| prediction::predict(&job(stage.id, config)).map_err(|error| invalid(&error)));
    predicted.map_err(|failure| config.findings.attribute(failure))
}

fn complete(stage: StageFactory, config: Config, prediction: Prediction) -> Result<Plan> {
    config.offload.probe()?;
    let job = job(stage.id, &config);
    check_memory(&job, &prediction, &config)?;
    let output = if config.leads() { ProgressOutput::Printed } else { ProgressOutput::Silent };
    let vocabulary = config.model.vocabulary;
    let data = Data::open(&config.corpus.source, vocabulary, config.sequence_length, output)?;
    let mut model = Model::new(config.model.clone()).map_err(Failure::usage)?;
    model.rounding = config.precision.rounding;
    let pretrained = source::open_pretrained(&config, &model).map_err(Failure::usage)?;
    let model_files = source::model_files(&config, pretrained.as_deref()).map_err(Failure::usage)?;
    outputs::probe(&config, pretrained.as_deref())?;
    let (checkpoints, lock) = checkpoints::open(&config)?.unzip();
    let partition = partition(stage, &config, &model.layout, job.shards() as usize);
    let schedule = Schedule::new(&model.layout, &partition);
    let gpus = config.hardware.open(config.world_size, config.nccl)?;
    let local_ranks = (config.process.is_none()).then_some(0..config.world_size);
    let plan = Plan {
        stage,
        gpus,
        evaluation_batches: evaluation_batches(&config, &data),
        identity: resume::identity(&config, &model, &data)?,
        model: Arc::new(model),
        partition: Arc::new(partition),
        schedule: Arc::new(schedule),
        data,
        pretrained,
        model_files: Arc::new(model_files),
        checkpoints,
        lock: lock.flatten(),
        saving: job.placement.saving,
        resume: None,
        prediction,
        stop: Arc::new(StopRequest::new(Arc::default(), local_ranks.as_ref().map_or(1, Range::len))),
        witness: None,
        config,
    };
    match local_ranks {
        Some(ranks) => plan.resumed(ranks, &resume::alone),
        None => Ok(plan),
    }
}

/// Returns the units of `layout`, each cut into `shards` slices, as `stage` and `config` say.
fn partition(stage: StageFactory, config: &Config, layout: &Layout, shards: usize) -> Partition {
    let partition = Partition::new(layout, config.wrap, shards);
    if stage.sharded.parameters {
        partition.with_persistent_tensors(config.communication.persistence_limits())
    } else {
        partition
    }
}

/// Refuses a flag that belongs to another stage, and names the crate to run.
fn check_stage(stage: StageFactory, config: &Config) -> Result<()> {
    let sharding = Strategy::FullShard.stage();
    let (why, other) = match config.strategy {
        _ if config.grad_sync != GradSync::default() && !stage.grad_syncs.contains(&config.grad_sync) => {
            let other = prediction::Stage::SUPPORTS_TEXTBOOK_ALL_REDUCE;
            (format!("--grad-sync belongs to {other}"), other)
        }
        Some(strategy) if !stage.strategies.contains(&strategy) => {
            (format!("--strategy {strategy} belongs to {}", strategy.stage()), strategy.stage())
        }
        _ if config.mesh != MeshShape::World && !stage.strategies.contains(&Strategy::FullShard) => {
            (format!("--secondary-shard-size belongs to {sharding}"), sharding)
        }
        _ if config.offload.parameters != Place::Device && !stage.sharded.parameters => {
            let holds = format!("every rank of {} holds all of them", stage.id);
            (format!("--offload-parameters moves shards of parameters, and {holds}"), sharding)
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("{why}: cargo run -p {}, not {}", other.package(), stage.id)))
}

/// Refuses a run that does not fit its limits or this machine.
fn check_memory(job: &Job, prediction: &Prediction, config: &Config) -> Result<()> {
    if config.memory.ignore_plan {
        return Ok(());
    }
    memory::check(job, prediction, limits(config))?;
    check_machine(job, prediction, config)
}

/// Refuses a run that needs more main memory than this machine has, as far as that is known.
fn check_machine(job: &Job, prediction: &Prediction, config: &Config) -> Result<()> {
    // Ranks on GPUs allocate page-locked main memory.
    let on_gpus = config.hardware.is_gpu();
    let swap_space = if on_gpus { SwapSpace::Excluded } else { SwapSpace::Included };
    let Some(memory) = machine::memory(swap_space) else { return Ok(()) };
    let machine = memory::Machine {
        memory: &memory,
        ranks: config.ranks_here(),
        rank: config.process.as_ref().map_or(0, |process| process.position.rank),
        on_gpus,
    };
    memory::check_machine(job, prediction, &machine, limits(config))
}

/// Returns the bytes that each rank may use in each place.
pub(crate) fn limits(config: &Config) -> Limits {
    [config.memory.device_memory, config.memory.host_memory, None]
}

/// Returns the number of validation batches per rank: at most as many as cover all windows once.
fn evaluation_batches(config: &Config, data: &Data) -> usize {
    if config.corpus.eval_every.is_none() {
        return 0;
    }
    let windows = data.windows(Split::Validation, config.sequence_length);
    let available = windows.div_ceil(config.world_size * config.batch_size);
    config.corpus.eval_batches.unwrap_or(EVALUATION_BATCHES).min(available)
}

/// Returns the predicted peaks of every rank in every place, for a run that has completed `done`.
fn peaks(plan: &Plan, done: RunCounts) -> Vec<Vec<Peaks>> {
    let never_updated = done.steps == 0 && done.skipped > 0;
    let job = never_updated.then(|| job(plan.stage.id, &plan.config));
    let skipped = job.and_then(|job| prediction::peaks_without_updates(&job).ok());
    let peaks = |memory: Memory| Peaks { classes: memory.peaks.to_vec(), total: memory.total_peak };
    let of =
        |rank: &RankPrediction| skipped.unwrap_or([rank.memory, rank.host, rank.disk]).map(peaks).to_vec();
    plan.prediction.ranks.iter().map(of).collect()
}

/// Returns the report: predictions beside measurements.
pub(crate) fn report(plan: &Plan, measured: &[Measured]) -> Report {
    let one = &measured[0];
    let skipped = one.steps.iter().filter(|row| row.skipped).count() as u64;
    let evaluations = one.evaluations.len() as u64;
    let done = RunCounts {
        steps: one.steps.len() as u64 - skipped,
        skipped,
        fresh_starts: one.fresh_starts,
        evaluations,
        evaluation_batches: evaluations * plan.evaluation_batches as u64,
        checkpoints: one.checkpoints,
    };
    let ranks = &plan.prediction.ranks;
    let predicted = Predicted {
        memory: peaks(plan, done),
        transfers: ranks.iter().map(|rank| rank.transfers.total(done)).collect(),
        traffic: ranks.iter().map(|rank| rank.traffic.total(done)).collect(),
        to_neighbours: ranks.iter().map(|rank| rank.to_neighbours.total(done)).collect(),
        saving: plan.saving,
    };
    let trained = Trained {
        stage: plan.stage.id,
        strategy: plan.strategy(),
        parameters: plan.model.layout.parameters(),
        units: plan.partition.units.len(),
    };
    Report::new(trained, &plan.config, &predicted, measured)
}
