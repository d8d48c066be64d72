//! The tensors that a block's forward keeps for its backward.

use events::Class;
use events::say::grouped;
use model::ModelConfig;
use prediction::{Job, Recipe, Stage, predict};
use trainer::{Failure, Result};

/// A tensor that a block's forward keeps.
struct Kept {
    name: &'static str,
    /// Elements per token, in symbols and as a number.
    symbols: &'static str,
    elements: usize,
    /// Whether it is fp32 in every recipe.
    single: bool,
    /// Whether the choices `none`, `selective` and `block` keep it.
    keepers: [bool; 3],
}

impl Kept {
    fn bytes(&self, job: &Job) -> u64 {
        let each = if self.single { 4 } else { job.recipe.weights };
        (job.batch_size * job.tokens * self.elements) as u64 * each
    }
}

/// Returns the tensors in the order in which forward computes them.
fn tensors(c: &ModelConfig) -> [Kept; 9] {
    let kept = |name, symbols, elements, single, keepers| Kept { name, symbols, elements, single, keepers };
    let qkv = (c.heads + 2 * c.kv_heads) * c.head_dim;
    [
        kept("the block's input", "d", c.width, false, [true, true, true]),
        kept("both norms' outputs", "2d", 2 * c.width, false, [true, false, false]),
        kept("both norms' scales, fp32", "2", 2, true, [true, false, false]),
        kept("queries, keys, values", "(h + 2k) · e", qkv, false, [true, true, false]),
        kept("attention's output", "h · e", c.heads * c.head_dim, false, [true, true, false]),
        kept("its log-sums, fp32", "h", c.heads, true, [true, true, false]),
        kept("the middle of the block", "d", c.width, false, [true, true, false]),
        kept("gate and up", "2f", 2 * c.feed_forward, false, [true, true, false]),
        kept("their product", "f", c.feed_forward, false, [true, false, false]),
    ]
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
    let [tiny, llama] = jobs.each_ref().map(|job| tensors(&job.config));
    for (tensor, of_llama) in tiny.iter().zip(&llama) {
        let [tiny, llama] = [tensor.bytes(&jobs[0]), of_llama.bytes(&jobs[1])].map(grouped);
        let [_, selective, block] = tensor.keepers.map(mark);
        let Kept { name, symbols, .. } = tensor;
        text += &format!("| {name} | {symbols} | {tiny} | {llama} | {selective} | {block} |\n");
    }
    let sum = |job: &Job, at: usize| {
        tensors(&job.config).iter().filter(|t| t.keepers[at]).map(|tensor| tensor.bytes(job)).sum::<u64>()
    };
    for job in &jobs {
        check(job, sum(job, 0))?;
    }
    for (at, name) in
        ["a block, everything kept", "a block, selective", "a block, input alone"].into_iter().enumerate()
    {
        let [tiny, llama] = jobs.each_ref().map(|job| grouped(sum(job, at)));
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
