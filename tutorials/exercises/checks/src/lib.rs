//! The checks for the book's exercises.
//!
//! An exercise is a crate next to this one: a starter with a function body to write (`src/lib.rs`),
//! a solution, and a program that passes both to a check of this crate. A check compares an answer
//! with an oracle: the workspace's own code, or arithmetic in which every number shows which ranks
//! it came from, so that the check can say what is wrong. Correct answers are [scored](score)
//! against the costs that the planner predicts. If an exercise is a part of a stage, the remainder
//! of the stage is the real one (`stage.rs`, a build script, cuts the part out), and the check is
//! the [contract](::stages::contract) that real stages satisfy.

pub mod bucket;
pub mod hybrid_reduction;
pub mod loss_scaler;
pub mod overlap_a_read;
pub mod page_an_optimizer;
pub mod partition;
pub mod planner_formula;
mod program;
mod provenance;
pub mod reshard;
pub mod ring_all_reduce;
pub mod score;
pub mod shard_norm;
pub mod stage;

pub use program::main;
pub use score::{Figure, Score};

/// A check's result: the score, or a sentence that says what is wrong.
pub type Verdict = Result<Score, String>;

/// A check, ready to run.
pub type Check = fn() -> Verdict;

/// Runs `check`. A panic in the answer is a verdict too.
pub fn guarded(check: Check) -> Verdict {
    std::panic::catch_unwind(check).unwrap_or_else(|_| Err("it panicked; the message is above".into()))
}
