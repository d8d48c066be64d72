//! The CUDA kernels, without a GPU: their sources run by the host shim, against the CPU's kernels;
//! and compiled for several GPUs, where NVIDIA's compiler is installed.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

mod attention;
mod compile;
mod elementwise;
mod faults;
mod interface;
mod memory;
mod reductions;
mod rows;
mod shim;
