//! AdamW (Loshchilov & Hutter, 2019, algorithm 2), rounding as PyTorch's: decay first, then the
//! adaptive step.

use super::Cpu;
use super::elementwise::BLOCK;
use super::operand::{Floats, FloatsMut};
use super::workers::{Split, blocks};
use crate::Result;
use crate::operations::{AdamWUpdate, Factors};
use crate::vectorized;
use crate::view::{View, ViewMut};

pub(super) fn adamw(cpu: &Cpu, arguments: AdamWUpdate<View<'_>, ViewMut<'_>>) -> Result<()> {
    let AdamWUpdate { parameters, master, momentum, variance, gradients, len, settings } = arguments;
    let states = States {
        master: master.into_mut_slice(),
        momentum: momentum.into_mut_slice(),
        variance: variance.into_mut_slice(),
        parameters: parameters.map(FloatsMut::from),
    };
    let (gradients, factors) = (Floats::from(gradients), Factors::new(settings));
    cpu.workers.each_run(states, len, 1, |run, mut states| {
        let mut scratch = cpu.scratch(BLOCK)?;
        vectorized!(for block in blocks(run.clone(), BLOCK) {
            let gradients = gradients.read(block.clone(), &mut scratch);
            let own = block.start - run.start..block.end - run.start;
            let master = &mut states.master[own.clone()];
            let moments = (&mut states.momentum[own.clone()], &mut states.variance[own.clone()]);
            update_slice((&mut *master, moments.0, moments.1), gradients, &factors);
            if let Some(parameters) = &mut states.parameters {
                parameters.store(own, master);
            }
        });
        Ok(())
    })
}

/// What an update changes: f32, but for the parameters.
struct States<'a> {
    master: &'a mut [f32],
    momentum: &'a mut [f32],
    variance: &'a mut [f32],
    parameters: Option<FloatsMut<'a>>,
}

impl Split for States<'_> {
    fn cut(self, len: usize) -> (Self, Self) {
        let (master, master_rest) = self.master.cut(len);
        let (momentum, momentum_rest) = self.momentum.cut(len);
        let (variance, variance_rest) = self.variance.cut(len);
        let (parameters, parameters_rest) = self.parameters.cut(len);
        (
            States { master, momentum, variance, parameters },
            States {
                master: master_rest,
                momentum: momentum_rest,
                variance: variance_rest,
                parameters: parameters_rest,
            },
        )
    }
}

#[inline(always)]
fn update_slice(
    (master, momentum, variance): (&mut [f32], &mut [f32], &mut [f32]),
    gradients: &[f32],
    f: &Factors,
) {
    for (((w, m), v), g) in master.iter_mut().zip(momentum).zip(variance).zip(gradients) {
        let g = g * f.gradient_scale;
        *m = f.keep_momentum * *m + f.new_momentum * g;
        *v = f.keep_variance * *v + f.new_variance * (g * g);
        let denominator = v.sqrt() / f.root_correction + f.eps;
        *w = *w * f.keep_weight - f.step_size * (*m / denominator);
    }
}
