//! The tensors that a block's forward keeps for its backward.

use events::Class;
use planner::table::grouped;
use planner::{Job, Recipe, Stage, predict};
use trainer::{Failure, Result};

/// A tensor: its name, elements per token in symbols, and which choices of recomputation keep it.
struct Kept {
    name: &'static str,
    symbols: &'static str,
    elements: fn(&Job) -> u64,
    /// Whether it is fp32 in any recipe.
    single: bool,
    keepers: [bool; 3],
}

const fn kept(
    name: &'static str,
    symbols: &'static str,
    elements: fn(&Job) -> u64,
    single: bool,
    keepers: [bool; 3],
) -> Kept {
    Kept { name, symbols, elements, single, keepers }
}

/// In the order of forward. Kept by `none`, `selective`, `block`.
const TENSORS: [Kept; 8] = [
    kept("the block's input", "d", width, false, [true, true, true]),
    kept("both norms' outputs", "2d", |job| 2 * width(job), false, [true, false, false]),
    kept("both norms' scales, fp32", "2", |_| 2, true, [true, false, false]),
    kept("queries, keys, values", "(h + 2k) · e", heads_three, false, [true, true, false]),
    kept(
        "attention's output",
        "h · e",
        |job| (job.config.heads * job.config.head_dim) as u64,
        false,
        [true, true, false],
    ),
    kept("its log-sums, fp32", "h", |job| job.config.heads as u64, true, [true, true, false]),
    kept("the middle of the block", "d", width, false, [true, true, false]),
    kept("gate and up", "2f", |job| 2 * job.config.feed_forward as u64, false, [true, true, false]),
];

/// The product of gate and up, which `selective` computes again.
const PRODUCT: Kept =
    kept("their product", "f", |job| job.config.feed_forward as u64, false, [true, false, false]);

fn width(job: &Job) -> u64 {
    job.config.width as u64
}

fn heads_three(job: &Job) -> u64 {
    ((job.config.heads + 2 * job.config.kv_heads) * job.config.head_dim) as u64
}

impl Kept {
    fn bytes(&self, job: &Job) -> u64 {
        let each = if self.single { 4 } else { job.recipe.weights };
        (job.batch_size * job.tokens) as u64 * (self.elements)(job) * each
    }
}

fn tensors() -> impl Iterator<Item = &'static Kept> {
    TENSORS.iter().chain([&PRODUCT])
}

/// Returns a table of the bytes per tensor, for the default model in fp32 and Llama-2-7B in 16
/// bits.
///
/// # Errors
/// If the sum differs from the planner's prediction for one more block.
pub(super) fn text() -> Result<String> {
    let jobs = [job("tiny", Recipe::FP32)?, job("llama2-7b", Recipe::MIXED)?];
    let mut text = String::from(
        "| kept for backward | elements per token | tiny, fp32 | Llama-2-7B, 16 bits | selective | block |\n\
         |---|---|--:|--:|---|---|\n",
    );
    let mark = |keeps: bool| if keeps { "kept" } else { "" };
    for tensor in tensors() {
        let [tiny, llama] = [&jobs[0], &jobs[1]].map(|job| grouped(tensor.bytes(job)));
        let [_, selective, block] = tensor.keepers.map(mark);
        let Kept { name, symbols, .. } = tensor;
        text += &format!("| {name} | {symbols} | {tiny} | {llama} | {selective} | {block} |\n");
    }
    let sum = |job: &Job, at: usize| {
        tensors().filter(|t| t.keepers[at]).map(|tensor| tensor.bytes(job)).sum::<u64>()
    };
    for job in &jobs {
        check(job, sum(job, 0))?;
    }
    for (at, name) in
        ["a block, everything kept", "a block, selective", "a block, input alone"].into_iter().enumerate()
    {
        let [tiny, llama] = [&jobs[0], &jobs[1]].map(|job| grouped(sum(job, at)));
        text += &format!("| = {name} | | {tiny} | {llama} | | |\n");
    }
    Ok(text)
}

fn job(model: &str, recipe: Recipe) -> Result<Job> {
    let config = stages::config(&format!("--model {model}"))?;
    Ok(Job { recipe, ..Job::new(config.model, Stage::Ddp, 1) })
}

/// Compares `bytes` with the planner's activations of one more block.
fn check(job: &Job, bytes: u64) -> Result<()> {
    let mut deeper = job.clone();
    deeper.config.layers += 1;
    let peak = |job: &Job| {
        let prediction = predict(job).map_err(Failure::run)?;
        Ok::<u64, Failure>(prediction.ranks[0].memory.peak(Class::Activations))
    };
    let added = peak(&deeper)? - peak(job)?;
    if added == bytes {
        return Ok(());
    }
    Err(Failure::run(format!("activations: a block adds {added} bytes, but its tensors have {bytes}")))
}
