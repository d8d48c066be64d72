//! The planner's tables and screens, against published tables and numbers computed by hand.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

mod claims;
mod program;
mod recipes;
mod screens;
mod times;
