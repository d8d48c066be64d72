//! The loss scale of the next step.

use exercises::loss_scaler::Scale;

/// Halves the scale after overflows, doubles it after a clean window.
pub fn next(scale: &mut Scale, overflow: bool) {
    if overflow {
        scale.clean = 0;
        match scale.left {
            2.. => scale.left -= 1,
            _ => scale.scale /= 2.0,
        }
        return;
    }
    scale.clean += 1;
    if scale.clean > 1 && (scale.clean - 1).is_multiple_of(scale.window) {
        scale.scale *= 2.0;
        scale.left = scale.hysteresis;
    }
}
