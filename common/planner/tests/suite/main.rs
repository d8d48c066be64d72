//! The planner's predictions and screens, against published tables, closed forms and properties.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

mod claims;
mod closed_forms;
mod offload;
mod program;
mod properties;
mod recipes;
mod remedies;
mod requirements;
mod screens;
