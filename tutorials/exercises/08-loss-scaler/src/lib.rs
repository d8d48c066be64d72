//! # Chapter 8: the loss scale of the next step
//!
//! Goal: the scale changes as DeepSpeed's does: down after overflows, up after a clean step and a
//! window of others.
//!
//! Check: `cargo run -p tutorials -- check loss-scaler`; hints: `--hints 1`, `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

use exercises::loss_scaler::Scale;

/// Updates the scale after a step. An overflow uses up hysteresis and then halves the scale. A window
/// of clean steps doubles it and refills the hysteresis, and so does every further one; the first
/// clean step at the start or after an overflow belongs to no window. `scale` is the scale itself,
/// `left` the overflows until it halves, including the one that halves it, and `clean` the steps
/// since the last overflow. Two fields never change: `window`, and `hysteresis`, the value to which
/// `left` is refilled.
pub fn next(scale: &mut Scale, overflow: bool) {
    // Your code here.
}
