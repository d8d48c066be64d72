//! What one step does to parameters, the same on every rank.

use crate::{Error, Result};
use device::AdamW;

/// What a step does, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Optimizer steps finished before this one.
    pub step: u32,
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the momentum and of the variance.
    pub betas: (f32, f32),
    /// Added to the root of the variance.
    pub eps: f32,
    /// Whether momentum and variance are corrected for their start at 0.
    pub bias_correction: bool,
    /// Decoupled weight decay, for tensors of two or more dimensions.
    pub weight_decay: f32,
    /// Gradients with a larger norm are scaled down to it.
    pub max_grad_norm: f64,
    /// What the loss of this step was multiplied by, where it is scaled; an overflow then skips the
    /// step.
    pub loss_scale: Option<f64>,
}

impl Update {
    /// The norm that gradients of a scaled loss would have without its scale.
    pub fn unscaled(&self, norm: f64) -> f64 {
        norm / self.loss_scale.unwrap_or(1.0)
    }

    /// This update of gradients whose unscaled norm is `norm`. They are multiplied by one over the
    /// loss's scale, times `min(1, max_grad_norm / (norm + 1e-6))`, as PyTorch's `clip_grad_norm_`
    /// does. None if they have overflowed: the step is then skipped.
    ///
    /// # Errors
    /// If the norm is not finite although the loss is not scaled.
    pub fn scaled(&self, norm: f64) -> Result<Option<ScaledUpdate>> {
        match (norm.is_finite(), self.loss_scale) {
            (true, scale) => {
                let clip = (self.max_grad_norm / (norm + 1e-6)).min(1.0);
                let gradient_scale = (clip / scale.unwrap_or(1.0)) as f32;
                Ok(Some(ScaledUpdate { update: *self, gradient_scale }))
            }
            (false, Some(_)) => Ok(None),
            (false, None) => Err(Error::NonFinite { norm, steps: self.step }),
        }
    }
}

/// An update with the factor that its gradients are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledUpdate {
    update: Update,
    gradient_scale: f32,
}

impl ScaledUpdate {
    /// The kernel's arguments, for tensors that weight decay applies to or not.
    pub(super) fn kernel(&self, decays: bool) -> AdamW {
        let Update { step, lr, betas: (beta1, beta2), eps, bias_correction, weight_decay, .. } = self.update;
        AdamW {
            lr: lr as f32,
            beta1,
            beta2,
            eps,
            weight_decay: if decays { weight_decay } else { 0.0 },
            step: bias_correction.then_some(step + 1),
            gradient_scale: self.gradient_scale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_follows_the_norm() {
        let scale = |update: Update, norm| update.scaled(norm).unwrap().map(|update| update.gradient_scale);
        let update = Update {
            step: 3,
            lr: 1e-3,
            betas: (0.9, 0.95),
            eps: 1e-8,
            bias_correction: true,
            weight_decay: 0.1,
            max_grad_norm: 1.0,
            loss_scale: None,
        };
        assert_eq!(scale(update, 0.5), Some(1.0));
        assert!((scale(update, 4.0).unwrap() - 0.25).abs() < 1e-6);
        assert!(matches!(update.scaled(f64::NAN), Err(Error::NonFinite { steps: 3, .. })));
        let scaled = Update { loss_scale: Some(1024.0), ..update };
        assert_eq!(scaled.unscaled(512.0), 0.5);
        assert_eq!(scale(scaled, 0.5), Some(1.0 / 1024.0));
        assert_eq!(scale(scaled, f64::INFINITY), None, "an overflow skips the step");
    }

    #[test]
    fn a_kernel_is_told_what_the_update_says() {
        let update = Update {
            step: 3,
            lr: 0.5,
            betas: (0.25, 0.75),
            eps: 1e-3,
            bias_correction: true,
            weight_decay: 0.125,
            max_grad_norm: 2.0,
            loss_scale: None,
        };
        let kernel = AdamW {
            lr: 0.5,
            beta1: 0.25,
            beta2: 0.75,
            eps: 1e-3,
            weight_decay: 0.125,
            step: Some(4),
            gradient_scale: 0.0625,
        };
        let scaled = ScaledUpdate { update, gradient_scale: 0.0625 };
        assert_eq!(scaled.kernel(true), kernel);
        assert_eq!(scaled.kernel(false), AdamW { weight_decay: 0.0, ..kernel });
        let biased = ScaledUpdate { update: Update { bias_correction: false, ..update }, ..scaled };
        assert_eq!(biased.kernel(true), AdamW { step: None, ..kernel });
    }
}
