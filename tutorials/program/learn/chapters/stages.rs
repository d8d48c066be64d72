//! Chapters 4 to 6: the three stages of ZeRO.

use super::{choose, planned, run};
use crate::learn::flags::{ACCUMULATED, ONE_UNIT, TEXTBOOK, TWO};
use crate::learn::question::Chapter;
use crate::learn::question::Figure::{Peak, Sent, SentInAll};
use planner::Recipe;
use planner::Stage::{Zero1, Zero2, Zero3};
use planner::closed::Sweeps;

pub(super) const ZERO1: Chapter = Chapter {
    number: 4,
    guesses: &[
        run(Zero1, TWO).guess("ZeRO-1, four ranks: bytes of optimizer states on each.", Peak("optimizer")),
        run(Zero1, TWO).guess("ZeRO-1, two steps: bytes that rank 0 sends.", SentInAll),
        run(Zero1, TEXTBOOK).guess("The same with `--grad-sync all-reduce`.", SentInAll),
    ],
    quiz: &[
        choose(
            "What does rank 2 own in ZeRO-1?",
            &[
                "every fourth layer",
                "a slice of every unit's optimizer states",
                "the optimizer states of the last layers",
            ],
            1,
            "A slice of everything, so that all ranks have the same work at every moment.",
        ),
        choose(
            "Gradients are reduce-scattered and parameters all-gathered. Compared with DDP, a rank sends",
            &["half", "as much", "1.5 × as much"],
            1,
            "An all-reduce is the same two halves.",
        ),
        planned(
            "And with the textbook all-reduce: how many times the model's size, times (N−1)/N?",
            || Sweeps::of(Zero1, 1, true).total() as f64,
            "times",
            "Two for the all-reduce, one for the all-gather.",
        ),
        planned(
            "7 billion parameters, mixed recipe, 64 GPUs, ZeRO-1: model states per GPU?",
            || Recipe::MIXED.gigabytes(7_000_000_000, 64, Zero1),
            "GB",
            "4 bytes stay whole: however many GPUs there are, it never falls below 28.",
        ),
    ],
};

pub(super) const ZERO2: Chapter = Chapter {
    number: 5,
    guesses: &[
        run(Zero2, TWO).guess("ZeRO-2, four ranks: bytes of gradients on each.", Peak("gradients")),
        run(Zero2, TWO).guess(
            "Bytes of communication buckets at their peak: how many blocks is that?",
            Peak("communication buckets"),
        ),
        run(Zero2, ACCUMULATED).guess("Two steps of four micro-batches: bytes that rank 0 sends.", SentInAll),
    ],
    quiz: &[
        choose(
            "Backward computes every gradient. How can a rank hold only a quarter of them?",
            &[
                "it computes only its own quarter",
                "full gradients of a unit are reduced and freed before earlier units are computed",
                "gradients are recomputed in the step",
            ],
            1,
            "They drain as backward goes.",
        ),
        planned(
            "With 8 micro-batches per step, how many times the model does ZeRO-2 send?",
            || Sweeps::of(Zero2, 8, false).total() as f64,
            "times",
            "One reduce-scatter per micro-batch and one all-gather.",
        ),
        planned(
            "And ZeRO-1?",
            || Sweeps::of(Zero1, 8, false).total() as f64,
            "times",
            "It has a place to accumulate full gradients, so it reduces once.",
        ),
        choose(
            "A small model takes more memory in ZeRO-2 than in ZeRO-1. Look first at",
            &["the learning rate", "the bucket size", "the number of heads"],
            1,
            "Two buckets of a default made for billions of parameters outweigh a small model's gradients.",
        ),
    ],
};

pub(super) const ZERO3: Chapter = Chapter {
    number: 6,
    guesses: &[
        run(Zero3, TWO)
            .guess("ZeRO-3, four ranks: bytes of parameters on each between steps.", Peak("parameters")),
        run(Zero3, TWO).guess("Bytes of gathered parameters at their peak.", Peak("gathered parameters")),
        run(Zero3, TWO).guess(
            "Two steps: bytes that rank 0 sends in all-gathers. The head needs no second gather.",
            Sent("all-gather"),
        ),
    ],
    quiz: &[
        choose(
            "How many units are whole at the same time, with one gathered ahead?",
            &["one", "two", "all of them"],
            1,
            "The one that computes, and the next.",
        ),
        choose(
            "Why is there no all-gather after ZeRO-3's update?",
            &[
                "ranks send their slices with the gradients",
                "the next forward gathers every unit anyway",
                "rank 0 broadcasts the parameters",
            ],
            1,
            "Gathering early would only hold the memory for longer.",
        ),
        run(Zero3, ONE_UNIT).measured(
            "The whole model is one unit (`--wrap model`): bytes of gathered parameters?",
            Peak("gathered parameters"),
            "All of them at once, which sharding is meant to avoid.",
        ),
        planned(
            "13 billion parameters, mixed recipe, 8 GPUs, ZeRO-3: model states per GPU?",
            || Recipe::MIXED.gigabytes(13_000_000_000, 8, Zero3),
            "GB",
            "All 16 bytes are divided by eight.",
        ),
    ],
};
