//! The disk bandwidth that training requires, after Rajbhandari et al., "ZeRO-Infinity", 2021,
//! section 4, and the read time that staging buffers hide.

use super::bus::COMPUTE;
use crate::learn::figure::time_on;
use crate::learn::runs::{Run, Runs};
use events::say::grouped;
use events::{Class, Place, Route};
use prediction::{Job, Placement, Recipe, Stage, predict};
use shell::table::{Format, Table};
use trainer::{Failure, Report, Result};

/// FLOP/s that the paper assumes as the maximum of a V100.
const PAPER: f64 = 70e12;
/// The paper's tokens per sequence and GPU.
const TOKENS: f64 = 1024.0;
/// Width of one of the paper's models.
const WIDTH: f64 = 2048.0;

/// The flags of a run with a disk that is slow compared to the short computation, except for the
/// number of staging buffers.
const SLOW_DISK: &str = "--gpus 2 --steps 1 --batch-size 1 --seq-len 8 --headless --threads 1 --precision bf16 \
                         --offload-optimizer disk --disk-link 1ms,20MB/s --sub-group-size 53312 --offload-buffers";

/// Returns a table for few and more staging buffers: their memory, and the time to read the data
/// that passes through them.
pub(super) fn measured(runs: &Runs) -> Result<String> {
    let mut table = Table::prose(["--offload-buffers", "staging, bytes", "the step's reads"]);
    for buffers in ["1", "3"] {
        let report = runs.report(&Run::new(Stage::Zero2, &format!("{SLOW_DISK} {buffers}")))?;
        let staging =
            report.memory.iter().find(|row| (row.place, row.class) == (Place::Host, Class::Workspace));
        let staging = grouped(staging.map_or(0, |row| row.peak_bytes));
        table.row(buffers, [staging, format!("{:.0} ms", reads(&report) * 1e3)]);
    }
    Ok(table.render(Format::Markdown))
}

/// Returns the seconds that the simulated disk takes for all of rank 0's reads.
fn reads(report: &Report) -> f64 {
    let Some(link) = &report.disk_link else { return 0.0 };
    let read = report.transfers.iter().find(|row| row.rank == 0 && row.route == Route::DiskToHost);
    read.map_or(0.0, |row| time_on(link, row.predicted_calls, row.predicted_bytes))
}

/// Returns the bytes per second at which a GPU that waits for all transfers reaches `efficiency`:
/// intensity × bandwidth / (intensity × bandwidth + peak).
fn bandwidth(efficiency: f64, intensity: f64, peak: f64) -> f64 {
    efficiency / (1.0 - efficiency) * peak / intensity
}

/// Returns the paper's table: floating-point operations per byte of each state, and bandwidths.
pub(super) fn paper() -> String {
    let mut table = Table::numbers("state", ["FLOPs per byte", "one sequence", "half", "nine tenths"]);
    for (name, formula, intensity) in [
        ("parameters and gradients", "tokens", TOKENS),
        ("optimizer states", "tokens / 4", TOKENS / 4.0),
        ("inputs of blocks", "24 × width", 24.0 * WIDTH),
    ] {
        let needs = |efficiency| gigabytes(bandwidth(efficiency, intensity, PAPER));
        let cells = [formula.to_string(), grouped(intensity as u64), needs(0.5), needs(0.9)];
        table.row(name, cells);
    }
    let [tokens, width] = [TOKENS, WIDTH].map(|number| grouped(number as u64));
    let peak = PAPER / 1e12;
    format!(
        "{}\nA sequence of {tokens} tokens per GPU, width {width}, {peak} TFLOP/s. The last two columns are GB/s.",
        table.render(Format::Markdown)
    )
}

/// Returns the same table for Llama-2-7B from the planner's counts: bytes to and from the disk if
/// only one state is stored there, and the bandwidth per GPU for nine tenths of its peak.
pub(super) fn counted() -> Result<String> {
    const GPUS: [usize; 3] = [1, 8, 64];
    let columns = ["bytes, 1 GPU", "FLOPs per byte", "1 GPU", "8 GPUs", "64 GPUs"];
    let mut table = Table::numbers("state", columns);
    let mut tokens = 0;
    let all_on_device = Placement::default();
    for (name, placement) in [
        ("parameters", Placement { parameters: Place::Disk, ..all_on_device }),
        ("optimizer states", Placement { optimizer: Place::Disk, ..all_on_device }),
        ("inputs of blocks", Placement { activations: Place::Disk, ..all_on_device }),
    ] {
        let mut cells = Vec::new();
        for gpus in GPUS {
            let job = job(placement, gpus)?;
            let (bytes, flops) = (on_disk(&job)?, operations(&job));
            let intensity = flops / bytes as f64;
            if gpus == 1 {
                cells.extend([grouped(bytes), grouped(intensity as u64)]);
            }
            cells.push(gigabytes(bandwidth(0.9, intensity, COMPUTE)));
            tokens = job.tokens;
        }
        table.row(name, cells);
    }
    Ok(format!(
        "{}\nA sequence of {} tokens per GPU, {} TFLOP/s. The last three columns are GB/s for each GPU.",
        table.render(Format::Markdown),
        grouped(tokens as u64),
        COMPUTE / 1e12
    ))
}

fn job(placement: Placement, gpus: usize) -> Result<Job> {
    let config = stages::config("--model llama2-7b --checkpoint-activations block")?;
    let job = Job::new(config.model, Stage::Zero3, gpus);
    Ok(Job { recipe: Recipe::MIXED, placement, checkpointing: config.memory.checkpoint_activations, ..job })
}

/// Returns the bytes that a GPU moves to and from its disk in a step.
fn on_disk(job: &Job) -> Result<u64> {
    let prediction = predict(job).map_err(Failure::run)?;
    let moved = prediction.ranks[0].transfers.step;
    Ok(moved.bytes(Route::DiskToHost) + moved.bytes(Route::HostToDisk))
}

/// Returns the floating-point operations of a GPU in a step, including recomputation.
fn operations(job: &Job) -> f64 {
    let Job { config, tokens, checkpointing, .. } = job;
    let per_token =
        config.flops_per_token(*tokens) + config.recomputed_flops_per_token(*tokens, *checkpointing);
    (job.batch_size * tokens) as f64 * per_token as f64
}

fn gigabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that the paper's section 4.2 states.
    #[test]
    fn the_formula_gives_the_bandwidths_of_the_paper() {
        let for_parameters = bandwidth(0.5, TOKENS, PAPER) / 1e9;
        assert!((65.0..75.0).contains(&for_parameters), "\"over 70 GB/s\": {for_parameters}");
        let for_inputs = bandwidth(0.5, 24.0 * WIDTH, PAPER) / 1e9;
        assert!((1.0..2.0).contains(&for_inputs), "\"a meager 2 GB/s\": {for_inputs}");
    }

    /// The efficiency formula describes a GPU that alternately computes and waits.
    #[test]
    fn a_gpu_that_waits_for_its_bytes_is_as_efficient_as_the_formula_says() {
        let job = job(Placement { optimizer: Place::Disk, ..Placement::default() }, 8).unwrap();
        let (bytes, flops) = (on_disk(&job).unwrap() as f64, operations(&job));
        let needed = bandwidth(0.9, flops / bytes, COMPUTE);
        let (computing, waiting) = (flops / COMPUTE, bytes / needed);
        assert!((computing / (computing + waiting) - 0.9).abs() < 1e-9);
    }
}
