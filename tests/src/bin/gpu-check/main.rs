//! One command for a machine with a GPU: whether this workspace computes there what it computes on the CPU.
//!
//! Every kernel on the device against the CPU's, and attention against itself by matrix products; every stage on 1, 2 and 4
//! ranks against the CPU's losses, against the other stages, against itself and against other wrappings; the same of a model whose
//! heads tensor cores take; every stage over NCCL against the same over copies; the ledger against the driver. Needs this program, NVIDIA's driver and the libraries that `doctor` lists; no Rust.

mod kernels;
mod memory;
mod nccl;
mod training;

use clap::Parser;
use device::cuda::{Gpu, Options};
use device::{Device, DeviceError, Ledger};
use events::Emitter;
use std::process::ExitCode;
use trainer::hardware::allow_sharing;

/// Check kernels, stages and memory on a GPU against the CPU.
#[derive(Parser)]
struct Arguments {
    /// Preset or config.json to train.
    #[arg(long, default_value = "tiny")]
    model: String,
    /// Optimizer steps per run.
    #[arg(long, default_value_t = 50)]
    steps: u32,
    /// Sequences per step, over all ranks; a multiple of 4.
    #[arg(long, default_value_t = 16)]
    sequences: usize,
    /// Tokens per sequence.
    #[arg(long, default_value_t = 64)]
    seq_len: usize,
    /// Tokens of the longest sequences in attention: 333 are several tiles on tensor cores, and a part of one.
    #[arg(long, default_value_t = 333)]
    longest: usize,
    /// Largest number of ranks: 1, 2 or 4.
    #[arg(long, default_value_t = 4)]
    ranks: usize,
}

/// What was checked, with what came out, and whether that is as it should be.
struct Finding {
    what: String,
    result: String,
    holds: bool,
}

impl Finding {
    /// Something that could not be checked, since it failed; says why at once, and whole.
    fn failed(what: String, reason: &str) -> Self {
        events::say!("\n{what}: {reason}");
        Finding { what, result: reason.lines().next().unwrap_or_default().into(), holds: false }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match examine(&arguments) {
        Ok(0) => {
            events::say!("\nEverything holds.");
            ExitCode::SUCCESS
        }
        Ok(failed) => {
            events::say!("\n{failed} checks failed.");
            ExitCode::FAILURE
        }
        Err(reason) => {
            events::complain!(
                "error: {reason}\nThe subcommand doctor of every stage lists what CUDA takes and what is here."
            );
            ExitCode::FAILURE
        }
    }
}

/// Runs all checks and prints them; how many failed.
fn examine(arguments: &Arguments) -> Result<usize, String> {
    let in_words = |error: DeviceError| error.to_string();
    // Before the driver is loaded: it reads variables then.
    allow_sharing();
    let gpu = Gpu::open(0).map_err(in_words)?;
    let info = gpu.info();
    let (major, minor) = info.capability;
    events::say!("{}, compute capability {major}.{minor}, {} bytes of memory", info.name, info.memory);
    let ledger = || Ledger::new(Emitter::silent(0), None);
    let rank_with = |options| Device::cuda(ledger(), gpu.clone(), options).map_err(in_words);
    let rank = || rank_with(Options::default());
    let by_products = rank_with(Options { attention_by_products: true, ..Options::default() })?;
    let cpu = Device::cpu(ledger(), 1);
    let mut failed = show(
        "Kernels against the CPU's",
        &kernels::check((&cpu, &rank()?), arguments.longest, info.has_bf16()),
    );
    failed += show(
        "Tiled attention against matrix products",
        &kernels::check_attention((&by_products, &rank()?), arguments.longest, info.has_bf16()),
    );
    // A rank of its own: nothing is kept for reuse yet.
    let memory = memory::check(&rank()?)
        .unwrap_or_else(|error| vec![Finding::failed("memory".into(), &error.to_string())]);
    failed += show("The ledger against the driver", &memory);
    failed += show("Stages", &training::check(arguments, info.has_bf16()));
    failed += show("Stages over NCCL", &nccl::check(arguments, info.has_bf16()));
    Ok(failed)
}

/// Prints findings as a table; how many do not hold.
fn show(title: &str, findings: &[Finding]) -> usize {
    events::say!("\n{title}\n{}", "─".repeat(124));
    for Finding { what, result, holds } in findings {
        events::say!("{what:<62} {result:<54} {}", if *holds { "ok" } else { "FAILED" });
    }
    findings.iter().filter(|finding| !finding.holds).count()
}
