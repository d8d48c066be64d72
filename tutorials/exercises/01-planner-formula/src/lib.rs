//! # Chapter 1: what a rank holds
//!
//! Goal: the bytes of model states per rank, for DDP and the three stages of ZeRO, as the planner
//! computes them.
//!
//! Check: `cargo run -p tutorials -- check planner-formula`; hints: `--hints 1`, `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

/// Returns the bytes of model states on one of `ranks`. `stage` is 0 for DDP and 1 to 3 for ZeRO.
/// `bytes` are the bytes per parameter of weights, gradients and optimizer states. If the stage
/// shards anything, the parameters are padded to a multiple of the ranks, also where they stay
/// whole.
pub fn model_states(parameters: u64, ranks: u64, stage: u32, bytes: [u64; 3]) -> u64 {
    // Your code here.
    0
}
