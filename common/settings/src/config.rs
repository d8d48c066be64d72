//! The configuration of a run: the flags, checked and completed.

use crate::cli::{DataArgs, GradSync, MemoryArgs, OutputArgs, RANKS, TrainArgs, WatchArgs};
use crate::communication::Communication;
use crate::error::{Failure, Result};
use crate::fault::Fault;
use crate::findings::Findings;
use crate::float_type;
use crate::given::flag_name;
use crate::groups;
use crate::hardware::Hardware;
use crate::link::LinkChoice;
use crate::lr_schedule::LrSchedule;
use crate::machine::{THREADS, cores};
use crate::offload::OffloadArgs;
use crate::precision;
use crate::process::Process;
use checkpoint::Format;
use collectives::nccl;
use events::say::grouped;
use model::{ModelConfig, Wrap};
use prediction::{Algorithm, Strategy};
use sharding::{LossScaling, MeshShape, Precision, Update};
use std::path::PathBuf;
use std::time::Duration;

mod architecture;
pub mod resumed;

use architecture::config_json;
pub use architecture::{DEFAULT_MODEL, architecture};

/// A training run, fully determined.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of ranks.
    pub world_size: usize,
    /// The architecture.
    pub model: ModelConfig,
    /// The text that training and validation share.
    pub corpus: DataArgs,
    /// Optimizer steps.
    pub steps: u32,
    /// Sequences per micro-batch and rank.
    pub batch_size: usize,
    /// Tokens per sequence.
    pub sequence_length: usize,
    /// Micro-batches per optimizer step.
    pub micro_batches: usize,
    /// Which tensors form a unit.
    pub wrap: Wrap,
    /// How far FSDP shards; `None` for the stage's default.
    pub strategy: Option<Strategy>,
    /// Groups of neighbouring ranks.
    pub mesh: MeshShape,
    /// Learning rate by step.
    pub lr_schedule: LrSchedule,
    /// Decay of the momentum and of the variance.
    pub betas: (f32, f32),
    /// The constant added to the root of the variance.
    pub eps: f32,
    /// Whether momentum and variance are corrected for their start at 0.
    pub bias_correction: bool,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f32,
    /// Gradients with a larger norm are scaled down to it.
    pub max_grad_norm: f64,
    /// Seed of the initial weights.
    pub seed: u64,
    /// The devices of the ranks.
    pub hardware: Hardware,
    /// Memory of each rank.
    pub memory: MemoryArgs,
    /// Where states are stored that are offloaded.
    pub offload: OffloadArgs,
    /// Threads per rank.
    pub threads: usize,
    /// The version of NCCL that moves data between the ranks' GPUs; `None` without NCCL.
    pub nccl: Option<nccl::Version>,
    /// How local collectives move data.
    pub algorithm: Algorithm,
    /// The simulated link; `None` if there is none.
    pub link: Option<LinkChoice>,
    /// Buckets, overlap and prefetch.
    pub communication: Communication,
    /// How gradients are summed where the stage has a choice.
    pub grad_sync: GradSync,
    /// Element types.
    pub precision: Precision,
    /// How the loss is scaled; `None` if it is not.
    pub loss_scaling: Option<LossScaling>,
    /// The time for which a rank waits for its peers before it times out.
    pub timeout: Duration,
    /// The screen; `None` for plain lines.
    pub screen: Option<screen::LiveOptions>,
    /// Whether each rank emits its own metrics of a step before anything is summed.
    pub contributions: bool,
    /// Whether every kernel is timed, for the report's rows by kind. No flag sets it; `gpu-bench`
    /// does.
    pub metered: bool,
    /// Whether the weights are gathered at the end, for the report's hash, even if they are not
    /// saved. No flag clears it; `gpu-bench` does.
    pub hashed: bool,
    /// Files that the run writes.
    pub output: OutputArgs,
    /// How saved weights are written.
    pub save_format: Format,
    /// Faults of rank 0's disk while weights are written. No flag sets them; tests do.
    pub save_faults: Vec<storage::DiskFault>,
    /// Faults that tests inject into the calls of a rank, given by its number, to its disk for
    /// checkpoints.
    pub checkpoint_faults: Vec<(usize, storage::DiskFault)>,
    /// The directory from which initial weights are read; `None` for random weights.
    pub init_from: Option<PathBuf>,
    /// The `config.json` that `--model` names; `None` for a preset.
    pub config_json: Option<PathBuf>,
    /// This process's part in a job; `None` if ranks are threads.
    pub process: Option<Process>,
    /// Injected failures.
    pub faults: Vec<Fault>,
    /// Warnings and errors about the `--config` file.
    pub findings: Findings,
}

/// Default decay of momentum and of variance.
pub const BETAS: (f32, f32) = (0.9, 0.95);

/// Returns the default number of warm-up steps of a run of `steps` steps.
pub fn default_warmup(steps: u32) -> u32 {
    (steps / 10).min(100)
}

