//! Chapters 11 to 14: real GPUs, choosing, claims, diagnosis.

use super::{choose, planned, run};
use crate::learn::flags::{ACCUMULATED, BF16_OF_EIGHT, ONE_BUCKET, TWO};
use crate::learn::question::Chapter;
use crate::learn::question::Figure::{Peak, Sent, SentInAll, TotalPeak};
use planner::Recipe;
use planner::Stage::{Ddp, Zero1, Zero2, Zero3};
use planner::closed::Sweeps;

const HYBRID: &str =
    "--gpus 4 --steps 2 --batch-size 2 --headless --strategy hybrid-shard --shard-group-size 2";
const EIGHT: &str = "--gpus 4 --steps 1 --batch-size 2 --grad-accum 8 --headless";
const SHORT: &str = "--gpus 4 --steps 2 --batch-size 1 --seq-len 8 --headless --reduce-bucket 1000000";
const OVERFLOW: &str =
    "--gpus 4 --steps 3 --batch-size 2 --headless --precision fp16 --inject overflow@rank1,step1";

pub(super) const GPUS: Chapter = Chapter {
    number: 11,
    guesses: &[
        run(Zero3, HYBRID).guess(
            "Hybrid sharding, two groups of two: bytes of parameters that a rank keeps.",
            Peak("parameters"),
        ),
        run(Zero3, HYBRID).guess(
            "The same, two steps: bytes that rank 0 sends in all-reduces, all of them to the other group.",
            Sent("all-reduce"),
        ),
        run(Zero3, "--gpus 4 --steps 2 --batch-size 2 --headless --secondary-shard-size 2").guess(
            "hpZ with neighbours in pairs, two steps: bytes that rank 0 sends in all-gathers. Forward gathers over four ranks, backward over two, the head once.",
            Sent("all-gather"),
        ),
    ],
    quiz: &[
        choose(
            "Code that is written for a rank can tell whether its peers are threads or processes",
            &["by the kind of group it gets", "by an environment variable it reads", "not at all"],
            2,
            "A group has one interface; threads or processes are chosen where the group is made.",
        ),
        choose(
            "Two nodes of eight GPUs, fast inside, slow between. HYBRID_SHARD shards",
            &["over all sixteen", "inside each node, and replicates between them", "between the nodes"],
            1,
            "Gathers stay on the fast links; only gradients cross the slow one.",
        ),
        planned(
            "Then model states of 7 billion parameters in the mixed recipe take how much per GPU?",
            || Recipe::MIXED.gigabytes(7_000_000_000, 8, Zero3),
            "GB",
            "Sharded over the eight of a node.",
        ),
        planned(
            "And with FULL_SHARD over all sixteen?",
            || Recipe::MIXED.gigabytes(7_000_000_000, 16, Zero3),
            "GB",
            "Half, and every gather crosses the slow link.",
        ),
    ],
};

pub(super) const CHOOSING: Chapter = Chapter {
    number: 12,
    guesses: &[
        run(Zero1, EIGHT).guess(
            "One step of eight micro-batches in ZeRO-1, four ranks: bytes that rank 0 sends.",
            SentInAll,
        ),
        run(Zero3, EIGHT).guess("The same in ZeRO-3.", SentInAll),
        run(Zero1, TWO).guess(
            "ZeRO-1, two sequences per micro-batch: the peak of one rank. In DDP it is 24,555,520.",
            TotalPeak,
        ),
    ],
    quiz: &[
        choose(
            "DDP, ZeRO-1 and ZeRO-3 all fit. Which do you measure first?",
            &["ZeRO-3: it is the most advanced", "the lowest stage", "whichever has the largest buckets"],
            1,
            "Higher stages buy memory, and you have enough.",
        ),
        planned(
            "8 micro-batches per step: how many times the model does ZeRO-3 send?",
            || Sweeps::of(Zero3, 8, false).total() as f64,
            "times",
            "Three per micro-batch, if no gather is saved.",
        ),
        planned(
            "30 billion parameters, mixed, 8 GPUs, ZeRO-2: model states per GPU?",
            || Recipe::MIXED.gigabytes(30_000_000_000, 8, Zero2),
            "GB",
            "More than a card of 80 GB has, whatever a table says about 7B to 30B.",
        ),
        choose(
            "Which number compares two runs fairly?",
            &["steps per second", "tokens per second", "memory"],
            1,
            "A run with a larger batch takes fewer, longer steps.",
        ),
    ],
};

