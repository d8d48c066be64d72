//! Forward and backward of whole models, compared with independent implementations.

// Clippy allows `unwrap` only in functions marked as tests; helpers need this line.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fixtures;
mod flat;
mod memory;
mod reference;
mod scalar;
mod views;
