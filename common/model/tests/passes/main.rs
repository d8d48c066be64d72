//! Forward and backward of whole models, against independent ones.

// Clippy takes only functions marked as tests for tests; these are their helpers.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fixtures;
mod flat;
mod memory;
mod reference;
mod scalar;
mod views;
