//! Shows when offloading the optimizer states to main memory pays off: the time on the bus compared
//! with the time to compute.

use crate::learn::figure::{crossing, seconds, waited_for_crossings};
use crate::learn::runs::{Run, Runs};
use events::say::grouped;
use events::{Place, Route};
use prediction::{Job, Placement, Recipe, Stage, predict};
use shell::table::{Format, Table};
use trainer::{Failure, Result};

/// FLOP/s that the book assumes for one GPU: about two fifths of an H100's peak in bf16.
pub(super) const COMPUTE: f64 = 400e12;
/// Bytes per second of main memory for each GPU: one channel of DDR4-3200, of which a processor
/// has eight.
const MEMORY: f64 = 25.6e9;

/// Bytes that the CPU's update reads and writes per parameter in the recipe `mixed`: three states
/// there and back, the gradient once, the parameter once.
const TOUCHED: f64 = 2.0 * 12.0 + 2.0 + 2.0;

/// Tokens of a rank's micro-batch, many and few, and the corresponding flags.
const BATCHES: [(&str, &str); 2] = [("16 × 128", "--batch-size 16"), ("1 × 8", "--batch-size 1 --seq-len 8")];
/// A fast and a slow link to main memory.
const LINKS: [&str; 2] = ["pcie4", "1ms,20MB/s"];

/// Returns a table of the bus's time for a step, and whether a rank waits for it most of the step.
pub(super) fn measured(runs: &Runs) -> Result<String> {
    let mut table = Table::prose(["tokens per rank", "--host-link", "a step's transfers", "a rank waits"]);
    for ((tokens, batch), link) in BATCHES.into_iter().flat_map(|batch| LINKS.map(|link| (batch, link))) {
        let flags = format!(
            "--gpus 2 --steps 1 --headless --threads 1 --precision bf16 --offload-optimizer cpu --host-link {link} {batch}"
        );
        let report = runs.report(&Run::new(Stage::Zero2, &flags))?;
        let waits = waited_for_crossings(&report) / seconds(&report);
        let waits = if waits < 0.5 { "less than half of a step" } else { "more than half of a step" };
        table.row(tokens, [link.to_string(), format!("{:.1} ms", crossing(&report) * 1e3), waits.into()]);
    }
    Ok(table.render(Format::Markdown))
}

/// Returns a table with a row per link to main memory: the time of a step of Llama-2-7B on eight
/// GPUs, and the number of tokens for which a GPU computes equally long.
pub(super) fn break_even() -> Result<String> {
    let config = stages::config("--model llama2-7b")?.model;
    let placement = Placement { optimizer: Place::Host, ..Placement::default() };
    let job = Job { recipe: Recipe::MIXED, placement, ..Job::new(config, Stage::Zero2, 8) };
    let prediction = predict(&job).map_err(Failure::run)?;
    let moved = prediction.ranks[0].transfers.step;
    let slice: u64 = prediction.units.iter().map(|unit| unit.padded / 8).sum();
    let update = slice as f64 * TOUCHED / MEMORY;
    let flops = job.config.flops_per_token(job.tokens) as f64;
    let columns = ["bytes", "time on it", "in tokens", "the CPU's update", "in tokens"];
    let mut table = Table::numbers("--host-link", columns);
    for name in ["pcie3", "pcie4", "pcie5", "nvlink-c2c"] {
        let flags = format!("--precision bf16 --offload-optimizer cpu --host-link {name}");
        let link = stages::config(&flags)?.offload.host_link.ok_or_else(|| Failure::run(flags))?.link;
        let (down, up) = (Route::DeviceToHost, Route::HostToDevice);
        let (bytes, calls) = (moved.bytes(down) + moved.bytes(up), moved.calls(down) + moved.calls(up));
        let crossing = calls as f64 * link.latency.as_secs_f64() + bytes as f64 / link.bandwidth;
        let tokens = |seconds: f64| grouped((seconds * COMPUTE / flops).ceil() as u64);
        table.row(
            name,
            [
                grouped(bytes),
                format!("{:.0} ms", crossing * 1e3),
                tokens(crossing),
                format!("{:.0} ms", update * 1e3),
                tokens(update),
            ],
        );
    }
    let (compute, memory) = (COMPUTE / 1e12, MEMORY / 1e9);
    let note = format!("Estimated with {compute} TFLOP/s and {memory} GB/s of main memory for each GPU.");
    Ok(format!("{}\n{note}", table.render(Format::Markdown)))
}
