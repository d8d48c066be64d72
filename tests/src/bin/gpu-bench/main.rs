//! A benchmark for a machine with a GPU: this workspace's training speed there, compared with
//! PyTorch in the same run, and how close each kind of kernel comes to its limit.
//!
//! Prints Markdown for `docs/measurements.md`. Needs this program, NVIDIA's driver, the libraries
//! that `doctor` lists and, for the comparison, a Python with PyTorch. It does not need Rust.

mod collectives;
mod kinds;
mod peer;
mod speed;

use clap::Parser;
use device::cuda::{Gpu, Library, Options, list};
use device::{Class, DType, Device, DeviceError, Ledger};
use events::Emitter;
use peer::Opponent;
use prediction::Stage;
use settings::Config;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;
use tests::median;

/// The list of measurements, for users without a GPU.
const WOULD: &str = "With a GPU it would measure: tokens per second of each stage on one rank and of PyTorch (FSDP2 over one rank, \
                     torch.compile, fused attention and AdamW; rounds alternate), the share of the GPU's peak, time by kind of \
                     kernel with the share of its limit, and local collectives of several ranks on one GPU.";

/// Measure speed on a GPU and compare it with PyTorch.
#[derive(Parser)]
struct Arguments {
    /// Preset or config.json to train.
    #[arg(long, default_value = "tinyllama-1.1b")]
    model: String,
    /// Stages to train on one rank; micro-batches are tried with the first. Each adds a run per
    /// round: zero3,ddp
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Stage::Zero3])]
    stages: Vec<Stage>,
    /// fp32, bf16 or fp16.
    #[arg(long, default_value = "bf16")]
    precision: String,
    /// Tokens per sequence.
    #[arg(long, default_value_t = 2048)]
    seq_len: usize,
    /// Sequences per step to try, ascending; the fastest is taken. PyTorch compiles for each, a
    /// minute or more: 4,8,16,24,32
    #[arg(long, value_delimiter = ',', default_value = "8,16")]
    micro_batches: Vec<usize>,
    /// Timed steps per round, after two untimed ones.
    #[arg(long, default_value_t = 10)]
    steps: u32,
    /// Rounds; in each, every contender has a turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Further flags for our stages, in one word: "--checkpoint-activations selective".
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    with: String,
    /// The Python that has PyTorch.
    #[arg(long, default_value = "python3")]
    python: String,
    /// Leave PyTorch out.
    #[arg(long)]
    no_peer: bool,
    /// Further arguments for PyTorch's side: "--offload" (all states in main memory), "--deepspeed"
    /// (its ZeRO-2, the optimizer in main memory), "--device cpu --no-compile".
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    peer_with: String,
    /// Seconds that PyTorch may take for one answer; compiling a large model takes minutes.
    #[arg(long, default_value_t = 240)]
    peer_timeout: u64,
    /// The GPU's peak in TFLOP/s at this precision, dense, if its data sheet is not known.
    #[arg(long)]
    peak: Option<f64>,
    /// Ranks on the one GPU for collectives.
    #[arg(long, value_delimiter = ',', default_value = "2,4")]
    ranks: Vec<u32>,
    /// Bytes of the buffers that are copied and communicated: more than caches hold.
    #[arg(long, default_value_t = 256 << 20)]
    buffer_bytes: usize,
}

impl Arguments {
    /// Returns the configuration of `steps` timed steps on one rank. Its weights are neither
    /// gathered nor hashed.
    fn run(&self, micro_batch: usize, steps: u32) -> trainer::Result<Config> {
        let Arguments { model, precision, seq_len, with, .. } = self;
        let flags = format!(
            "--model {model} --gpus 1 --device cuda --precision {precision} --seq-len {seq_len} \
             --batch-size {micro_batch} --steps {} --headless {with}",
            WARMUP + steps
        );
        Ok(Config { hashed: false, ..stages::config(&flags)? })
    }

    /// Returns the GPU's nominal TFLOP/s at this precision.
    ///
    /// # Errors
    /// If its data sheet is unknown and `--peak` is not given.
    fn peak(&self) -> Result<f64, String> {
        let config = self.run(1, 1).map_err(|failure| failure.to_string())?;
        let sheet = || Some(config.peak_gflops()? / 1e3);
        self.peak.or_else(sheet).ok_or_else(|| {
            let name = config.hardware.name();
            format!("the data sheet of {name} is not known here: give its peak in TFLOP/s with --peak")
        })
    }
}

