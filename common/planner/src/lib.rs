//! The planner: what a model needs in every stage of ZeRO, in tables.
//!
//! [`prediction`] computes, this crate prints: the `planner` program's [report], the ZeRO paper's
//! [table 1](paper), [DeepSpeed's estimators](estimators), the traffic of a step in [sweeps] over
//! the model, and popular [claims] about ZeRO next to the computed facts.
//!
//! Sizes are in bytes unless a name says otherwise; GB = 10⁹ bytes.

pub mod claims;
pub mod cli;
pub mod estimators;
pub mod numbers;
pub mod paper;
mod published;
pub mod report;
pub mod sweeps;
mod times;

pub use times::Timing;
