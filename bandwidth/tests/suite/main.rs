//! The program as its user runs it.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

mod command;
mod nccl;
