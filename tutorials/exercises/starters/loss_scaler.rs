//! Chapter 8: the loss scale of the next step.

use crate::checks::loss_scaler::Scale;

/// A step is over. An overflow uses up hysteresis and then halves the scale; a window of clean steps doubles it and refills
/// the hysteresis.
pub fn next(scale: &mut Scale, overflow: bool) {
    // Your code here.
}
