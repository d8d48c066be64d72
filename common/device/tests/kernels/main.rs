//! Every kernel against an independent reference in f64, over random shapes, storage types and
//! numbers of threads.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

mod attention;
mod cross_entropy;
mod elementwise;
mod head_norm;
mod matmul;
mod oracle;
mod refusals;
mod rows;
mod support;
