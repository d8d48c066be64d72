//! Chapters 7 to 10: hiding communication, precision, activations, configurations.

use super::{choose, planned, run};
use crate::learn::flags::{ACCUMULATED, BF16, TWO};
use crate::learn::question::Chapter;
use crate::learn::question::Figure::{Exposed, Peak, SentInAll};
use planner::Recipe;
use planner::Stage::{Ddp, Zero3};

pub(super) const HIDING: Chapter = Chapter {
    number: 7,
    guesses: &[
        run(Zero3, TWO).guess(
            "ZeRO-3, two steps: bytes of gathered parameters at their peak.",
            Peak("gathered parameters"),
        ),
        run(Zero3, "--gpus 4 --steps 2 --batch-size 2 --headless --link 1ms,100MB/s").guess(
            "The same over a simulated link of 1 ms and 100 MB/s: bytes that rank 0 sends.",
            SentInAll,
        ),
        run(Zero3, "--gpus 4 --steps 2 --batch-size 1 --seq-len 8 --headless --link 1ms,10MB/s").guess(
            "One sequence of 8 tokens, a link of 1 ms and 10 MB/s, two steps: milliseconds that rank 0 waits for the link, with almost nothing to compute at the same time.",
            Exposed,
        ),
    ],
    quiz: &[
        choose(
            "When is communication free?",
            &[
                "when it is in 16 bits",
                "when it is issued early enough that no rank waits for it",
                "when it goes through a ring",
            ],
            1,
            "Bytes that travel while a rank computes cost no time; they cost memory.",
        ),
        planned(
            "A link takes 50 µs to start and moves 3.125 GB/s. Milliseconds for a rank to send 12.5 MB in one collective?",
            || 0.05 + 12.5e6 / 3.125e9 * 1e3,
            "ms",
            "α + n/β: the latency once, the bytes over the bandwidth.",
        ),
        planned(
            "The same bytes in a hundred collectives, one after another?",
            || 100.0 * 0.05 + 12.5e6 / 3.125e9 * 1e3,
            "ms",
            "The latency a hundred times. Small units pay this.",
        ),
        choose(
            "What does gathering further ahead cost?",
            &["more bytes on the wire", "memory for more whole units at a time", "precision"],
            1,
            "A unit that waits for its turn is whole while it waits.",
        ),
    ],
};

pub(super) const PRECISION: Chapter = Chapter {
    number: 8,
    guesses: &[
        run(Zero3, BF16)
            .guess("ZeRO-3 in bf16, four ranks: bytes of parameters on each.", Peak("parameters")),
        run(Zero3, BF16).guess("Bytes of optimizer states on each, masters included.", Peak("optimizer")),
        run(Zero3, BF16).guess("Two steps: bytes that rank 0 sends.", SentInAll),
    ],
    quiz: &[
        planned(
            "Bytes of model states per parameter in the mixed recipe?",
            || Recipe::MIXED.total() as f64,
            "bytes",
            "2 of weight, 2 of gradient, 4 of master weight, 4 + 4 of momentum and variance: as many as in fp32.",
        ),
        choose(
            "Why does bf16 need no loss scale?",
            &["it has more digits than fp16", "it has the range of fp32", "gradients are larger in bf16"],
            1,
            "It has fewer digits than fp16, but small gradients do not vanish.",
        ),
        choose(
            "Rank 3 overflows, ranks 0 to 2 do not. What must happen?",
            &[
                "rank 3 skips the step, the others update",
                "all ranks skip the step",
                "rank 3 takes the others' gradients",
            ],
            1,
            "Otherwise rank 3's parameters differ from the other ranks' from then on.",
        ),
        run(Zero3, BF16).measured(
            "Bytes of gathered parameters at their peak, in bf16?",
            Peak("gathered parameters"),
            "Two blocks of two bytes per parameter.",
        ),
    ],
};

pub(super) const ACTIVATIONS: Chapter = Chapter {
    number: 9,
    guesses: &[
        run(Zero3, "--gpus 4 --steps 2 --headless --checkpoint-activations block").guess(
            "ZeRO-3, blocks checkpointed: bytes of activations. Without, it was 37,859,328.",
            Peak("activations"),
        ),
        run(Zero3, "--gpus 8 --steps 2 --headless").guess(
            "ZeRO-3 on eight ranks, nothing checkpointed: bytes of activations on each.",
            Peak("activations"),
        ),
    ],
    quiz: &[
        choose(
            "With twice as many ranks and the same batch per rank, activations on a rank are",
            &["half as large", "as large as before", "twice as large"],
            1,
            "They depend on the rank's own sequences.",
        ),
        choose(
            "Checkpointing changes the weights after a step by",
            &["nothing", "rounding", "a regularizing noise"],
            0,
            "The same kernels see the same inputs again.",
        ),
        run(Ddp, "--gpus 4 --steps 2 --batch-size 1 --headless").measured(
            "DDP, one sequence per rank: bytes of activations?",
            Peak("activations"),
            "An eighth of what eight sequences leave.",
        ),
        choose(
            "A DDP run does not fit, and the network is slow. Which remedy neither sends nor computes more?",
            &["ZeRO-3", "ZeRO-1", "checkpointing"],
            1,
            "ZeRO-3 sends 1.5 × as much, checkpointing computes most of forward twice.",
        ),
    ],
};

pub(super) const CONFIGURATIONS: Chapter = Chapter {
    number: 10,
    guesses: &[run(Zero3, ACCUMULATED).guess(
        "The example on four ranks with two sequences per micro-batch, two steps: bytes that rank 0 sends. Four micro-batches per step.",
        SentInAll,
    )],
    quiz: &[
        planned(
            "`reduce_bucket_size: 5e8` in fp32: how many GB?",
            || 5e8 * Recipe::FP32.gradients as f64 / 1e9,
            "GB",
            "It counts elements.",
        ),
        planned(
            "train_batch_size 256, micro-batch 4, 8 GPUs: accumulation steps?",
            || 256.0 / (4.0 * 8.0),
            "steps",
            "256 / (4 × 8).",
        ),
        choose(
            "FSDP's SHARD_GRAD_OP keeps between steps",
            &["full parameters", "a slice of the parameters", "nothing"],
            1,
            "It gathers in forward, and keeps them until backward is done.",
        ),
        choose(
            "ZeRO-3 on a tiny model saves nothing with DeepSpeed's defaults. Why?",
            &[
                "ZeRO-3 needs GPUs",
                "every tensor is below the persistence threshold and stays whole",
                "tiny models have no optimizer states",
            ],
            1,
            "The threshold was chosen for billions of parameters.",
        ),
    ],
};
