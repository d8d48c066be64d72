//! The flags of training, by subject, in the order of the help text.

use super::{CollectivesChoice, DeviceChoice, GradSync};
use crate::communication::CommunicationArgs;
use crate::data::DataSource;
use crate::fault::Fault;
use crate::file::FileOnly;
use crate::float_type::{self, PrecisionName};
use crate::given::Given;
use crate::link::{self, LinkChoice};
use crate::offload::OffloadArgs;
use crate::size::{self, number, whole};
use checkpoint::{ElementType, Format};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args};
use device::DType;
use model::{Checkpointing, Wrap};
use prediction::{Algorithm, Strategy};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of ranks of a run, over all its processes.
pub const RANKS: u64 = 1024;
/// The limit of numbers without a limit of their own.
pub(super) const MOST: u64 = u32::MAX as u64;
const POSITIVE: &str = "a number above 0";
/// The largest loss scale: any f16 gradient overflows under it.
pub(crate) const LARGEST: f64 = (1u128 << 64) as f64;
/// The smallest loss scale: gradients are divided by it in f32, which has no number above 2^128.
pub(crate) const SMALLEST: f64 = 1.0 / LARGEST;

/// Training flags. Those outside the groups come first: clap lists a flag that follows a group
/// under the group's heading.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Ranks and devices")]
pub struct TrainArgs {
    /// Which flags were typed. It comes first, so that it sees all of them.
    #[command(flatten)]
    pub given: Given,
    /// Settings of the configuration file that have no flag.
    #[arg(skip)]
    pub file_only: FileOnly,
    /// Number of ranks. They are spread over the GPUs; without a GPU they compute on the CPU.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = whole::<usize>(1..=RANKS))]
    pub gpus: usize,
    /// Device to train on.
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceChoice,
    /// Threads per rank. [default: the machine's cores divided by the ranks]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=1024))]
    pub threads: Option<usize>,
    /// Let products of f32 matrices on GPUs round their operands to TF32: faster, with 11 bits of
    /// precision.
    #[arg(long)]
    pub tf32: bool,
    /// Transport between the ranks: threads of this process, or processes that a launcher has
    /// started.
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    pub collectives: CollectivesChoice,
    /// How collectives between threads move data.
    #[arg(long, value_enum, default_value_t)]
    pub algorithm: Algorithm,
    /// Simulate a link between ranks that are threads: nvlink, pcie4, ethernet25g, or figures such
    /// as 50us,3GB/s.
    #[arg(long, value_parser = link::parse, value_name = "NAME|LATENCY,BANDWIDTH")]
    pub link: Option<LinkChoice>,
    /// Number of ranks on this machine; `None` if no launcher gives it.
    #[arg(skip)]
    pub on_this_machine: Option<usize>,
    /// This process's rank, without a launcher; needs --gpus and --master.
    #[arg(long, value_name = "R", value_parser = whole::<usize>(0..=RANKS - 1))]
    pub rank: Option<usize>,
    /// Address at which rank 0 listens. [default: MASTER_ADDR and MASTER_PORT]
    #[arg(long, value_name = "HOST:PORT")]
    pub master: Option<String>,
    /// Seconds that a rank waits for its peers.
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Duration,
    /// The model.
    #[command(flatten)]
    pub architecture: ModelArgs,
    /// The data.
    #[command(flatten)]
    pub corpus: DataArgs,
    /// The optimizer's steps.
    #[command(flatten)]
    pub training: TrainingArgs,
    /// Element types.
    #[command(flatten)]
    pub types: PrecisionArgs,
    /// How model states are sharded.
    #[command(flatten)]
    pub sharding: ShardingArgs,
    /// Memory of a rank.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Where states are stored that are offloaded.
    #[command(flatten)]
    pub offload: OffloadArgs,
    /// Buckets, overlap and prefetch.
    #[command(flatten)]
    pub communication: CommunicationArgs,
    /// How the run is watched.
    #[command(flatten)]
    pub watching: WatchArgs,
    /// Files that the run writes.
    #[command(flatten)]
    pub output: OutputArgs,
    /// DeepSpeed configuration (JSON), or Accelerate's (YAML), FSDP's keys included; flags override
    /// it.
    #[arg(long, value_name = "FILE", help_heading = "Configuration files")]
    pub config: Option<PathBuf>,
    /// Print the resolved settings as a DeepSpeed configuration, and exit.
    #[arg(long, help_heading = "Configuration files")]
    pub print_config: bool,
    /// Inject a fault; may be repeated. Reported by a rank: panic, error or
    /// stall@rank2,step3,backward; overflow or skip@rank1,step5; seed@rank3;
    /// out-of-memory@rank1,allocation17; with offload to disk, disk-error, disk-full or
    /// disk-hang@rank1,step2. Silent, in one step: nan@rank1,step5. Silent, from that step on:
    /// stale, divisor, data, drop or slow@rank1,step5; seed@rank3,step0.
    #[arg(long, value_name = "FAULT", help_heading = "Failures on demand")]
    pub inject: Vec<Fault>,
}

