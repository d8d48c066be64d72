//! The factors of an AdamW update, alike on every device.

use crate::kernels::AdamW;

/// What one update multiplies with; the bias corrections in f64, rounded once.
pub(crate) struct Factors {
    pub(crate) gradient_scale: f32,
    pub(crate) keep_momentum: f32,
    pub(crate) new_momentum: f32,
    pub(crate) keep_variance: f32,
    pub(crate) new_variance: f32,
    pub(crate) keep_weight: f32,
    pub(crate) step_size: f32,
    /// √(1 − β₂ᵗ)
    pub(crate) root_correction: f32,
    pub(crate) eps: f32,
}

impl Factors {
    pub(crate) fn new(update: AdamW) -> Self {
        let AdamW { lr, beta1, beta2, eps, weight_decay, step, gradient_scale } = update;
        let (lr, beta1, beta2) = (f64::from(lr), f64::from(beta1), f64::from(beta2));
        let step = f64::from(step);
        Factors {
            gradient_scale,
            keep_momentum: beta1 as f32,
            new_momentum: (1.0 - beta1) as f32,
            keep_variance: beta2 as f32,
            new_variance: (1.0 - beta2) as f32,
            keep_weight: (1.0 - lr * f64::from(weight_decay)) as f32,
            step_size: (lr / (1.0 - beta1.powf(step))) as f32,
            root_correction: (1.0 - beta2.powf(step)).sqrt() as f32,
            eps,
        }
    }
}
