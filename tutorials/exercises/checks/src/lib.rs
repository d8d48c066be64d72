//! What checks the book's exercises.
//!
//! An exercise is a crate beside this one: a starter with a body to write (`src/lib.rs`), a solution, and a program that
//! hands both to a check of this crate. A check runs what it is given beside an oracle: the workspace's own code, or
//! arithmetic in which every number says where it came from, so that what is wrong can be said in words. What is right is
//! [scored](score) against what the planner says is enough. Where an exercise is a part of a stage, the rest of the
//! stage around it is the real one (`stage.rs`, a build script, cuts the part out), and the check is the
//! [contract](::stages::contract) that real stages keep.

pub mod bucket;
pub mod hybrid_reduction;
pub mod loss_scaler;
pub mod partition;
pub mod planner_formula;
mod program;
mod provenance;
pub mod ring_all_reduce;
pub mod score;
pub mod shard_norm;
pub mod stage;

pub use program::main;
pub use score::Score;

/// How a check ends: the score, or what is wrong.
pub type Verdict = Result<Score, String>;

/// A check, ready to run.
pub type Check = fn() -> Verdict;

/// Runs `check`; a panic in what it checks is a verdict too.
///
/// # Errors
/// What is wrong, in words.
pub fn guarded(check: Check) -> Verdict {
    std::panic::catch_unwind(check).unwrap_or_else(|_| Err("it panicked; the message is above".into()))
}
