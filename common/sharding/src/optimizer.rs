//! AdamW (Loshchilov & Hutter, 2019) on any slice of a unit.

use crate::Result;
use crate::partition::{Partition, UnitId};
use crate::rank::Rank;
use device::{AdamW, Buffer, Class, DType, View, ViewMut};
use std::ops::Range;

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
    /// Decoupled weight decay, for tensors of two or more dimensions.
    pub weight_decay: f32,
    /// Gradients with a larger norm are scaled down to it.
    pub max_grad_norm: f64,
}

impl Update {
    /// What gradients of norm `norm` are multiplied with: `min(1, max_grad_norm / (norm + 1e-6))`, as PyTorch's
    /// `clip_grad_norm_` does.
    ///
    /// # Errors
    /// If the norm is not finite.
    pub fn clip(&self, norm: f64) -> Result<f32> {
        if !norm.is_finite() {
            return Err(crate::Error::NonFinite { norm, steps: self.step });
        }
        Ok((self.max_grad_norm / (norm + 1e-6)).min(1.0) as f32)
    }

    fn kernel(&self, decays: bool, gradient_scale: f32) -> AdamW {
        AdamW {
            lr: self.lr as f32,
            beta1: self.betas.0,
            beta2: self.betas.1,
            eps: self.eps,
            weight_decay: if decays { self.weight_decay } else { 0.0 },
            step: self.step + 1,
            gradient_scale,
        }
    }
}

/// Optimizer states for one slice of one unit: momentum and variance, f32.
pub struct AdamWShard {
    momentum: Buffer,
    variance: Buffer,
    /// Stretches of the slice with the same weight decay, relative to its start.
    stretches: Vec<(Range<usize>, bool)>,
}

impl AdamWShard {
    /// Zeroed states for elements `slice` of `unit`.
    ///
    /// # Errors
    /// If the rank is out of memory.
    pub fn new(rank: &Rank, partition: &Partition, unit: UnitId, slice: Range<usize>) -> Result<Self> {
        let zeros = || rank.device.zeros(Class::Optimizer, DType::F32, slice.len());
        Ok(AdamWShard {
            momentum: zeros()?,
            variance: zeros()?,
            stretches: stretches(partition, unit, &slice),
        })
    }

    /// Updates the slice's `parameters` (f32) from its `gradients`, which are multiplied with `gradient_scale` first.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn update(
        &mut self,
        rank: &Rank,
        mut parameters: ViewMut<'_>,
        gradients: View<'_>,
        update: &Update,
        gradient_scale: f32,
    ) -> Result<()> {
        for (range, decays) in &self.stretches {
            rank.kernels().adamw(
                parameters.slice_mut(range.clone()),
                self.momentum.slice_mut(range.clone()),
                self.variance.slice_mut(range.clone()),
                gradients.slice(range.clone()),
                update.kernel(*decays, gradient_scale),
            )?;
        }
        Ok(())
    }
}

fn stretches(partition: &Partition, unit: UnitId, slice: &Range<usize>) -> Vec<(Range<usize>, bool)> {
    let mut stretches: Vec<(Range<usize>, bool)> = Vec::new();
    for slot in &partition.units[unit].slots {
        let (start, end) = (slot.start.max(slice.start), slot.range().end.min(slice.end));
        if start >= end {
            continue;
        }
        let range = start - slice.start..end - slice.start;
        match stretches.last_mut() {
            Some((last, decays)) if *decays == slot.decays && last.end == range.start => last.end = range.end,
            _ => stretches.push((range, slot.decays)),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Layout, ModelConfig};

    #[test]
    fn stretches_of_all_slices_cover_every_tensor_with_its_own_decay() {
        let layout = Layout::new(&ModelConfig { width: 9, feed_forward: 7, ..ModelConfig::tiny() });
        let partition = Partition::by_layer(&layout, 3);
        for (id, unit) in partition.units.iter().enumerate() {
            let mut decays = vec![None; unit.padded];
            for shard in 0..3 {
                let slice = partition.slice(id, shard);
                for (range, decay) in stretches(&partition, id, &slice) {
                    decays[slice.start + range.start..slice.start + range.end].fill(Some(decay));
                }
            }
            for slot in &unit.slots {
                assert!(decays[slot.range()].iter().all(|d| *d == Some(slot.decays)));
            }
            assert!(decays[unit.parameters..].iter().all(Option::is_none), "padding is never updated");
        }
    }

    #[test]
    fn clipping_follows_the_norm() {
        let update = Update {
            step: 3,
            lr: 1e-3,
            betas: (0.9, 0.95),
            eps: 1e-8,
            weight_decay: 0.1,
            max_grad_norm: 1.0,
        };
        assert_eq!(update.clip(0.5).unwrap(), 1.0);
        assert!((update.clip(4.0).unwrap() - 0.25).abs() < 1e-6);
        assert!(matches!(update.clip(f64::NAN), Err(crate::Error::NonFinite { steps: 3, .. })));
    }
}
