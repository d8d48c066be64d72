//! The guarantees of a checkpoint: it reads back exactly as written, whole or not at all.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by a panic, in its helpers too")]

mod common;
mod corruption;
mod damage;
mod faults;
mod foreign;
mod formats;
mod model_files;
mod power;
mod replacing;
mod round_trip;
mod sharded;