pub(super) const CLAIMS: Chapter = Chapter {
    number: 13,
    guesses: &[
        run(Zero1, BF16_OF_EIGHT).guess(
            "\"Optimizer states take 32 bytes per parameter.\" bf16 with fp32 masters, ZeRO-1 on eight ranks: bytes of optimizer states on each.",
            Peak("optimizer"),
        ),
        run(Zero2, ONE_BUCKET).guess(
            "\"A bucket of 5e8 is 500 MB.\" ZeRO-2 in fp32 with all 918,656 elements in one bucket: bytes of communication buckets.",
            Peak("communication buckets"),
        ),
        run(Zero1, ACCUMULATED).guess(
            "\"ZeRO-1 costs what ZeRO-2 costs.\" Two steps of four micro-batches in ZeRO-1: bytes that rank 0 sends.",
            SentInAll,
        ),
    ],
    quiz: &[
        planned(
            "ZeRO-1 in the mixed recipe on 8 GPUs saves how many times?",
            || {
                Recipe::MIXED.gigabytes(1_000_000_000, 8, Ddp)
                    / Recipe::MIXED.gigabytes(1_000_000_000, 8, Zero1)
            },
            "times",
            "Not 4: that is the limit for ever more GPUs.",
        ),
        planned(
            "Optimizer states in the mixed recipe, bytes per parameter?",
            || Recipe::MIXED.optimizer() as f64,
            "bytes",
            "Masters, momentum and variance, four each.",
        ),
        run(Zero2, ACCUMULATED).measured(
            "Two steps of four micro-batches in ZeRO-2: bytes that rank 0 sends?",
            SentInAll,
            "Four reduce-scatters and one all-gather per step, where ZeRO-1 has one of each.",
        ),
        choose(
            "\"70 GB for 7B with DDP\" leaves out",
            &["momentum and variance", "the master weights, and adds up wrongly", "the gradients"],
            1,
            "14 + 14 + 56 is 84; with fp32 masters it is 112.",
        ),
    ],
};

pub(super) const DIAGNOSIS: Chapter = Chapter {
    number: 14,
    guesses: &[
        run(Zero2, OVERFLOW).guess(
            "ZeRO-2 in fp16, three steps, of which the second overflows on rank 1: bytes that rank 0 sends in reduce-scatters.",
            Sent("reduce-scatter"),
        ),
        run(Zero2, OVERFLOW).guess(
            "The same run: bytes that rank 0 sends in all-gathers.",
            Sent("all-gather"),
        ),
        run(Zero2, SHORT).guess(
            "ZeRO-2, one sequence of 8 tokens, the whole model in one bucket: bytes of communication buckets.",
            Peak("communication buckets"),
        ),
        run(Zero2, SHORT).guess("The same run: the peak of one rank. ZeRO-1's is 9,494,592.", TotalPeak),
    ],
    quiz: &[
        choose(
            "Every rank but rank 1 reports a time-out in a reduce-scatter. Where do you look?",
            &["at the network", "at rank 1", "at the rank that reported first"],
            1,
            "The others waited for it.",
        ),
        choose(
            "DDP and ZeRO-2 with accumulation differ in the sixth digit of the loss. You",
            &["look for a bug in ZeRO-2", "expect it: sums associate differently", "lower the learning rate"],
            1,
            "DDP adds micro-batches first, ZeRO-2 ranks first.",
        ),
        choose(
            "In fp16, one rank overflows in step 4. What does a healthy run do?",
            &["stop", "skip the step on all ranks", "skip the step on that rank"],
            1,
            "And after some overflows it halves the scale.",
        ),
        choose(
            "A small model runs out of memory in ZeRO-2 and fits in ZeRO-1. First suspect:",
            &["buckets", "activations", "optimizer states"],
            0,
            "ZeRO-2 adds one class of memory that ZeRO-1 does not have.",
        ),
    ],
};
