//! Every chapter's questions.

use super::question::Answer::{Choice, Number};
use super::question::Compute::{Measured, Planned};
use super::question::{Chapter, Figure, Guess, Question, Run};
use planner::Stage::{Ddp, Zero2, Zero3};
use planner::{Recipe, Stage};

/// The chapters, in order.
pub const ALL: &[Chapter] = &[FIRST_RUN, BYTES];

/// The run that most chapters use: four ranks, five steps.
const FIVE: &str = "--gpus 4 --steps 5 --headless";

const fn run(stage: Stage, flags: &'static str) -> Run {
    Run { stage, flags }
}

/// Model states per rank in GB.
fn states(parameters: u64, gpus: usize, recipe: Recipe, stage: Stage) -> f64 {
    recipe.model_states(&[parameters], gpus, stage).total() as f64 / 1e9
}

const FIRST_RUN: Chapter = Chapter {
    number: 0,
    guesses: &[
        Guess {
            ask: "ZeRO-3, four ranks: bytes of parameters that a rank keeps between steps.",
            run: run(Zero3, FIVE),
            figure: Figure::Peak("parameters"),
        },
        Guess {
            ask: "ZeRO-3, four ranks: bytes of optimizer states that a rank keeps.",
            run: run(Zero3, FIVE),
            figure: Figure::Peak("optimizer"),
        },
        Guess {
            ask: "DDP, four ranks: bytes of optimizer states that a rank keeps.",
            run: run(Ddp, FIVE),
            figure: Figure::Peak("optimizer"),
        },
    ],
    quiz: &[
        Question {
            ask: "Two stages start from the same seed and see the same text. After training, their weights are",
            answer: Choice(
                &["the same, bit for bit", "the same to rounding", "different: sharding is an approximation"],
                0,
            ),
            why: "Sharding moves bytes. The sums are made in the same order, so nothing even rounds differently.",
        },
        Question {
            ask: "Which part of a rank's memory does ZeRO leave alone?",
            answer: Choice(&["parameters", "gradients", "optimizer states", "activations"], 3),
            why: "Activations belong to a rank's own sequences. No other rank has a copy, so there is nothing to share out.",
        },
        Question {
            ask: "How many bytes of gradients does DDP keep per rank for this model, in fp32?",
            answer: Number(Measured(run(Ddp, FIVE), Figure::Peak("gradients")), "bytes"),
            why: "Four bytes for each of the 918,656 parameters, on every rank.",
        },
    ],
};

const BYTES: Chapter = Chapter {
    number: 1,
    guesses: &[
        Guess {
            ask: "DDP, four ranks: the peak of one rank, all classes together.",
            run: run(Ddp, FIVE),
            figure: Figure::TotalPeak,
        },
        Guess {
            ask: "ZeRO-3, four ranks, one sequence per rank: bytes of activations.",
            run: run(Zero3, "--gpus 4 --steps 5 --batch-size 1 --headless"),
            figure: Figure::Peak("activations"),
        },
    ],
    quiz: &[
        Question {
            ask: "Model states of 13 billion parameters in the mixed recipe on one GPU?",
            answer: Number(Planned(|| states(13_000_000_000, 1, Recipe::MIXED, Ddp)), "GB"),
            why: "Sixteen bytes per parameter: 2 + 2 + 12.",
        },
        Question {
            ask: "And on eight GPUs with ZeRO-2?",
            answer: Number(Planned(|| states(13_000_000_000, 8, Recipe::MIXED, Zero2)), "GB"),
            why: "2 bytes of weights stay whole; the other 14 are divided by eight.",
        },
        Question {
            ask: "In the mixed recipe, by how much does ZeRO-1 shrink the model states at most, with ever more GPUs?",
            answer: Choice(&["2 times", "4 times", "as many times as there are GPUs"], 1),
            why: "16 bytes go towards the 4 that stay replicated: weights and gradients.",
        },
        Question {
            ask: "Twice as many GPUs, and a rank still runs out of memory at the same batch size per rank. Why?",
            answer: Choice(
                &[
                    "the new GPUs hold copies of the model states",
                    "activations of one rank's own sequences do not shrink with more GPUs",
                    "communication buckets grow with the world size",
                ],
                1,
            ),
            why: "Model states shrink, activations do not. Lower the batch size per rank, or recompute.",
        },
    ],
};
