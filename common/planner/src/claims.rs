//! What is said about ZeRO, beside what holds.
//!
//! Each claim is from a document that many people learn from. The numbers beside it are computed by this crate.

use crate::closed::Sweeps;
use crate::job::Stage::{Ddp, Zero1, Zero2, Zero3};
use crate::job::{Job, Stage};
use crate::partition::Partition;
use crate::predict::predict;
use crate::recipe::{ByteUnit, Recipe};
use crate::table::Table;
use crate::traffic::elements_sent;
use events::{Class, Operation};
use model::ModelConfig;
use serde::Serialize;

const BILLION: u64 = 1_000_000_000;
const GIB: f64 = ByteUnit::Gibibyte.bytes();

/// The documents that claims are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// *ZeRO and FSDP: Memory-Efficient Data Parallelism*, a tutorial.
    Tutorial,
    /// *DeepSpeed ZeRO for Distributed Training*, one lesson of a course.
    Course,
    /// *AI in Multiple GPUs: ZeRO & FSDP*, an article.
    Article,
    /// *ZeRO Optimization Deep Dive*, a guide.
    Guide,
    /// The seventh notebook of a series on the *Ultra-Scale Playbook*.
    Notebook,
}

impl Source {
    /// One word for tables.
    pub const fn label(self) -> &'static str {
        match self {
            Source::Tutorial => "tutorial",
            Source::Course => "course",
            Source::Article => "article",
            Source::Guide => "guide",
            Source::Notebook => "notebook",
        }
    }
}

/// A claim and what holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Who says so.
    pub source: Source,
    /// What they say.
    pub says: &'static str,
    /// What holds, with its numbers.
    pub holds: String,
    /// The numbers in `holds`, unrounded, in order.
    pub numbers: Vec<f64>,
}

/// Every claim, with what holds computed.
pub fn claims() -> Vec<Claim> {
    [savings(), sizes(), totals(), peaks(), traffic(), advice(), exercises()].concat()
}

/// The claims as a table.
pub fn table() -> Table {
    let mut table = Table::prose(["who", "says", "what holds"]);
    for claim in claims() {
        table.row(claim.source.label(), [claim.says.to_string(), claim.holds]);
    }
    table
}

/// Fills the `{}` of `pattern` with `numbers`, each to at most `decimals` places.
fn claim(source: Source, says: &'static str, decimals: usize, pattern: &str, numbers: &[f64]) -> Claim {
    let mut holds = String::new();
    let mut parts = pattern.split("{}");
    holds.push_str(parts.next().unwrap_or_default());
    for (part, number) in parts.zip(numbers) {
        holds.push_str(&plain(*number, decimals));
        holds.push_str(part);
    }
    Claim { source, says, holds, numbers: numbers.to_vec() }
}

