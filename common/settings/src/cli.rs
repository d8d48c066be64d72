//! The command line, the same for every stage.

mod help;
#[cfg(test)]
mod tests;
mod train;

use crate::size::{number, whole};
pub use help::{Help, Program};
use train::MOST;
pub use train::RANKS;
pub use train::{
    DataArgs, FormatArgs, MemoryArgs, ModelArgs, OutputArgs, PrecisionArgs, ResumeWith, ShardingArgs,
    TrainArgs, TrainingArgs, WatchArgs, seconds,
};
pub(crate) use train::{LARGEST, SMALLEST};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The device to train on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    /// NVIDIA GPUs if this machine has them and their libraries, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// The transport between the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CollectivesChoice {
    /// Threads share memory; processes use NCCL if they have GPUs, MPI under its own launcher if
    /// this build has it, else TCP.
    #[default]
    Auto,
    /// Threads of one process that share memory.
    Local,
    /// Processes that meet at MASTER_ADDR and MASTER_PORT.
    Tcp,
    /// Processes of an MPI job; needs a build with --features mpi.
    Mpi,
    /// GPUs, of threads or of processes, through NVIDIA's NCCL.
    Nccl,
}

/// How gradients are summed if a rank holds them in full and updates only its slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GradSync {
    /// Each rank receives the slice that it updates.
    #[default]
    ReduceScatter,
    /// Each rank receives everything and uses its slice: the textbook version, to show its cost.
    AllReduce,
}

/// Train a Llama-style transformer on several ranks.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, args_override_self = true)]
pub struct Cli {
    /// The subcommand; without one the program trains.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Training.
    #[command(flatten)]
    pub train: TrainArgs,
}

/// Commands other than training.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sample text from saved weights.
    Generate(GenerateArgs),
    /// Write the weights in a checkpoint in Hugging Face's format.
    Export(ExportArgs),
    /// Explain how a finished run spent its time, and which changes would make it faster.
    Explain {
        /// A file that --report has written.
        report: PathBuf,
    },
    /// Show the libraries that GPUs need to compute, and which of them this machine has.
    Doctor {
        /// Succeed only if this many ranks would run on this machine's GPUs.
        #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=RANKS))]
        gpus: Option<usize>,
    },
    /// Shell completions and manual pages.
    #[command(flatten)]
    Shell(shell::ShellCommand),
}

/// Flags of `export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// Directory of checkpoints (the newest intact one is used), or one checkpoint, such as
    /// kept/step-00000100.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Directory to write; it is replaced atomically, as by --save.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Format of the written weights.
    #[command(flatten)]
    pub format: FormatArgs,
    /// Also write AdamW's moments, in f32: exp_avg.safetensors and exp_avg_sq.safetensors.
    #[arg(long)]
    pub moments: bool,
}

/// Flags of `generate`.
#[derive(Args, Clone, Debug)]
pub struct GenerateArgs {
    /// Directory with saved weights.
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Hugging Face tokenizer; without it the model's own. (Build with --features tokenizers.)
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Text to continue.
    #[arg(long, default_value = "\n")]
    pub prompt: String,
    /// Number of tokens to generate. Each is drawn from the tokens before it, of which the model
    /// sees only the last, up to its maximum sequence length.
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = whole::<usize>(0..=MOST))]
    pub tokens: usize,
    /// Higher is more varied; 0 always takes the most likely token.
    #[arg(long, default_value_t = 0.8, value_parser = number("a number from 0", |x| x >= 0.0 && x.is_finite()))]
    pub temperature: f64,
    /// Seed of the sampling.
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>(0..=u64::MAX))]
    pub seed: u64,
    /// Texts to sample.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = whole::<usize>(1..=MOST))]
    pub samples: usize,
    /// Threads. [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=1024))]
    pub threads: Option<usize>,
}