impl Config {
    /// Returns warnings: GPUs shared or loaded slowly, validation data that nothing measures,
    /// states on a disk that is main memory.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let between = match &self.process {
            Some(process) => process.warning.clone(),
            None => self.nccl.and_then(|_| nccl::lazy_loading_warning()),
        };
        let unmeasured = self.corpus.source.validation > 0.0 && self.corpus.eval_every.is_none();
        let measure = "--val-fraction keeps data that nothing measures: give --eval-every STEPS, too";
        between.into_iter().chain(unmeasured.then(|| measure.into())).chain(self.offload.directory_warning())
    }

    /// Checks `args`. The settings of a `--config` file must have been merged into them: this does
    /// not read it.
    ///
    /// # Errors
    /// A usage failure that names the flag and what it accepts.
    pub fn new(args: TrainArgs) -> Result<Self> {
        check(&args)?;
        let model = architecture(&args)?;
        let config_json = args.architecture.model.as_deref().and_then(config_json);
        let precision = precision::precision(&args.types);
        let loss_scaling = precision::loss_scaling(&args.types, &args.given, precision)?;
        let mesh = groups::mesh(&args)?;
        let screen = screen(&args);
        let hardware = Hardware::choose(&args, precision)?;
        Ok(Config {
            offload: args.offload.clone().checked(
                &args.given,
                args.memory.checkpoint_activations,
                matches!(hardware, Hardware::Gpus { .. }),
            )?,
            nccl: hardware.nccl(&args)?,
            hardware,
            world_size: args.gpus,
            corpus: DataArgs { source: args.corpus.source.checked()?, ..args.corpus },
            steps: args.training.steps,
            batch_size: args.training.batch_size.unwrap_or(model.batch_size),
            sequence_length: args.training.seq_len.unwrap_or(model.sequence_length),
            micro_batches: args.training.grad_accum,
            wrap: args.sharding.wrap,
            strategy: args.sharding.strategy,
            mesh,
            lr_schedule: args.file_only.scheduler.schedule(
                args.training.lr,
                args.training.warmup_steps.unwrap_or(default_warmup(args.training.steps)),
                args.training.steps,
            ),
            betas: args.file_only.betas.unwrap_or(BETAS),
            eps: args.file_only.eps.unwrap_or(1e-8),
            bias_correction: !args.file_only.biased,
            weight_decay: args.training.weight_decay as f32,
            max_grad_norm: if args.file_only.unclipped { f64::INFINITY } else { args.training.max_grad_norm },
            seed: args.architecture.seed,
            memory: args.memory,
            threads: args.threads.unwrap_or_else(|| (cores().min(THREADS) / args.gpus).max(1)),
            algorithm: args.algorithm,
            link: args.link,
            communication: Communication::new(&args.communication),
            grad_sync: args.sharding.grad_sync.unwrap_or_default(),
            precision,
            loss_scaling,
            timeout: args.timeout,
            screen,
            contributions: args.watching.contributions,
            metered: false,
            hashed: true,
            save_format: args
                .output
                .format
                .format(args.file_only.saves_trained_type.then(|| float_type::stored(precision.parameters))),
            output: args.output,
            save_faults: Vec::new(),
            checkpoint_faults: Vec::new(),
            init_from: args.architecture.init_from,
            config_json,
            process: None,
            faults: args.inject,
            findings: Findings::default(),
            model,
        })
    }

    /// Returns the configuration of this process: outputs and the screen stay with rank 0.
    ///
    /// # Errors
    /// A usage failure if a file asks for a different number of ranks than there are processes.
    pub fn in_process(mut self, process: Option<Process>) -> Result<Self> {
        let Some(Process { position, .. }) = &process else { return Ok(self) };
        self.hardware = self.hardware.of_process(position.local_rank.unwrap_or(position.rank));
        if self.world_size != position.world_size {
            return Err(Failure::usage(format!(
                "{}: num_processes {}, but {} started {} processes, one rank each\n\
                 Set num_processes to {}, or start {} processes.",
                self.findings.file,
                self.world_size,
                position.launcher,
                position.world_size,
                position.world_size,
                self.world_size
            )));
        }
        if position.rank > 0 {
            self.screen = None;
            (self.output.record, self.output.report, self.output.save) = (None, None, None);
        }
        self.process = process;
        Ok(self)
    }

    /// True if this process prints and writes for all ranks.
    pub fn leads(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.position.rank == 0)
    }

    /// Returns the number of ranks on this machine; 1 if the launcher does not say.
    pub fn ranks_here(&self) -> usize {
        let processes = |process: &Process| process.position.local_world_size.unwrap_or(1);
        self.process.as_ref().map_or(self.world_size, processes)
    }

    /// Returns the GFLOP/s that the data sheets promise for the GPUs of all ranks; `None` on the
    /// CPU, and if a data sheet is not known.
    pub fn peak_gflops(&self) -> Option<f64> {
        let are_processes = self.process.is_some();
        self.hardware.peak_gflops(self.world_size, are_processes, self.precision)
    }

    /// True if a validation follows `step`.
    pub fn validates_after(&self, step: u32) -> bool {
        let due = |every| (step + 1).is_multiple_of(every) || step + 1 == self.steps;
        self.corpus.eval_every.is_some_and(due)
    }

    /// Returns the number of tokens in the global batch of one step.
    pub fn tokens_per_step(&self) -> u64 {
        (self.world_size * self.micro_batches * self.batch_size * self.sequence_length) as u64
    }

    /// Describes the device, and the simulated links: between the ranks, to main memory and to
    /// disk.
    pub fn describe_device(&self) -> String {
        let links = [
            ("", &self.link),
            (" to main memory", &self.offload.host_link),
            (" to disk", &self.offload.disk_link),
        ];
        let simulated = links.into_iter().filter_map(|(destination, link)| {
            link.as_ref().map(|link| format!(", simulated link{destination} ({})", link.describe()))
        });
        self.hardware.name().to_string() + &simulated.collect::<String>()
    }

    /// Returns the update of training step `step`, which follows `updates` others, of a loss that
    /// was multiplied by `loss_scale`.
    pub fn update(&self, step: u32, updates: u32, loss_scale: Option<f64>) -> Update {
        Update {
            step,
            updates,
            lr: self.lr_schedule.rate(updates),
            betas: self.betas,
            eps: self.eps,
            bias_correction: self.bias_correction,
            weight_decay: self.weight_decay,
            max_grad_norm: self.max_grad_norm,
            loss_scale,
        }
    }
}

