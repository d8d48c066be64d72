//! The crate's tests, in one program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod behaviour;
mod program;
mod pty;
mod screens;
mod sizes;
mod sums;
mod support;
mod terminal;
