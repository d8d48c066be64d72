//! # Chapter 8: the loss scale of the next step
//!
//! Goal: the scale changes as DeepSpeed's does. It goes down after overflows, and up after one
//! clean step plus a window of further ones.
//!
//! Check: `cargo run -p tutorials -- check loss-scaler`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

use exercises::loss_scaler::Scale;

/// Updates the scale after a step. An overflow uses up hysteresis and then halves the scale. Every
/// complete window of clean steps doubles it and refills the hysteresis. The first clean step at
/// the start or after an overflow does not belong to a window. `scale` is the scale itself, `left`
/// the number of overflows until it halves, including the one that halves it, and `clean` the
/// number of steps since the last overflow. Two fields never change: `window`, and `hysteresis`,
/// the value to which `left` is refilled.
pub fn next(scale: &mut Scale, overflow: bool) {
    // Your code here.
}
