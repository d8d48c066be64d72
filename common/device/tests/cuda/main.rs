//! The CUDA kernels, without a GPU: their sources run by the host shim, against the CPU's kernels.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

mod attention;
mod elementwise;
mod interface;
mod memory;
mod reductions;
mod rows;
mod shim;
