//! The AdamW update (Loshchilov & Hutter, 2019).

use bytemuck::{Pod, Zeroable};

/// Hyper-parameters of one AdamW update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub lr: f32,
    /// Decay of the momentum.
    pub beta1: f32,
    /// Decay of the variance.
    pub beta2: f32,
    /// The constant added to the root of the variance.
    pub eps: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Number of this update, from 1, for the bias correction; `None` without a correction.
    pub step: Option<u32>,
    /// Gradients are multiplied by this first: clipping and loss scaling.
    pub gradient_scale: f32,
}

operation! {
    /// One AdamW update of f32 weights: `master`, `momentum` and `variance` in place from
    /// `gradients`.
    pub struct AdamWUpdate {
        /// Output, in the same pass: the new master weights rounded to its type.
        parameters: Option<W> = floats(len),
        /// Updated, f32.
        master: W = f32(len).updated(),
        /// Updated, f32.
        momentum: W = f32(len).updated(),
        /// Updated, f32.
        variance: W = f32(len).updated(),
        /// Gradients of any float type.
        gradients: R = floats(len),
    } with {
        /// Elements of each operand.
        len: usize,
        /// Hyper-parameters.
        settings: AdamW,
    }
}

/// The factors that one update multiplies by, the same on every device; bias corrections in f64,
/// rounded once. In the order of `Factors` of a GPU's kernel.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(crate) struct Factors {
    pub(crate) gradient_scale: f32,
    pub(crate) keep_momentum: f32,
    pub(crate) new_momentum: f32,
    pub(crate) keep_variance: f32,
    pub(crate) new_variance: f32,
    pub(crate) keep_weight: f32,
    pub(crate) step_size: f32,
    /// √(1 − β₂ᵗ), or 1 without a correction.
    pub(crate) root_correction: f32,
    pub(crate) eps: f32,
}

impl Factors {
    pub(crate) fn new(settings: AdamW) -> Self {
        let AdamW { lr, beta1, beta2, eps, weight_decay, step, gradient_scale } = settings;
        let (lr, beta1, beta2) = (f64::from(lr), f64::from(beta1), f64::from(beta2));
        let unbiased = |beta: f64| step.map_or(1.0, |step| 1.0 - libm::pow(beta, f64::from(step)));
        Factors {
            gradient_scale,
            keep_momentum: beta1 as f32,
            new_momentum: (1.0 - beta1) as f32,
            keep_variance: beta2 as f32,
            new_variance: (1.0 - beta2) as f32,
            keep_weight: (1.0 - lr * f64::from(weight_decay)) as f32,
            step_size: (lr / unbiased(beta1)) as f32,
            root_correction: unbiased(beta2).sqrt() as f32,
            eps,
        }
    }
}
