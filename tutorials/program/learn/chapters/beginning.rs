//! Chapters 0 to 3: the first run, bytes, collectives, DDP.

use super::{choose, planned, run};
use crate::learn::flags::{ACCUMULATED, FIVE, TWO};
use crate::learn::question::Chapter;
use crate::learn::question::Figure::{Peak, Sent, SentInAll, TotalPeak};
use events::Operation;
use planner::Recipe;
use planner::Stage::{Ddp, Zero2, Zero3};
use planner::closed::bus_bandwidth_factor;

pub(super) const FIRST_RUN: Chapter = Chapter {
    number: 0,
    guesses: &[
        run(Zero3, FIVE).guess(
            "ZeRO-3, four ranks: bytes of parameters that a rank keeps between steps.",
            Peak("parameters"),
        ),
        run(Zero3, FIVE)
            .guess("ZeRO-3, four ranks: bytes of optimizer states that a rank keeps.", Peak("optimizer")),
        run(Ddp, FIVE)
            .guess("DDP, four ranks: bytes of optimizer states that a rank keeps.", Peak("optimizer")),
    ],
    quiz: &[
        choose(
            "Two stages start from the same seed and see the same text, one micro-batch per step. After training, \
             their weights are",
            &["the same, bit for bit", "the same to rounding", "different: sharding is an approximation"],
            0,
            "Sharding moves bytes. The sums are made in the same order, so nothing even rounds differently.",
        ),
        choose(
            "Which part of a rank's memory does ZeRO leave alone?",
            &["parameters", "gradients", "optimizer states", "activations"],
            3,
            "Activations belong to a rank's own sequences. No other rank has a copy, so there is nothing to share out.",
        ),
        run(Ddp, FIVE).measured(
            "How many bytes of gradients does DDP keep per rank for this model, in fp32?",
            Peak("gradients"),
            "Four bytes for every parameter, on every rank.",
        ),
    ],
};

pub(super) const BYTES: Chapter = Chapter {
    number: 1,
    guesses: &[
        run(Ddp, FIVE).guess("DDP, four ranks: the peak of one rank, all classes together.", TotalPeak),
        run(Zero3, "--gpus 4 --steps 5 --batch-size 1 --headless")
            .guess("ZeRO-3, four ranks, one sequence per rank: bytes of activations.", Peak("activations")),
    ],
    quiz: &[
        planned(
            "Model states of 13 billion parameters in the mixed recipe on one GPU?",
            || Recipe::MIXED.gigabytes(13_000_000_000, 1, Ddp),
            "GB",
            "Sixteen bytes per parameter: 2 + 2 + 12.",
        ),
        planned(
            "And on eight GPUs with ZeRO-2?",
            || Recipe::MIXED.gigabytes(13_000_000_000, 8, Zero2),
            "GB",
            "2 bytes of weights stay whole; the other 14 are divided by eight.",
        ),
        choose(
            "In the mixed recipe, by how much does ZeRO-1 shrink the model states at most, with ever more GPUs?",
            &["2 times", "4 times", "as many times as there are GPUs"],
            1,
            "16 bytes go towards the 4 that stay replicated: weights and gradients.",
        ),
        choose(
            "Twice as many GPUs, and a rank still runs out of memory at the same batch size per rank. Why?",
            &[
                "the new GPUs hold copies of the model states",
                "activations of one rank's own sequences do not shrink with more GPUs",
                "communication buckets grow with the world size",
            ],
            1,
            "Model states shrink, activations do not. Lower the batch size per rank, or recompute.",
        ),
    ],
};

pub(super) const COLLECTIVES: Chapter = Chapter {
    number: 2,
    guesses: &[
        run(Ddp, TWO)
            .guess("DDP, four ranks, two steps: bytes that rank 0 sends in all-reduces.", Sent("all-reduce")),
        run(Ddp, "--gpus 8 --steps 2 --batch-size 2 --headless")
            .guess("The same on eight ranks: more, or less, and how many?", Sent("all-reduce")),
    ],
    quiz: &[
        choose(
            "An all-reduce is",
            &["a broadcast from every rank", "a reduce-scatter and then an all-gather", "N reduce-scatters"],
            1,
            "First each rank gets the sum of one slice, then each rank gets all slices.",
        ),
        planned(
            "A buffer of 1 GB, all-reduced by eight ranks: how many GB does each rank send?",
            || bus_bandwidth_factor(Operation::AllReduce, 8),
            "GB",
            "2 (N−1)/N times the buffer.",
        ),
        planned(
            "And in a reduce-scatter of the same buffer?",
            || bus_bandwidth_factor(Operation::ReduceScatter, 8),
            "GB",
            "(N−1)/N: a rank sends all but its own slice.",
        ),
        choose(
            "Sums over a ring and over a tree give different last bits. Why?",
            &[
                "a ring loses precision on the wire",
                "floats are added in another order",
                "one of them has a bug",
            ],
            1,
            "(a + b) + c and a + (b + c) round differently.",
        ),
    ],
};

pub(super) const DDP: Chapter = Chapter {
    number: 3,
    guesses: &[
        run(Ddp, TWO).guess("DDP, four ranks: bytes of gradients on each.", Peak("gradients")),
        run(Ddp, ACCUMULATED).guess("Two steps of four micro-batches: bytes that rank 0 sends.", SentInAll),
    ],
    quiz: &[
        choose(
            "With four times as many micro-batches per step, DDP sends per step",
            &["as much", "twice as much", "four times as much"],
            0,
            "Gradients accumulate on the rank and travel once.",
        ),
        choose(
            "Why are gradients cut into buckets?",
            &[
                "a collective cannot move more than a bucket",
                "so that reducing late layers overlaps with computing early ones",
                "so that each rank can own one",
            ],
            1,
            "Backward finishes the last layers first; their gradients can leave at once.",
        ),
        choose(
            "Where is the division by the number of ranks?",
            &[
                "in the all-reduce",
                "in the optimizer",
                "in the loss, which is divided by the tokens of the global batch",
            ],
            2,
            "Scaled at its source, the plain sum over ranks and micro-batches is the mean.",
        ),
        run(Ddp, TWO).measured(
            "Bytes of optimizer states on one rank of this DDP run?",
            Peak("optimizer"),
            "Every rank holds all of them: four copies of the same numbers.",
        ),
    ],
};
