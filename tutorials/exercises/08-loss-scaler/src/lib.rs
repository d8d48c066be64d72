//! # Chapter 8: the loss scale of the next step
//!
//! Goal: the scale goes where DeepSpeed's goes: down after overflows, up after a window of clean steps.
//!
//! Check: `cargo run -p tutorials -- check loss-scaler`; a hint: `--hints 1`, another: `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

use exercises::loss_scaler::Scale;

/// A step is over. An overflow uses up hysteresis and then halves the scale; a window of clean steps doubles it and refills
/// the hysteresis. Of a scale there are `scale` itself, `left` (overflows until it halves, that one included), `clean` (steps
/// since the last overflow), and what does not change: `window`, and `hysteresis`, to which `left` is refilled.
pub fn next(scale: &mut Scale, overflow: bool) {
    // Your code here.
}