/// Refuses combinations of flags that cannot work.
fn check(args: &TrainArgs) -> Result<()> {
    if !(1..=RANKS).contains(&(args.gpus as u64)) {
        let from = "--gpus, or WORLD_SIZE of a launcher";
        return Err(Failure::usage(format!("{} ranks: a run has 1 to {RANKS} ({from})", args.gpus)));
    }
    if args.corpus.eval_every.is_some() && args.corpus.source.validation == 0.0 {
        return Err(Failure::usage(
            "--eval-every needs data that training does not see: add --val-fraction 0.1",
        ));
    }
    check_threads(args)?;
    check_idle(args)?;
    if let Some(fault) = args.inject.iter().find(|fault| fault.rank >= args.gpus) {
        return Err(Failure::usage(format!(
            "--inject names rank {}, but the ranks are 0 to {}",
            fault.rank,
            args.gpus - 1
        )));
    }
    if let Some(fault) = args.inject.iter().find(|fault| fault.step >= args.training.steps) {
        return Err(Failure::usage(format!(
            "--inject names step {}, but the steps are 0 to {} (--steps)",
            fault.step,
            args.training.steps.saturating_sub(1)
        )));
    }
    Ok(())
}

/// Refuses more threads than one process can have.
fn check_threads(args: &TrainArgs) -> Result<()> {
    let ranks = if args.on_this_machine.is_some() { 1 } else { args.gpus };
    let threads = args.threads.unwrap_or(1);
    if ranks * threads <= THREADS {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--threads {threads} on each of {ranks} ranks makes {} threads, and a process has at most {}\n\
         Give --threads {} or less.",
        grouped((ranks * threads) as u64),
        grouped(THREADS as u64),
        THREADS / ranks
    )))
}

/// Refuses flags that were typed although they change nothing without another one.
fn check_idle(args: &TrainArgs) -> Result<()> {
    let unsaved = args.output.save.is_none();
    let writes = !unsaved || args.output.checkpoint.is_some();
    let weights = "is about saved weights: give --save DIR, too";
    let disk = "is about checkpoints and saved weights: give --checkpoint DIR or --save DIR, too";
    let batches = "is about validation: give --eval-every STEPS, too";
    let idle = [
        ("save_dtype", unsaved, weights),
        ("max_shard_size", unsaved, weights),
        ("checkpoint_timeout", !writes, disk),
        ("eval_batches", args.corpus.eval_every.is_none(), batches),
    ];
    match idle.into_iter().find(|(id, idle, _)| *idle && args.given.typed(id).is_some()) {
        Some((id, _, why)) => Err(Failure::usage(format!("{} {why}", flag_name(id)))),
        None => Ok(()),
    }
}

/// Returns the screen's options; `None` without a terminal or with `--headless`.
fn screen(args: &TrainArgs) -> Option<screen::LiveOptions> {
    let wanted = !args.watching.headless && screen::terminal_available();
    let WatchArgs { paused, pace, view, display, .. } = args.watching;
    wanted.then_some(screen::LiveOptions { paused, pace, view, display })
}

#[cfg(test)]
mod tests;
