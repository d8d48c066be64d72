//! AdamW (Loshchilov & Hutter, 2019) on any slice of a unit.

use crate::Result;
use crate::buckets::bucket;
use crate::partition::{Partition, UnitId};
use crate::rank::Rank;
use device::{AdamW, Buffer, Class, DType, View, ViewMut};
use events::Pass;
use model::TrainingState;
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
    /// What the loss of this step was multiplied with, where it is scaled; an overflow then skips the step.
    pub loss_scale: Option<f64>,
}

impl Update {
    /// The norm that gradients of a scaled loss would have without its scale.
    pub fn unscaled(&self, norm: f64) -> f64 {
        norm / self.loss_scale.unwrap_or(1.0)
    }

    /// What gradients of unscaled norm `norm` are multiplied with: one over the loss's scale, times
    /// `min(1, max_grad_norm / (norm + 1e-6))`, as PyTorch's `clip_grad_norm_` does. None if they have overflowed and
    /// the step is to be skipped.
    ///
    /// # Errors
    /// If the norm is not finite although the loss is not scaled.
    pub fn gradient_scale(&self, norm: f64) -> Result<Option<f32>> {
        match (norm.is_finite(), self.loss_scale) {
            (true, scale) => {
                let clip = (self.max_grad_norm / (norm + 1e-6)).min(1.0);
                Ok(Some((clip / scale.unwrap_or(1.0)) as f32))
            }
            (false, Some(_)) => Ok(None),
            (false, None) => Err(crate::Error::NonFinite { norm, steps: self.step }),
        }
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

/// AdamW's buffers for one slice, f32.
pub struct Moments {
    /// [`TrainingState::Momentum`].
    pub momentum: Buffer,
    /// [`TrainingState::Variance`].
    pub variance: Buffer,
}

/// Optimizer states for one slice of one unit, f32: momentum, variance, and master weights unless the parameters are f32
/// themselves.
pub struct AdamWShard {
    unit: UnitId,
    master: Option<Buffer>,
    moments: Moments,
    /// What is updated at a time: stretches of the slice with the same weight decay, relative to its start.
    pieces: Vec<Vec<(Range<usize>, bool)>>,
}

impl AdamWShard {
    /// States for elements `slice` of `unit`: `master` if the parameters are not f32. An update goes over at most `piece`
    /// elements at a time.
    pub fn new(
        partition: &Partition,
        unit: UnitId,
        slice: &Range<usize>,
        master: Option<Buffer>,
        moments: Moments,
        piece: usize,
    ) -> Self {
        let pieces = pieces(&stretches(partition, unit, slice), slice.len(), piece);
        AdamWShard { unit, master, moments, pieces }
    }

    /// Updates the slice's `parameters` from its `gradients`, which are multiplied with `gradient_scale` first: the
    /// parameters themselves if they are f32, else the master weights, to which they are then rounded.
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
        for number in 0..self.pieces.len() {
            // A screen shows pieces as it shows micro-batches.
            let _bracket = rank.bracket(Pass::Step, self.unit, number);
            self.update_piece(rank, number, &mut parameters, &gradients, (update, gradient_scale))?;
        }
        Ok(())
    }

    fn update_piece(
        &mut self,
        rank: &Rank,
        number: usize,
        parameters: &mut ViewMut<'_>,
        gradients: &View<'_>,
        (update, gradient_scale): (&Update, f32),
    ) -> Result<()> {
        for (range, decays) in &self.pieces[number] {
            let parameters = parameters.slice_mut(range.clone());
            let momentum = self.moments.momentum.slice_mut(range.clone());
            let variance = self.moments.variance.slice_mut(range.clone());
            let gradients = gradients.slice(range.clone());
            let update = update.kernel(*decays, gradient_scale);
            match &mut self.master {
                None => rank.kernels().adamw(parameters, momentum, variance, gradients, update)?,
                Some(master) => {
                    let master = master.slice_mut(range.clone());
                    rank.kernels()
                        .adamw_rounding(parameters, master, momentum, variance, gradients, update)?;
                }
            }
        }
        Ok(())
    }

    /// The whole unit's `state`, f32, in main memory: gathered from all ranks unless `slice`, which is this rank's, is the
    /// whole of it. `parameters` are the slice's, which are the master weights themselves if they are f32.
    ///
    /// # Errors
    /// If a collective fails.
    pub fn whole(
        &self,
        state: TrainingState,
        rank: &Rank,
        partition: &Partition,
        slice: Range<usize>,
        parameters: View<'_>,
    ) -> Result<Buffer> {
        let unit = self.unit;
        let padded = partition.units[unit].padded;
        let own = match state {
            TrainingState::Weight => self.master.as_ref().map_or(parameters, Buffer::view),
            TrainingState::Momentum => self.moments.momentum.view(),
            TrainingState::Variance => self.moments.variance.view(),
        };
        let mut full = rank.device.allocate_host(Class::GatheredParameters, DType::F32, padded)?;
        rank.kernels().copy(full.slice_mut(slice.clone()), own)?;
        if slice.len() == padded {
            return Ok(full);
        }
        let mut gathered = rank.shard_group().all_gather(bucket(vec![full], &[unit]))?.wait()?;
        // A collective gives back as many buffers as it was given.
        gathered.pop().ok_or(crate::Error::Missing { unit, what: "gathered training state" })
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

/// `stretches` of a slice of `length` elements, cut into pieces of at most `size`.
fn pieces(stretches: &[(Range<usize>, bool)], length: usize, size: usize) -> Vec<Vec<(Range<usize>, bool)>> {
    let starts = (0..length).step_by(size.max(1));
    let within = |start: usize| {
        let end = start.saturating_add(size);
        let clip =
            |(range, decays): &(Range<usize>, bool)| (range.start.max(start)..range.end.min(end), *decays);
        stretches.iter().map(clip).filter(|(range, _)| !range.is_empty()).collect()
    };
    starts.map(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Layout, ModelConfig};

    #[test]
    fn stretches_of_all_slices_cover_every_tensor_with_its_own_decay() {
        let layout = Layout::new(&ModelConfig { width: 9, feed_forward: 7, ..ModelConfig::tiny() });
        let partition = Partition::new(&layout, model::Wrap::Block, 3);
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
            loss_scale: None,
        };
        assert_eq!(update.gradient_scale(0.5).unwrap(), Some(1.0));
        assert!((update.gradient_scale(4.0).unwrap().unwrap() - 0.25).abs() < 1e-6);
        assert!(matches!(update.gradient_scale(f64::NAN), Err(crate::Error::NonFinite { steps: 3, .. })));
        let scaled = Update { loss_scale: Some(1024.0), ..update };
        assert_eq!(scaled.unscaled(512.0), 0.5);
        assert_eq!(scaled.gradient_scale(0.5).unwrap(), Some(1.0 / 1024.0));
        assert_eq!(scaled.gradient_scale(f64::INFINITY).unwrap(), None, "an overflow skips the step");
    }

    #[test]
    fn a_kernel_is_told_what_the_update_says() {
        let update = Update {
            step: 3,
            lr: 0.5,
            betas: (0.25, 0.75),
            eps: 1e-3,
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
            step: 4,
            gradient_scale: 0.0625,
        };
        assert_eq!(update.kernel(true, 0.0625), kernel);
        assert_eq!(update.kernel(false, 0.0625), AdamW { weight_decay: 0.0, ..kernel });
    }

    #[test]
    fn pieces_cover_all_stretches_once() {
        let stretches = [(0..5, true), (5..6, false), (8..20, true)];
        assert_eq!(pieces(&stretches, 20, usize::MAX), [stretches.to_vec()]);
        for size in 1..21 {
            let pieces = pieces(&stretches, 20, size);
            assert_eq!(pieces.len(), 20usize.div_ceil(size));
            for (number, piece) in pieces.iter().enumerate() {
                let allowed = number * size..(number + 1) * size;
                assert!(
                    piece.iter().all(|(range, _)| allowed.start <= range.start && range.end <= allowed.end)
                );
            }
            let elements = |of: &[(Range<usize>, bool)]| -> Vec<(usize, bool)> {
                of.iter().flat_map(|(range, decays)| range.clone().map(|at| (at, *decays))).collect()
            };
            assert_eq!(elements(&pieces.concat()), elements(&stretches));
        }
    }
}
