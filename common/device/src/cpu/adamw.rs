//! AdamW (Loshchilov & Hutter, 2019, algorithm 2), rounding as PyTorch's: decay first, then the
//! adaptive step.

use super::Cpu;
use super::elementwise::BLOCK;
use super::operand::{Floats, FloatsMut};
use super::workers::blocks;
use crate::Result;
use crate::dispatch::vectorized;
use crate::operations::{AdamWUpdate, Factors};
use crate::view::{View, ViewMut};

pub(super) fn adamw(cpu: &Cpu, arguments: AdamWUpdate<View<'_>, ViewMut<'_>>) -> Result<()> {
    let AdamWUpdate { parameters, master, momentum, variance, gradients, len, settings } = arguments;
    let weights = (master.into_mut_slice::<f32>(), parameters.map(FloatsMut::from));
    let moments = (momentum.into_mut_slice::<f32>(), variance.into_mut_slice::<f32>());
    let (gradients, factors) = (Floats::from(gradients), Factors::new(settings));
    cpu.workers.each_run(
        (weights, moments),
        len,
        1,
        |run, ((master, mut parameters), (momentum, variance))| {
            let mut scratch = cpu.scratch(BLOCK)?;
            vectorized!(for block in blocks(run.clone(), BLOCK) {
                let gradients = gradients.read(block.clone(), &mut scratch);
                let own = block.start - run.start..block.end - run.start;
                let master = &mut master[own.clone()];
                let moments = (&mut momentum[own.clone()], &mut variance[own.clone()]);
                update_slice((&mut *master, moments.0, moments.1), gradients, &factors);
                if let Some(parameters) = &mut parameters {
                    parameters.store(own, master);
                }
            });
            Ok(())
        },
    )
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
