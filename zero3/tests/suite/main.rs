//! The program as a user meets it: its flags, its configuration files, and its screen.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed expectation is a panic")]

mod cli;
mod config;
mod offload;
mod pretrained;
#[allow(dead_code, reason = "the visualizer's own tests use the rest")]
#[path = "../../../viz/tests/suite/pty.rs"]
mod pty;
mod residency;
mod screen;
mod watched;