/// `number` to at most `decimals` places, without zeros at its end.
fn plain(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Model states per GPU in GB.
fn gb(recipe: Recipe, parameters: u64, gpus: usize, stage: Stage) -> f64 {
    recipe.model_states(&[parameters], gpus, stage).total() as f64 / 1e9
}

/// How many times less than DDP, in the mixed recipe.
fn times_less(gpus: usize, stage: Stage) -> f64 {
    gb(Recipe::MIXED, 1024 * BILLION, gpus, Ddp) / gb(Recipe::MIXED, 1024 * BILLION, gpus, stage)
}

fn savings() -> Vec<Claim> {
    let saved =
        |stage| 100.0 * (1.0 - gb(Recipe::FP32, BILLION, 4, stage) / gb(Recipe::FP32, BILLION, 4, Ddp));
    vec![
        claim(
            Source::Guide,
            "ZeRO-1 saves 4×",
            1,
            "{}× on 4 GPUs, {}× on 8, {}× on 64. 4× is the limit for many GPUs, with 12 bytes of optimizer states per parameter.",
            &[4, 8, 64].map(|gpus| times_less(gpus, Zero1)),
        ),
        claim(
            Source::Guide,
            "ZeRO-2 saves 8×",
            1,
            "{}× on 4 GPUs, {}× on 8, {}× on 64. 8× is the limit for many GPUs.",
            &[4, 8, 64].map(|gpus| times_less(gpus, Zero2)),
        ),
        claim(
            Source::Guide,
            "ZeRO-3 saves 10× or more",
            1,
            "As many times as there are GPUs: {}× on 4, {}× on 8, {}× on 64.",
            &[4, 8, 64].map(|gpus| times_less(gpus, Zero3)),
        ),
        claim(
            Source::Course,
            "The stages save 33 %, 50 % and 75 %",
            2,
            "{} %, {} % and {} % of the model states in fp32 on 4 GPUs.",
            &[Zero1, Zero2, Zero3].map(saved),
        ),
    ]
}

/// 7B on 4 GPUs, in GB.
fn seven(recipe: Recipe, stage: Stage) -> f64 {
    gb(recipe, 7 * BILLION, 4, stage)
}

fn sizes() -> Vec<Claim> {
    let optimizer = |recipe: Recipe| recipe.optimizer() as f64;
    vec![
        claim(
            Source::Guide,
            "Optimizer states take 32 bytes per parameter",
            0,
            "Adam's take {} in mixed precision, master weights included, and {} in fp32.",
            &[optimizer(Recipe::MIXED), optimizer(Recipe::FP32)],
        ),
        claim(
            Source::Guide,
            "A bucket of 5e8 is 500 MB",
            0,
            "Buckets count elements: {} GB in 16 bits, {} GB in fp32.",
            &[5e8 * Recipe::MIXED.gradients as f64 / 1e9, 5e8 * Recipe::FP32.gradients as f64 / 1e9],
        ),
    ]
}

fn totals() -> Vec<Claim> {
    let no_master = Recipe::NO_MASTER.model_states(&[7 * BILLION], 4, Zero2);
    vec![
        claim(
            Source::Tutorial,
            "7B with DDP takes 70 GB: 14 + 14 + 56",
            1,
            "These add up to {} GB, and without master weights; with them it is {} GB.",
            &[seven(Recipe::NO_MASTER, Ddp), seven(Recipe::MIXED, Ddp)],
        ),
        claim(
            Source::Tutorial,
            "In ZeRO-2 on 4 GPUs, gradients and optimizer take 14 + 14 = 28 GB",
            1,
            "The gradients are sharded too: {} + {} = {} GB.",
            &[no_master.gradients, no_master.optimizer(), no_master.gradients + no_master.optimizer()]
                .map(|bytes| bytes as f64 / 1e9),
        ),
        claim(
            Source::Tutorial,
            "7B with ZeRO-3 on 4 GPUs takes about 21 GB",
            1,
            "{} GB only without master weights; with them {} GB, as its own table says.",
            &[seven(Recipe::NO_MASTER, Zero3), seven(Recipe::MIXED, Zero3)],
        ),
        claim(
            Source::Tutorial,
            "SHARD_GRAD_OP takes about 2/N of the memory",
            3,
            "Full parameters stay while a step computes: on 64 GPUs {} of DDP's model states, not {}.",
            &[1.0 / times_less(64, Zero2), 2.0 / 64.0],
        ),
        claim(
            Source::Course,
            "7B without ZeRO takes 136 to 166 GB",
            0,
            "That counts 18 bytes per parameter, fp32 weights beside 16-bit ones and fp32 gradients. At {} bytes, mixed or fp32, it is {} GB, with the same activations {} to {} GB.",
            &[
                Recipe::MIXED.total() as f64,
                seven(Recipe::MIXED, Ddp),
                seven(Recipe::MIXED, Ddp) + 10.0,
                seven(Recipe::FP32, Ddp) + 40.0,
            ],
        ),
    ]
}

/// Most bytes of gathered parameters that ZeRO-3 has at once for Llama-2-7B on 4 GPUs, weights in 16 bits, in GB; and
/// the parameters of a block, in millions: whole, and one rank's slice on 8 GPUs.
fn llama_units() -> Option<(f64, f64, f64)> {
    let config = ModelConfig::preset("llama2-7b").ok()?;
    let job = Job { recipe: Recipe::MIXED_FP32_GRADIENTS, ..Job::new(config, Zero3, 4) };
    let gathered = predict(&job).ok()?.ranks.first()?.memory.peak(Class::GatheredParameters);
    let block = Partition::of(&Job { world_size: 8, ..job }).units.get(1)?.padded as f64 / 1e6;
    Some((gathered as f64 / 1e9, block, block / 8.0))
}

fn peaks() -> Vec<Claim> {
    let average = gb(Recipe::MIXED_FP32_GRADIENTS, 7 * BILLION, 4, Zero3) + 10.0;
    let whole = average + 2.0 * 7.0;
    let Some((gathered, block, slice)) = llama_units() else { return Vec::new() };
    vec![
        claim(
            Source::Course,
            "ZeRO-3's peak of 48.5 GB includes the whole model, gathered",
            1,
            "{} GB only if the whole model is one unit. With a unit per block and one gathered ahead, {} GB are gathered at once: {} GB.",
            &[whole, gathered, average + gathered],
        ),
        claim(
            Source::Course,
            "Each GPU holds some of the layers",
            1,
            "Each holds a slice of every layer: of a block's {} million parameters in Llama-2-7B, {} million on each of 8 GPUs. Whole layers per GPU would be pipeline parallelism.",
            &[block, slice],
        ),
    ]
}

fn traffic() -> Vec<Claim> {
    let total = |stage, textbook| Sweeps::of(stage, 1, textbook).total() as f64;
    let (zero2, zero3) = (total(Zero2, false), total(Zero3, false));
    vec![
        claim(
            Source::Guide,
            "ZeRO-2 all-reduces gradients",
            0,
            "It reduce-scatters them: {} times the model with the gather of parameters; an all-reduce would make that {}.",
            &[zero2, zero2 + 1.0],
        ),
        claim(
            Source::Guide,
            "ZeRO-3 all-reduces gradients in backward",
            0,
            "It reduce-scatters them: {} times the model; an all-reduce would make that {}.",
            &[zero3, zero3 + 1.0],
        ),
        claim(
            Source::Tutorial,
            "ZeRO-1 all-reduces gradients, gathers parameters, and sends as much as DDP",
            0,
            "{} times the model against DDP's {}. Only with a reduce-scatter is it {}.",
            &[total(Zero1, true), total(Ddp, false), total(Zero1, false)],
        ),
        claim(
            Source::Article,
            "One would never use ZeRO-1: ZeRO-2 costs the same",
            0,
            "With 8 micro-batches per step ZeRO-1 sends {} times the model, ZeRO-2 {} times.",
            &[Zero1, Zero2].map(|stage| Sweeps::of(stage, 8, false).total() as f64),
        ),
        claim(
            Source::Notebook,
            "ShardedLinear is FSDP in miniature",
            1,
            "It computes 1/N of the outputs and never gathers: column (tensor) parallelism. FSDP gathers the weight: for 4096 → 11008 on 8 GPUs, {} MB arrive at each in 16 bits.",
            &[2.0 * elements_sent(Operation::AllGather, 4096 * 11008, 8, 0) as f64 / 1e6],
        ),
    ]
}

fn advice() -> Vec<Claim> {
    vec![
        claim(
            Source::Course,
            "13B needs ZeRO-3 on 8 GPUs of 80 GB",
            2,
            "With ZeRO-2 the model states take {} GB.",
            &[gb(Recipe::MIXED, 13 * BILLION, 8, Zero2)],
        ),
        claim(
            Source::Guide,
            "7B to 30B: ZeRO-2",
            1,
            "30B on 8 GPUs take {} GB with ZeRO-2, {} GB with ZeRO-3.",
            &[Zero2, Zero3].map(|stage| gb(Recipe::MIXED, 30 * BILLION, 8, stage)),
        ),
    ]
}

fn exercises() -> Vec<Claim> {
    let layers = 24.0;
    let layer = 2.0 * 1e9;
    let all = (2.0 * layers - 1.0 + layers) * layer;
    vec![
        claim(
            Source::Notebook,
            "13B on 8 GPUs: 108.96, 87.78 and 24.21 GB",
            2,
            "These are GiB, with master weights whole until ZeRO-3. Optimizer states include them: {}, {} and {} GB.",
            &[Zero1, Zero2, Zero3].map(|stage| gb(Recipe::MIXED, 13 * BILLION, 8, stage)),
        ),
        claim(
            Source::Notebook,
            "ZeRO-3 moves 89.41 GB for 24 layers of 1B",
            2,
            "{} GiB with one layer's reduce-scatter; all layers' make {} GB ({} GiB).",
            &[((2.0 * layers - 1.0 + 1.0) * layer) / GIB, all / 1e9, all / GIB],
        ),
    ]
}