/// Untimed steps of a round, in which memory is allocated, plans are made and machine code is
/// loaded.
const WARMUP: u32 = 2;

fn main() -> ExitCode {
    let arguments: Arguments = shell::parse();
    if let Err(error) = ready() {
        events::complain!(
            "error: {error}\n{WOULD}\nThe subcommand doctor of every stage lists what is here."
        );
        return ExitCode::from(2);
    }
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            events::complain!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Takes all measurements and prints each one when it is done.
fn measure(arguments: &Arguments) -> Result<(), String> {
    let words = |error: DeviceError| error.to_string();
    let peak = arguments.peak()?;
    events::say!("## Speed on one GPU\n\n{}", heading().map_err(words)?);
    // Held to the end. Otherwise the driver would destroy its context between runs and create it
    // again.
    let gpu = Gpu::open(0).map_err(words)?;
    let copies = copy_bandwidth(&gpu, arguments.buffer_bytes).map_err(words)?;
    events::say!("Its own copies: {:.0} GB/s, read plus written.\n", copies / 1e9);
    // Started first, so that its model states are on the GPU while the others train.
    let mut peer = Opponent::start(arguments);
    let best = speed::best(arguments)?;
    // Printed before PyTorch compiles, in case compilation never ends.
    kinds::table(arguments, best, (peak, copies))?;
    collectives::table(&gpu, &arguments.ranks, arguments.buffer_bytes, copies)?;
    speed::compare(arguments, best, peak, &mut peer)?;
    peer.lost.map_or(Ok(()), |reason| Err(format!("PyTorch did not take part to the end: {reason}")))
}

/// Fails unless this machine has everything that computing on a GPU needs.
fn ready() -> device::Result<()> {
    if list()?.is_empty() {
        let reason = "the driver reports no GPU".into();
        return Err(DeviceError::Cuda { call: "cuDeviceGetCount", reason });
    }
    Library::ALL.iter().try_for_each(|library| library.require())
}

/// Returns the date, the GPU and the libraries.
fn heading() -> Result<String, DeviceError> {
    let gpu = &list()?[0];
    let (major, minor) = gpu.capability;
    let library = |library: Library| library.version().unwrap_or_else(|| "of unknown version".into());
    Ok(format!(
        "{}, {} (compute capability {major}.{minor}, {} bytes), driver {}, NVRTC {}, cuBLASLt {}. \
         `gpu-bench {}`.\n",
        today(),
        gpu.name,
        gpu.memory,
        library(Library::Driver),
        library(Library::Nvrtc),
        library(Library::CublasLt),
        std::env::args().skip(1).collect::<Vec<_>>().join(" "),
    ))
}

/// Returns the date in UTC, as 2026-11-21.
fn today() -> String {
    let date = Command::new("date").args(["-u", "+%F"]).output();
    date.map_or("undated".into(), |date| String::from_utf8_lossy(&date.stdout).trim().into())
}

/// Returns a device for a rank of its own on `gpu` that prints nothing.
fn rank(gpu: &Arc<Gpu>) -> device::Result<Device> {
    Device::cuda(Ledger::new(Emitter::silent(0), None), gpu.clone(), Options::default())
}

/// Returns the median rate of copies within the GPU's memory, in bytes per second, read plus
/// written.
fn copy_bandwidth(gpu: &Arc<Gpu>, bytes: usize) -> device::Result<f64> {
    let (device, len) = (rank(gpu)?, bytes / 4);
    let from = device.zeros(Class::Workspace, DType::F32, len)?;
    let mut to = device.zeros(Class::Workspace, DType::F32, len)?;
    let mut speeds = Vec::new();
    for _ in 0..8 {
        device.synchronize()?;
        let started = Instant::now();
        for _ in 0..REPEATS {
            device.kernels().copy(to.view_mut(), from.view())?;
        }
        device.synchronize()?;
        speeds.push((8 * len * REPEATS) as f64 / started.elapsed().as_secs_f64());
    }
    Ok(median(&speeds))
}

/// Number of copies, or collectives, that are queued before the clock is read.
const REPEATS: usize = 10;
