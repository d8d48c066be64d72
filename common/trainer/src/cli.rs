//! The command line, the same for every stage.

use crate::communication::CommunicationArgs;
use crate::data::TokenFormat;
use crate::deepspeed::{FileOnly, Given};
use crate::faults::Fault;
use crate::link::{self, LinkChoice};
use crate::size;
use crate::stage::GradSync;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use device::DType;
use model::{Checkpointing, Wrap};
use planner::Strategy;
use std::path::PathBuf;

/// Where to train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// GPUs if this build and this machine have them, else the CPU.
    #[default]
    Auto,
    /// The CPU: ranks are threads.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// How local collectives move data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AlgorithmChoice {
    /// Each rank reads its slice from everybody; sums over a tree, the same bits on every run.
    #[default]
    Direct,
    /// Neighbour to neighbour in a ring, hop by hop.
    Ring,
}

/// What connects the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CollectivesChoice {
    /// Threads share memory; processes use MPI under its own launcher if this build has it, else TCP.
    #[default]
    Auto,
    /// Threads of one process that share memory.
    Local,
    /// Processes that meet at MASTER_ADDR and MASTER_PORT.
    Tcp,
    /// Processes of an MPI job; needs a build with --features mpi.
    Mpi,
}

/// A type of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FloatType {
    /// 32 bits.
    Fp32,
    /// 16 bits: the range of fp32, 8 bits of precision.
    Bf16,
    /// 16 bits: 6e-8 to 65504, 11 bits of precision; the loss is scaled to make use of that range.
    Fp16,
}

impl FloatType {
    /// The element type.
    pub const fn dtype(self) -> DType {
        match self {
            FloatType::Fp32 => DType::F32,
            FloatType::Bf16 => DType::Bf16,
            FloatType::Fp16 => DType::F16,
        }
    }
}

/// Train a Llama-style transformer on several ranks.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, args_override_self = true, version)]
pub struct Cli {
    /// What to do; trains if nothing is given.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Training.
    #[command(flatten)]
    pub train: TrainArgs,
}

/// What else the program does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sample text from saved weights.
    Generate(GenerateArgs),
    /// Say why a finished run was as slow as it was, and what would help.
    Explain(ExplainArgs),
    /// Show what computing on GPUs takes and what of it is here.
    Doctor(DoctorArgs),
}

/// Which run.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// What --report has written.
    pub report: PathBuf,
}

/// Diagnosis flags.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Succeed only if this many ranks would run on this machine's GPUs.
    #[arg(long, value_name = "N")]
    pub gpus: Option<usize>,
}

