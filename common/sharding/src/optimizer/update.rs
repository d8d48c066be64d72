//! The update of one step, the same on every rank.

use crate::{Error, Result};
use device::AdamW;

/// The update of one step, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The training step, counted from 0; skipped steps count.
    pub step: u32,
    /// Number of updates finished before this one; skipped steps have none.
    pub updates: u32,
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
    /// The factor that the loss of this step was multiplied by, if it is scaled; an overflow then
    /// skips the step.
    pub loss_scale: Option<f64>,
}

impl Update {
    /// Returns the norm of the gradients without the loss scale, given their `norm` with it.
    pub fn unscale_norm(&self, norm: f64) -> f64 {
        norm / self.loss_scale.unwrap_or(1.0)
    }

    /// Clips and unscales gradients whose unscaled norm is `norm`: the returned update multiplies
    /// them by `min(1, max_grad_norm / (norm + 1e-6)) / loss_scale`, as PyTorch's `clip_grad_norm_`
    /// does. `None` if they have overflowed: the step is then skipped.
    ///
    /// # Errors
    /// If the norm is not finite although the loss is not scaled.
    pub fn clip(&self, norm: f64) -> Result<Option<ScaledUpdate>> {
        match (norm.is_finite(), self.loss_scale) {
            (true, scale) => {
                let clip = (self.max_grad_norm / (norm + 1e-6)).min(1.0);
                let gradient_scale = (clip / scale.unwrap_or(1.0)) as f32;
                Ok(Some(ScaledUpdate { update: *self, gradient_scale }))
            }
            (false, Some(_)) => Ok(None),
            (false, None) => Err(Error::NonFinite { norm, step: self.step, updates: self.updates }),
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
    /// Returns the kernel's arguments; `decays` says whether weight decay applies to the tensor.
    pub(super) fn kernel(&self, decays: bool) -> AdamW {
        let Update { updates, lr, betas: (beta1, beta2), eps, bias_correction, weight_decay, .. } =
            self.update;
        AdamW {
            lr: lr as f32,
            beta1,
            beta2,
            eps,
            weight_decay: if decays { weight_decay } else { 0.0 },
            step: bias_correction.then_some(updates + 1),
            gradient_scale: self.gradient_scale,
        }
    }
}

#[cfg(test)]
mod tests;
