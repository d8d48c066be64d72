//! Checks on a machine with a GPU that this workspace computes the same results there as on the
//! CPU.
//!
//! It compares: every kernel on the device with the CPU's, and attention with matrix products;
//! every stage on 1, 2 and 4 ranks with the CPU's losses, the other stages, itself and other
//! wrappings; the same for a model whose heads suit tensor cores; stages that keep states in main
//! memory or on disk with stages that keep them on the GPU; every stage, and groups of neighbours,
//! over NCCL with the same over copies; the ledger with the driver. Each part runs in a process of
//! its own. It needs this program, NVIDIA's driver and the libraries that `doctor` lists, but not
//! Rust.

mod kernels;
mod memory;
mod nccl;
mod offload;
mod parts;
mod training;

use clap::Parser;
use collectives::nccl::allow_sharing;
use device::cuda::{Gpu, GpuInfo, Options, list};
use device::{Device, DeviceError, Ledger};
use events::Emitter;
use parts::{Outcome, Part, Section};
use settings::size::whole;
use std::process::ExitCode;
use std::time::Duration;

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
    /// Tokens of the longest sequences in attention: 333 are several tiles on tensor cores, and a
    /// part of one.
    #[arg(long, default_value_t = 333, value_parser = whole::<usize>(2..=1 << 16))]
    longest: usize,
    /// Largest number of ranks: 1, 2 or 4.
    #[arg(long, default_value_t = 4)]
    ranks: usize,
    /// Seconds that a part may take; then it is killed and has failed.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// Run only the parts whose names contain this; may be repeated.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Run the part of this number in this process, and nothing else.
    #[arg(long, hide = true)]
    part: Option<usize>,
}

impl Arguments {
    /// True if `--only` asks for the part of this name, or is not given.
    fn asks_for(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| part.contains(text))
    }
}

/// The subject of a check, its result, and whether it holds.
struct Finding {
    what: String,
    result: String,
    outcome: Outcome,
}

impl Finding {
    /// Returns the finding of a check that failed to run. Prints the complete reason at once.
    fn failed(what: String, reason: &str) -> Self {
        events::say!("\n{what}: {reason}");
        Finding { what, result: first_line(reason), outcome: Outcome::Fails }
    }

    /// Returns the finding of a check whose requirements are missing. Prints them in full at once.
    fn unchecked(what: String, reason: &str) -> Self {
        events::say!("\n{what}, not checked: {reason}");
        let result = format!("not checked: {}", first_line(reason));
        Finding { what, result, outcome: Outcome::Unchecked }
    }

    /// Returns the finding's table row, with the time that it took.
    fn row(&self, seconds: &str) -> String {
        let Finding { what, result, outcome } = self;
        let verdict = match outcome {
            Outcome::Holds => "ok",
            Outcome::Fails => "FAILED",
            Outcome::Unchecked => "-",
        };
        format!("{what:<62} {result:<54} {seconds:>7} {verdict}")
    }
}

fn main() -> ExitCode {
    let arguments: Arguments = shell::parse();
    // Before the driver is loaded, because it reads variables then.
    allow_sharing();
    let done = match arguments.part {
        Some(number) => run_part(&arguments, number),
        None => examine(&arguments),
    };
    done.unwrap_or_else(|reason| {
        events::complain!(
            "error: {reason}\nThe subcommand doctor of every stage lists what CUDA takes and what is here."
        );
        ExitCode::FAILURE
    })
}

/// Returns the parts that `--only` selects, in order, grouped by the titles of their tables.
fn sections(arguments: &Arguments, bf16: bool) -> Vec<Section<'_>> {
    let mut sections = vec![
        Section { title: "Kernels against the CPU's", parts: kernels::parts(arguments.longest, bf16) },
        Section {
            title: "Tiled attention against matrix products",
            parts: kernels::attention_parts(arguments.longest, bf16),
        },
        Section { title: "The ledger against the driver", parts: vec![Part::new("memory", memory::check)] },
        Section { title: "Stages", parts: training::parts(arguments, bf16) },
        Section { title: "Offload against everything on the GPU", parts: offload::parts(arguments, bf16) },
        Section { title: "Stages over NCCL", parts: nccl::parts(arguments, bf16) },
    ];
    for section in &mut sections {
        section.parts.retain(|part| arguments.asks_for(&part.name));
    }
    sections.retain(|section| !section.parts.is_empty());
    sections
}

/// Runs one part in this process and prints its findings.
fn run_part(arguments: &Arguments, number: usize) -> Result<ExitCode, String> {
    let gpus = list().map_err(in_words)?;
    let bf16 = gpus.first().is_some_and(GpuInfo::has_bf16);
    let mut parts = sections(arguments, bf16).into_iter().flat_map(|section| section.parts);
    let part = parts.nth(number).ok_or_else(|| format!("there is no part {number}"))?;
    Ok(part.run().into())
}

/// Runs each part in a process of its own and reports all outcomes.
fn examine(arguments: &Arguments) -> Result<ExitCode, String> {
    // Opens the GPU to see whether it works, then closes it, so that no part can break a context of
    // this process.
    let info = Gpu::open(0).map_err(in_words)?.info().clone();
    let (major, minor) = info.capability;
    events::say!("{}, compute capability {major}.{minor}, {} bytes of memory", info.name, info.memory);
    let (limit, mut ended) = (Duration::from_secs(arguments.limit), Vec::new());
    let sections = sections(arguments, info.has_bf16());
    if sections.is_empty() {
        return Err(format!("--only {}: no part has such a name", arguments.only.join(" --only ")));
    }
    for Section { title, parts } in sections {
        events::say!("\n{title}\n{}", "─".repeat(132));
        for part in parts {
            ended.push((part.run_apart(ended.len(), limit), part.name));
        }
    }
    Ok(verdict(&ended))
}

/// Prints the outcome of all parts.
fn verdict(ended: &[(Outcome, String)]) -> ExitCode {
    let names = |outcome| -> Vec<&str> {
        let those = ended.iter().filter(|(came, _)| *came == outcome);
        those.map(|(_, name)| name.as_str()).collect()
    };
    let (failed, unchecked) = (names(Outcome::Fails), names(Outcome::Unchecked));
    let held = match (failed.len(), unchecked.len()) {
        (0, 0) => "Everything holds.".into(),
        (0, _) => "Everything that was checked holds.".into(),
        (count, _) => format!("{count} of {} parts failed: {}.", ended.len(), failed.join("; ")),
    };
    let left_out = match unchecked.len() {
        0 => String::new(),
        _ => format!(" Not checked: {}.", unchecked.join("; ")),
    };
    events::say!("\n{held}{left_out}");
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a device for a rank of its own on the first GPU that prints nothing.
fn rank(options: Options) -> device::Result<Device> {
    Device::cuda(Ledger::new(Emitter::silent(0), None), Gpu::open(0)?, options)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().into()
}

fn in_words(error: DeviceError) -> String {
    error.to_string()
}