/// Training flags.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct TrainArgs {
    /// Which of these were typed. First, so that it sees them all.
    #[command(flatten)]
    pub given: Given,
    /// DeepSpeed configuration (JSON), or Accelerate's (YAML); flags override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Show the resolved settings as a DeepSpeed configuration, and stop.
    #[arg(long)]
    pub print_config: bool,
    /// What the file says and no flag can.
    #[arg(skip)]
    pub file_only: FileOnly,
    /// Ranks: GPUs, or threads on the CPU where there is no GPU.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub gpus: usize,
    /// Preset (tiny, small, base, smollm2-135m, tinyllama-1.1b, llama2-7b, …) or a Hugging Face config.json. [default: tiny]
    #[arg(long, value_name = "NAME|FILE")]
    pub model: Option<String>,
    /// Text or binary file to learn; sentences about ranks and shards if none is given.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// What the data file holds.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub data_format: TokenFormat,
    /// Optimizer steps.
    #[arg(long, default_value_t = 300, value_name = "N")]
    pub steps: u32,
    /// Sequences per micro-batch and rank. [default: the model's]
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Tokens per sequence. [default: the model's]
    #[arg(long, value_name = "T")]
    pub seq_len: Option<usize>,
    /// Micro-batches per optimizer step.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub grad_accum: usize,
    /// Peak learning rate.
    #[arg(long, default_value_t = 3e-3)]
    pub lr: f64,
    /// Steps of linear warm-up before the cosine decay to a tenth. [default: a tenth of the steps, at most 100]
    #[arg(long, value_name = "N")]
    pub warmup_steps: Option<u32>,
    /// Decoupled weight decay of matrices.
    #[arg(long, default_value_t = 0.1)]
    pub weight_decay: f32,
    /// Gradients with a larger norm are scaled down to it.
    #[arg(long, default_value_t = 1.0, value_name = "NORM")]
    pub max_grad_norm: f64,
    /// Seed of the initial weights.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Visit the data in a shuffled order.
    #[arg(long, value_name = "SEED")]
    pub shuffle_seed: Option<u64>,
    /// Keep this share of the data, at its end, for validation.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub val_fraction: f64,
    /// Measure the validation loss every so many steps, and at the end.
    #[arg(long, value_name = "STEPS")]
    pub eval_every: Option<u32>,
    /// Validation batches per rank. [default: as many as the validation data hold, at most 20]
    #[arg(long, value_name = "N")]
    pub eval_batches: Option<usize>,
    /// Device to train on.
    #[arg(long, value_enum, default_value_t)]
    pub device: DeviceChoice,
    /// Let products of f32 matrices on GPUs round their operands to TF32: faster, with 11 bits of precision.
    #[arg(long)]
    pub tf32: bool,
    /// Memory that each rank's device has, such as 512MiB. [default: unlimited]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    pub device_memory: Option<u64>,
    /// Start even though the plan says that memory will not do.
    #[arg(long)]
    pub ignore_plan: bool,
    /// Threads per rank. [default: the machine's cores shared out]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// How collectives move data.
    #[arg(long, value_enum, default_value_t)]
    pub algorithm: AlgorithmChoice,
    /// Simulate a link between ranks that are threads: nvlink, pcie4, ethernet25g, or such as 50us,3GB/s.
    #[arg(long, value_parser = link::parse, value_name = "NAME|LATENCY,BANDWIDTH")]
    pub link: Option<LinkChoice>,
    /// What connects the ranks: threads of this process, or processes that a launcher has started.
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    pub collectives: CollectivesChoice,
    /// This process's rank, where no launcher says so; with --gpus and --master.
    #[arg(long, value_name = "R")]
    pub rank: Option<usize>,
    /// Where rank 0 listens. [default: MASTER_ADDR and MASTER_PORT]
    #[arg(long, value_name = "HOST:PORT")]
    pub master: Option<String>,
    /// A log file per rank in this directory: rank-0.log, rank-1.log, …
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Buckets, overlap and prefetch.
    #[command(flatten)]
    pub communication: CommunicationArgs,
    /// What is gathered, reduced and released as one: model, block, module, parameter, or size:N parameters.
    #[arg(long, default_value_t, value_name = "WHAT")]
    pub wrap: Wrap,
    /// How far FSDP shards. [default: the crate's: full-shard in zero3, no-shard in zero0-ddp]
    #[arg(long, value_parser = strategy(), value_name = "HOW")]
    pub strategy: Option<Strategy>,
    /// Hybrid sharding: neighbouring ranks that share one copy of the model states; a divisor of --gpus.
    #[arg(long, value_name = "RANKS")]
    pub shard_group_size: Option<usize>,
    /// Full sharding: neighbouring ranks that share a second copy of the parameters, which backward gathers from (hpZ); a
    /// divisor of --gpus. [default: 1, no such copy]
    #[arg(long, value_name = "RANKS")]
    pub secondary_shard_size: Option<usize>,
    /// What blocks compute again in backward rather than keep: nothing, all but their input, or what is cheap.
    #[arg(long, default_value_t, value_parser = checkpointing(), value_name = "WHAT")]
    pub checkpoint_activations: Checkpointing,
    /// How ZeRO-1 sums gradients.
    #[arg(long, value_enum, value_name = "HOW")]
    pub grad_sync: Option<GradSync>,
    /// Parameters, activations and computation; the optimizer keeps fp32 master weights beside 16-bit ones.
    #[arg(long, value_enum, default_value_t = FloatType::Fp32, value_name = "TYPE")]
    pub precision: FloatType,
    /// Gradients that accumulate until the step. [default: as --precision]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub grad_dtype: Option<FloatType>,
    /// Gradients on the wire; their sum is made in fp32 and rounded once. [default: as --grad-dtype]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub reduce_dtype: Option<FloatType>,
    /// fp16: multiply the loss by this; 0 looks for the largest scale that does not overflow. [default: 0]
    #[arg(long, value_name = "SCALE")]
    pub loss_scale: Option<f64>,
    /// fp16: the first loss scale is 2 to this power. [default: 16]
    #[arg(long, value_name = "POWER")]
    pub initial_scale_power: Option<u32>,
    /// fp16: steps without overflow after which the loss scale doubles. [default: 1000]
    #[arg(long, value_name = "STEPS")]
    pub loss_scale_window: Option<u32>,
    /// fp16: overflows until the loss scale halves. [default: 2]
    #[arg(long, value_name = "N")]
    pub hysteresis: Option<u32>,
    /// fp16: the smallest loss scale; an overflow there ends the run. [default: 1]
    #[arg(long, value_name = "SCALE")]
    pub min_loss_scale: Option<f64>,
    /// Seconds that a rank waits for its peers.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub timeout: u64,
    /// Plain lines instead of the screen.
    #[arg(long)]
    pub headless: bool,
    /// Record the run, for `viz replay`.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Begin with the ranks held, on the screen.
    #[arg(long)]
    pub paused: bool,
    /// Run seconds per real second, from 0.001 to 1, on the screen.
    #[arg(long, default_value_t = 1.0, value_name = "SPEED")]
    pub pace: f64,
    /// First view on the screen.
    #[arg(long, value_enum, default_value_t = viz::View::Overview)]
    pub view: viz::View,
    /// How the screen is drawn.
    #[command(flatten)]
    pub display: viz::DisplayOptions,
    /// Write a JSON report of the run.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Save the weights, in Hugging Face's format.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Start from saved weights, which supply the architecture too.
    #[arg(long, value_name = "DIR")]
    pub init_from: Option<PathBuf>,
    /// Make something fail, such as panic@rank2,step3,backward or overflow@rank1,step5.
    #[arg(long, value_name = "FAULT")]
    pub inject: Vec<Fault>,
}

fn checkpointing() -> impl TypedValueParser<Value = Checkpointing> {
    let words = PossibleValuesParser::new(Checkpointing::ALL.map(Checkpointing::label));
    words.try_map(|word| word.parse::<Checkpointing>())
}

fn strategy() -> impl TypedValueParser<Value = Strategy> {
    let words = PossibleValuesParser::new(Strategy::ALL.map(Strategy::label));
    words.try_map(|word| word.parse::<Strategy>())
}

/// Generation flags.
#[derive(Args, Clone, Debug)]
pub struct GenerateArgs {
    /// Directory with saved weights.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Text to continue.
    #[arg(long, default_value = "\n")]
    pub prompt: String,
    /// Tokens to add.
    #[arg(long, default_value_t = 400, value_name = "N")]
    pub tokens: usize,
    /// Higher is more varied; 0 always takes the likeliest token.
    #[arg(long, default_value_t = 0.8)]
    pub temperature: f64,
    /// Seed of the sampling.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Texts to sample.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub samples: usize,
    /// Threads. [default: the machine's cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}
