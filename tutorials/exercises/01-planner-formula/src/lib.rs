//! # Chapter 1: what a rank holds
//!
//! Goal: the bytes of model states per rank, for DDP and the three stages of ZeRO, as the planner computes them.
//!
//! Check: `cargo run -p tutorials -- check planner-formula`; a hint: `--hints 1`, another: `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

/// Bytes of model states on one of `ranks`. `stage` is 0 for DDP and 1 to 3 for ZeRO; `bytes` are those of weights,
/// gradients and optimizer states per parameter. Where anything is sharded, the parameters are padded to a multiple of
/// the ranks, for what stays whole too.
pub fn model_states(parameters: u64, ranks: u64, stage: u32, bytes: [u64; 3]) -> u64 {
    // Your code here.
    0
}
