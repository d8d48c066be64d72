//! The crate's tests, in one program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod apart;
mod attached;
mod behaviour;
mod compared;
mod damage;
mod details;
mod display;
mod fit;
mod footer;
mod intervals;
mod keys;
mod live;
mod narration;
mod narrow;
mod outputs;
mod overlap;
mod palette;
mod places;
mod program;
mod pty;
mod screens;
#[path = "../simulate/mod.rs"]
mod simulate;
mod sizes;
mod speed;
mod sums;
mod support;
mod terminal;
mod trace;
