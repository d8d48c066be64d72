//! Claims about traffic, advice, and the answers of exercises.

use super::{BILLION, Claim, Document, GIB, claim};
use events::Operation;
use prediction::Stage::{Ddp, Zero1, Zero2, Zero3};
use prediction::closed::Sweeps;
use prediction::recipe::Recipe;
use prediction::traffic::Algorithm;

/// Returns all claims of this module.
pub(super) fn claims() -> Vec<Claim> {
    [traffic(), advice(), exercises()].concat()
}

fn traffic() -> Vec<Claim> {
    let total = |stage, textbook| Sweeps::of(stage, 1, textbook).total() as f64;
    let (zero2, zero3) = (total(Zero2, false), total(Zero3, false));
    vec![
        claim(
            Document::Guide,
            "ZeRO-2 all-reduces gradients",
            0,
            "The algorithm needs a reduce-scatter only: {} times the model with the gather of parameters. An all-reduce makes that {}, and DeepSpeed's code does this by default (`use_multi_rank_bucket_allreduce`): it all-reduces each bucket, and each rank copies out its slice.",
            &[zero2, zero2 + 1.0],
        ),
        claim(
            Document::Guide,
            "ZeRO-3 all-reduces gradients in backward",
            0,
            "It reduce-scatters them: {} times the model; an all-reduce would make that {}.",
            &[zero3, zero3 + 1.0],
        ),
        claim(
            Document::Tutorial,
            "ZeRO-1 all-reduces gradients, gathers parameters, and sends as much as DDP",
            0,
            "{} times the model against DDP's {}. Only with a reduce-scatter is it {}.",
            &[total(Zero1, true), total(Ddp, false), total(Zero1, false)],
        ),
        claim(
            Document::Article,
            "One would never use ZeRO-1: ZeRO-2 costs the same",
            0,
            "With 8 micro-batches per step ZeRO-1 sends {} times the model, ZeRO-2 {} times.",
            &[Zero1, Zero2].map(|stage| Sweeps::of(stage, 8, false).total() as f64),
        ),
        claim(
            Document::Notebook,
            "ShardedLinear is FSDP in miniature",
            1,
            "It computes 1/N of the outputs and never gathers: column (tensor) parallelism. FSDP gathers the weight: for 4096 → 11008 on 8 GPUs, {} MB arrive at each in 16 bits.",
            &[2.0 * Algorithm::default().elements_sent(Operation::AllGather, 4096 * 11008, 8, 0) as f64
                / 1e6],
        ),
    ]
}

fn advice() -> Vec<Claim> {
    vec![
        claim(
            Document::Course,
            "13B needs ZeRO-3 on 8 GPUs of 80 GB",
            2,
            "With ZeRO-2 the model states take {} GB.",
            &[Recipe::MIXED.gigabytes(13 * BILLION, 8, Zero2)],
        ),
        claim(
            Document::Guide,
            "7B to 30B: ZeRO-2",
            1,
            "30B on 8 GPUs take {} GB with ZeRO-2, {} GB with ZeRO-3.",
            &[Zero2, Zero3].map(|stage| Recipe::MIXED.gigabytes(30 * BILLION, 8, stage)),
        ),
    ]
}

fn exercises() -> Vec<Claim> {
    let layers = 24.0;
    let layer = 2.0 * 1e9;
    let all = (2.0 * layers - 1.0 + layers) * layer;
    vec![
        claim(
            Document::Notebook,
            "13B on 8 GPUs: 108.96, 87.78 and 24.21 GB",
            2,
            "These are GiB, with master weights whole until ZeRO-3. Optimizer states include them: {}, {} and {} GB.",
            &[Zero1, Zero2, Zero3].map(|stage| Recipe::MIXED.gigabytes(13 * BILLION, 8, stage)),
        ),
        claim(
            Document::Notebook,
            "ZeRO-3 moves 89.41 GB for 24 layers of 1B",
            2,
            "{} GiB with one layer's reduce-scatter; all layers' make {} GB ({} GiB).",
            &[((2.0 * layers - 1.0 + 1.0) * layer) / GIB, all / 1e9, all / GIB],
        ),
    ]
}
