//! The crate's tests, in one program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bounds;
mod common;
mod hub;
mod pace;
mod recording;
mod relay;
mod say;
mod snapshot;
mod socket;
mod unit_set;
