//! The crate's tests, in one program.

mod common;
mod hub;
mod pace;
mod recording;
mod snapshot;