/// Flags about the model.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Preset (tiny, small, base, smollm2-135m, tinyllama-1.1b, llama2-7b, …) or a Hugging Face
    /// config.json. [default: that of the checkpoint to resume, else tiny]
    #[arg(long, value_name = "NAME|FILE")]
    pub model: Option<String>,
    /// Start from saved weights, which supply the architecture too.
    #[arg(long, value_name = "DIR")]
    pub init_from: Option<PathBuf>,
    /// Seed of the initial weights.
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>(0..=u64::MAX))]
    pub seed: u64,
}

/// Flags about the data.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Data")]
pub struct DataArgs {
    /// Where tokens come from.
    #[command(flatten)]
    pub source: DataSource,

    /// Measure the validation loss every STEPS steps, and at the end.
    #[arg(long, value_name = "STEPS", value_parser = whole::<u32>(1..=MOST))]
    pub eval_every: Option<u32>,
    /// Validation batches per rank, at most as many as the validation data have. [default: 20]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MOST))]
    pub eval_batches: Option<usize>,
}

/// Flags about the optimizer's steps.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Training")]
pub struct TrainingArgs {
    /// Optimizer steps.
    #[arg(long, default_value_t = 300, value_name = "N", value_parser = whole::<u32>(1..=MOST))]
    pub steps: u32,
    /// Sequences per micro-batch and rank. [default: a preset's own; else 1]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MOST))]
    pub batch_size: Option<usize>,
    /// Tokens per sequence. [default: the model's]
    #[arg(long, value_name = "T", value_parser = whole::<usize>(1..=MOST))]
    pub seq_len: Option<usize>,
    /// Micro-batches per optimizer step.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole::<usize>(1..=prediction::invalid::MOST as u64))]
    pub grad_accum: usize,
    /// Peak learning rate. The default suits small models trained from scratch; fine-tuning needs
    /// less, such as 2e-5.
    #[arg(long, default_value_t = 3e-3, value_name = "RATE", value_parser = number("a number above 0 that f32 holds", |x| x > 0.0 && x <= f32::MAX.into()))]
    pub lr: f64,
    /// Steps of linear warm-up; then the rate decays along a cosine to a tenth of its peak. With
    /// more than --steps, the peak is never reached. [default: a tenth of the steps, at most 100]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0..=MOST))]
    pub warmup_steps: Option<u32>,
    /// Decoupled weight decay of matrices.
    #[arg(long, default_value_t = 0.1, value_name = "DECAY", value_parser = number("a number from 0 up to, not including, 1", |x| (0.0..1.0).contains(&x)))]
    pub weight_decay: f64,
    /// Gradients with a larger norm are scaled down to it.
    #[arg(long, default_value_t = 1.0, value_name = "NORM", value_parser = number(POSITIVE, |x| x > 0.0 && x.is_finite()))]
    pub max_grad_norm: f64,
}

