//! # Chapter 1: what a rank holds
//!
//! Goal: the bytes of model states per rank, for DDP and the three stages of ZeRO, as the planner
//! computes them.
//!
//! Check: `cargo run -p tutorials -- check planner-formula`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

/// Returns the bytes of model states on each of `ranks`. `stage` is 0 for DDP and 1 to 3 for ZeRO.
/// `bytes` are the bytes per parameter of weights, gradients and optimizer states. If the stage
/// shards anything, the parameters are padded to a multiple of the number of ranks, including those
/// that are not sharded.
pub fn model_states(parameters: u64, ranks: u64, stage: u32, bytes: [u64; 3]) -> u64 {
    // Your code here.
    0
}
