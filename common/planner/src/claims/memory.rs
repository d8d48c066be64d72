//! Claims about memory.

use super::{BILLION, Claim, Document, claim, times_less};
use events::Class;
use model::ModelConfig;
use prediction::Stage;
use prediction::Stage::{Ddp, Zero1, Zero2, Zero3};
use prediction::job::Job;
use prediction::partition::Partition;
use prediction::predict;
use prediction::recipe::Recipe;

/// Returns all claims about memory.
pub(super) fn claims() -> Vec<Claim> {
    [savings(), sizes(), totals(), peaks()].concat()
}

fn savings() -> Vec<Claim> {
    let of = |stage| Recipe::FP32.gigabytes(BILLION, 4, stage);
    let saved = |stage| 100.0 * (1.0 - of(stage) / of(Ddp));
    vec![
        claim(
            Document::Guide,
            "ZeRO-1 saves 4×",
            1,
            "{}× on 4 GPUs, {}× on 8, {}× on 64. 4× is the limit for many GPUs, with 12 bytes of optimizer states per parameter.",
            &[4, 8, 64].map(|gpus| times_less(gpus, Zero1)),
        ),
        claim(
            Document::Guide,
            "ZeRO-2 saves 8×",
            1,
            "{}× on 4 GPUs, {}× on 8, {}× on 64. 8× is the limit for many GPUs.",
            &[4, 8, 64].map(|gpus| times_less(gpus, Zero2)),
        ),
        claim(
            Document::Guide,
            "ZeRO-3 saves 10× or more",
            1,
            "As many times as there are GPUs: {}× on 4, {}× on 8, {}× on 64.",
            &[4, 8, 64].map(|gpus| times_less(gpus, Zero3)),
        ),
        claim(
            Document::Course,
            "The stages save 33 %, 50 % and 75 %",
            2,
            "{} %, {} % and {} % of the model states in fp32 on 4 GPUs.",
            &[Zero1, Zero2, Zero3].map(saved),
        ),
    ]
}

/// Returns the model states of 7B on 4 GPUs, in GB per GPU.
fn seven(recipe: Recipe, stage: Stage) -> f64 {
    recipe.gigabytes(7 * BILLION, 4, stage)
}

fn sizes() -> Vec<Claim> {
    let optimizer = |recipe: Recipe| recipe.optimizer() as f64;
    vec![
        claim(
            Document::Guide,
            "Optimizer states take 32 bytes per parameter",
            0,
            "Adam's take {} in mixed precision, master weights included, and {} in fp32.",
            &[optimizer(Recipe::MIXED), optimizer(Recipe::FP32)],
        ),
        claim(
            Document::Guide,
            "A bucket of 5e8 is 500 MB",
            0,
            "Buckets count elements: {} GB in 16 bits, {} GB in fp32.",
            &[5e8 * Recipe::MIXED.gradients as f64 / 1e9, 5e8 * Recipe::FP32.gradients as f64 / 1e9],
        ),
    ]
}

fn totals() -> Vec<Claim> {
    let [no_master, mixed] = [Recipe::NO_MASTER, Recipe::MIXED].map(|recipe| {
        let states = recipe.model_states(&[7 * BILLION], 4, Zero2);
        [states.gradients, states.optimizer(), states.gradients + states.optimizer()].map(|b| b as f64 / 1e9)
    });
    vec![
        claim(
            Document::Tutorial,
            "7B with DDP takes 70 GB: 14 + 14 + 56",
            1,
            "These add up to {} GB, and without master weights; with them it is {} GB.",
            &[seven(Recipe::NO_MASTER, Ddp), seven(Recipe::MIXED, Ddp)],
        ),
        claim(
            Document::Tutorial,
            "In ZeRO-2 on 4 GPUs, gradients and optimizer take 14 + 14 = 28 GB",
            1,
            "The gradients are sharded too: {} + {} = {} GB. With master weights, which the claim leaves out, {} + {} = {} GB.",
            &[no_master, mixed].concat(),
        ),
        claim(
            Document::Tutorial,
            "7B with ZeRO-3 on 4 GPUs takes about 21 GB",
            1,
            "{} GB only without master weights; with them {} GB, as its own table says.",
            &[seven(Recipe::NO_MASTER, Zero3), seven(Recipe::MIXED, Zero3)],
        ),
        claim(
            Document::Tutorial,
            "SHARD_GRAD_OP takes about 2/N of the memory",
            3,
            "Full parameters stay while a step computes: on 64 GPUs {} of DDP's model states, not {}.",
            // 2 bytes of full parameters and all shards, of 16.
            &[(2.0 + 16.0 / 64.0) / 16.0, 2.0 / 64.0],
        ),
        claim(
            Document::Course,
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

/// Returns the peak of ZeRO-3's gathered parameters for Llama-2-7B on 4 GPUs, weights in 16 bits,
/// in GB; and the parameters of a block in millions: of the whole block, and of one rank's slice on
/// 8 GPUs.
fn llama_units() -> Option<(f64, f64, f64)> {
    let config = ModelConfig::preset("llama2-7b").ok()?;
    let job = Job { recipe: Recipe::MIXED_FP32_GRADIENTS, ..Job::new(config, Zero3, 4) };
    let gathered = predict(&job).ok()?.ranks.first()?.memory.peak(Class::GatheredParameters);
    let block = Partition::of(&Job { world_size: 8, ..job }).units.get(1)?.padded as f64 / 1e6;
    Some((gathered as f64 / 1e9, block, block / 8.0))
}

fn peaks() -> Vec<Claim> {
    let average = Recipe::MIXED_FP32_GRADIENTS.gigabytes(7 * BILLION, 4, Zero3) + 10.0;
    let whole = average + 2.0 * 7.0;
    let Some((gathered, block, slice)) = llama_units() else { return Vec::new() };
    vec![
        claim(
            Document::Course,
            "ZeRO-3's peak of 48.5 GB includes the whole model, gathered",
            1,
            "{} GB only if the whole model is one unit. With a unit per block and one gathered ahead, {} GB are gathered at once: {} GB.",
            &[whole, gathered, average + gathered],
        ),
        claim(
            Document::Course,
            "Each GPU holds some of the layers",
            1,
            "Each holds a slice of every layer: of a block's {} million parameters in Llama-2-7B, {} million on each of 8 GPUs. Whole layers per GPU would be pipeline parallelism.",
            &[block, slice],
        ),
    ]
}