/// Flags about element types and the loss's scale.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Precision")]
pub struct PrecisionArgs {
    /// Parameters, activations and computation; for 16-bit weights the optimizer keeps fp32 master
    /// weights. autocast: fp32, rounded to bf16 where projections multiply.
    #[arg(long, value_enum, default_value_t = PrecisionName::Fp32, value_name = "TYPE")]
    pub precision: PrecisionName,
    /// Gradients that accumulate until the step. [default: as --precision]
    #[arg(long, value_parser = float_type::parser(), value_name = "TYPE")]
    pub grad_dtype: Option<DType>,
    /// Gradients on the wire; a collective sums them in fp32 and rounds once. [default: as
    /// --grad-dtype]
    #[arg(long, value_parser = float_type::parser(), value_name = "TYPE")]
    pub reduce_dtype: Option<DType>,
    /// fp16: multiply the loss by this; 0 searches for the largest scale that does not overflow.
    /// [default: 0]
    #[arg(long, value_name = "SCALE", value_parser = number("0 (dynamic), or a number from 2^-64 up to 2^64", |x| x == 0.0 || (SMALLEST..=LARGEST).contains(&x)))]
    pub loss_scale: Option<f64>,
    /// fp16: the initial loss scale is 2 to this power. [default: 16]
    #[arg(long, value_name = "POWER", value_parser = whole::<u32>(0..=64))]
    pub initial_scale_power: Option<u32>,
    /// fp16: steps without overflow after which the loss scale doubles. [default: 1000]
    #[arg(long, value_name = "STEPS", value_parser = whole::<u32>(1..=MOST))]
    pub loss_scale_window: Option<u32>,
    /// fp16: overflows until the loss scale halves. [default: 2]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=MOST))]
    pub hysteresis: Option<u32>,
    /// fp16: one step without overflow resets the count of overflows; if false, a whole window
    /// does. [default: false]
    #[arg(long, action = ArgAction::Set, value_name = "true|false", hide_possible_values = true)]
    pub consecutive_hysteresis: Option<bool>,
    /// fp16: the smallest loss scale; an overflow there ends the run. [default: 1]
    #[arg(long, value_name = "SCALE", value_parser = number("a number from 2^-64 up to 2^64", |x| (SMALLEST..=LARGEST).contains(&x)))]
    pub min_loss_scale: Option<f64>,
}

/// Flags about sharding.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Sharding")]
pub struct ShardingArgs {
    /// How far FSDP shards. [default: the crate's: full-shard in zero3, no-shard in zero0-ddp]
    #[arg(long, value_parser = strategy(), value_name = "HOW")]
    pub strategy: Option<Strategy>,
    /// Hybrid sharding: neighbouring ranks that share one copy of the model states; a divisor of
    /// --gpus.
    #[arg(long, value_name = "RANKS", value_parser = whole::<usize>(1..=RANKS))]
    pub shard_group_size: Option<usize>,
    /// Full sharding: neighbouring ranks that share a second copy of the parameters, from which
    /// backward gathers (hpZ); a divisor of --gpus. [default: 1, no such copy]
    #[arg(long, value_name = "RANKS", value_parser = whole::<usize>(1..=RANKS))]
    pub secondary_shard_size: Option<usize>,
    /// Unit that is gathered, reduced and released as one: model, block, module, parameter, or
    /// size:N parameters.
    #[arg(long, default_value_t, value_name = "WHAT")]
    pub wrap: Wrap,
    /// How ZeRO-1 sums gradients. [default: reduce-scatter]
    #[arg(long, value_enum, value_name = "HOW")]
    pub grad_sync: Option<GradSync>,
}

/// Flags about memory.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Memory")]
pub struct MemoryArgs {
    /// Memory of each rank's device, such as 512MiB. [default: unlimited]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub device_memory: Option<u64>,
    /// Main memory of each rank, for states stored in it and buffers that pass through it.
    /// [default: unlimited]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub host_memory: Option<u64>,
    /// Start even if the predicted peak exceeds the memory.
    #[arg(long)]
    pub ignore_plan: bool,
    /// Activations that each block recomputes in backward: none; block (all, keeping only the
    /// block's input); selective (the cheap ones).
    #[arg(long, default_value_t, value_parser = checkpointing(), value_name = "WHAT")]
    pub checkpoint_activations: Checkpointing,
}

