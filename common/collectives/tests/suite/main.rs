//! Collectives between ranks, on threads and on processes' connections: their results, and the
//! effects of failures.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

mod common;
mod failures;
mod operations;
mod processes;
mod rendezvous;
mod telling;
mod trust;
