//! Predictions against closed forms, properties and numbers computed by hand.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

mod closed_forms;
mod offload;
mod properties;
mod remedies;
mod requirements;
