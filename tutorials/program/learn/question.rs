//! The chapters' questions, and how answers are computed.

pub use super::figure::Figure;
use super::runs::{Run, Runs};
use crate::equation;
use events::Operation;
use prediction::closed::{Sweeps, bus_bandwidth_factor};
use prediction::{Recipe, Stage};
use serde::Deserialize;
use trainer::{Failure, Result};

/// The questions of one chapter.
#[derive(Deserialize)]
pub struct Chapter {
    /// The chapter's number.
    pub number: u32,
    /// Numbers to guess before running.
    pub guesses: Vec<Guess>,
    /// The quiz.
    pub quiz: Vec<Question>,
}

/// A number of a run, to guess.
#[derive(Deserialize)]
pub struct Guess {
    /// The question.
    pub ask: String,
    /// The run that measures it.
    pub run: Run,
    /// The number to guess.
    pub figure: Figure,
}

/// A question of a quiz.
#[derive(Deserialize)]
pub struct Question {
    /// The question.
    pub ask: String,
    /// The correct answer.
    pub answer: Answer,
    /// The reason.
    pub why: String,
}

/// An answer.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Several choices, and the position of the correct one.
    Choice(Vec<String>, usize),
    /// A computed number, and its unit.
    Number(Compute, String),
}

/// The computation of a number. Model states are those of the recipe `mixed`.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compute {
    /// An expression such as `256 / (4 × 8)`.
    Arithmetic(String),
    /// GB of model states per GPU.
    Gigabytes {
        /// Parameters, in billions.
        billions: u64,
        /// Number of GPUs that shard the states as the stage does.
        gpus: usize,
        /// The stage.
        stage: Stage,
    },
    /// The bytes of model states in DDP, divided by those in the stage.
    Saving {
        /// Number of GPUs that shard the states as the stage does.
        gpus: usize,
        /// The stage.
        stage: Stage,
    },
    /// Bytes of all model states per parameter.
    StateBytes,
    /// Bytes of the optimizer states of this many parameters; GB if these are counted in billions.
    OptimizerBytes(u64),
    /// GB of a bucket of this many gradients in fp32.
    Bucket(f64),
    /// The data that a step sends, in multiples of the model size.
    Sweeps {
        /// The stage.
        stage: Stage,
        /// Number of micro-batches in the step.
        micro_batches: u64,
        /// Whether ZeRO-1 sums gradients with the textbook's all-reduce.
        textbook_all_reduce: bool,
    },
    /// The fraction of its buffer that a rank sends.
    ShareSent {
        /// The collective.
        operation: Operation,
        /// Number of participating ranks.
        ranks: u64,
    },
    /// A number that a run measures.
    Measured(Run, Figure),
}

/// Returns the GB of model states of `billions` billion parameters.
fn gigabytes(billions: u64, gpus: usize, stage: Stage) -> f64 {
    Recipe::MIXED.gigabytes(billions * 1_000_000_000, gpus, stage)
}

impl Compute {
    /// Computes the number.
    ///
    /// # Errors
    /// If the run fails, or the expression is invalid.
    pub fn value(&self, runs: &Runs) -> Result<f64> {
        Ok(match self {
            Compute::Arithmetic(text) => {
                equation::value(text).ok_or_else(|| Failure::run(format!("{text:?} is not an expression")))?
            }
            &Compute::Gigabytes { billions, gpus, stage } => gigabytes(billions, gpus, stage),
            &Compute::Saving { gpus, stage } => {
                gigabytes(1, gpus, Stage::REPLICATED) / gigabytes(1, gpus, stage)
            }
            Compute::StateBytes => Recipe::MIXED.total() as f64,
            Compute::OptimizerBytes(parameters) => (parameters * Recipe::MIXED.optimizer()) as f64,
            Compute::Bucket(gradients) => gradients * Recipe::FP32.gradients as f64 / 1e9,
            &Compute::Sweeps { stage, micro_batches, textbook_all_reduce } => {
                Sweeps::of(stage, micro_batches, textbook_all_reduce).total() as f64
            }
            &Compute::ShareSent { operation, ranks } => bus_bandwidth_factor(operation, ranks),
            Compute::Measured(run, figure) => figure.of(&*runs.report(run)?).1 as f64,
        })
    }
}

/// True if a typed answer differs from the correct one by at most the fraction `part`.
pub fn is_within(part: f64, typed: f64, answer: f64) -> bool {
    (typed - answer).abs() <= part * answer.abs()
}