/// Flags about watching a run.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Watching")]
pub struct WatchArgs {
    /// Print plain lines instead of the screen.
    #[arg(long)]
    pub headless: bool,
    /// First view on the screen.
    #[arg(long, value_enum, default_value_t = screen::View::Overview, conflicts_with = "headless")]
    pub view: screen::View,
    /// Start with the ranks paused, on the screen.
    #[arg(long, conflicts_with = "headless")]
    pub paused: bool,
    /// Speed of the run on the screen, from 0.001 to 1; 0.1 is ten times slower.
    #[arg(long, default_value_t = 1.0, conflicts_with = "headless", value_name = "SPEED", value_parser = number("a number from 0.001 to 1", |x| (0.001..=1.0).contains(&x)))]
    pub pace: f64,
    /// Emit each rank's own metrics of a step before anything is summed: its loss, its gradients'
    /// norm, a fingerprint of its parameters, its waits. For the compare view and recordings; fp32
    /// only.
    #[arg(long)]
    pub contributions: bool,
    /// How the screen draws.
    #[command(flatten)]
    pub display: screen::DisplayOptions,
}

/// Flags about saved weights.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq)]
pub struct FormatArgs {
    /// Type of saved weights: f32, bf16, f16; rounded to the nearest. [default: that of the weights
    /// of --init-from, else f32]
    #[arg(long, value_name = "TYPE")]
    pub save_dtype: Option<ElementType>,
    /// Save weights in files with at most SIZE bytes of tensors, such as 5GB, and an index.
    /// [default: one file]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub max_shard_size: Option<u64>,
}

impl FormatArgs {
    /// Returns the format that the flags ask for, with weights of type `usual` if they name no
    /// type.
    pub fn format(self, usual: Option<ElementType>) -> Format {
        Format { element_type: self.save_dtype.or(usual), max_shard: self.max_shard_size, moments: false }
    }
}

/// Flags about the files that a run writes.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Save the weights, in Hugging Face's format.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// How saved weights are written.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Save a checkpoint in this directory at the end; resume from the newest that is there.
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Also save one every STEPS steps, while training continues.
    #[arg(long, requires = "checkpoint", value_name = "STEPS", value_parser = whole::<u32>(1..=MOST))]
    pub checkpoint_every: Option<u32>,
    /// Pause training until each checkpoint is on the disk.
    #[arg(long, requires = "checkpoint")]
    pub checkpoint_wait: bool,
    /// Number of checkpoints to keep.
    #[arg(long, requires = "checkpoint", value_name = "K", default_value_t = 2, value_parser = whole::<usize>(1..=MOST))]
    pub checkpoint_keep: usize,
    /// Give up a checkpoint, or a tensor of saved weights, that the disk has not written after
    /// SECONDS.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub checkpoint_timeout: Duration,
    /// Settings that may differ from the run that wrote the checkpoint.
    #[arg(long, requires = "checkpoint", value_name = "WHAT,…", value_enum, value_delimiter = ',')]
    pub resume_with: Vec<ResumeWith>,
    /// Write a JSON report of the run, also if it fails.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write a row per step during the run: JSON lines, or CSV if the name ends in .csv.
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Print a line every N steps. [default: about 30 lines, and one every ten seconds]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=MOST))]
    pub log_every: Option<u32>,
    /// Record the run, for `viz replay`: in FILE.partial until it ends.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write a log file per rank in this directory: rank-0.log, rank-1.log, …
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
}

/// A setting that may be allowed to differ from the run that wrote a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ResumeWith {
    /// The learning rate, its schedule, and AdamW's other constants.
    Lr,
    /// The number of steps, over which the built-in schedule decays.
    Steps,
    /// The tokens: longer data, or other ones.
    Data,
    /// The order in which they are read.
    Order,
    /// The element types.
    Precision,
    /// The tokens of a step, and the length of its sequences.
    Batch,
    /// The norm to which gradients are clipped.
    Clipping,
}

/// Reads a whole number of seconds from 1 on.
///
/// # Errors
/// A sentence that says what is allowed.
pub fn seconds(text: &str) -> Result<Duration, String> {
    whole(1..=MOST)(text).map(Duration::from_secs)
}

fn checkpointing() -> impl TypedValueParser<Value = Checkpointing> {
    let words = PossibleValuesParser::new(Checkpointing::ALL.map(Checkpointing::label));
    words.try_map(|word| word.parse::<Checkpointing>())
}

fn strategy() -> impl TypedValueParser<Value = Strategy> {
    let words = PossibleValuesParser::new(Strategy::ALL.map(Strategy::label));
    words.try_map(|word| word.parse::<Strategy>())
}
