//! AdamW (Loshchilov & Hutter, 2019, algorithm 2), rounding as PyTorch's: decay first, then the
//! adaptive step.

use super::Cpu;
use super::elementwise::{BLOCK, blocks};
use super::operand::{Floats, FloatsMut, Split};
use crate::Result;
use crate::operations::{AdamWUpdate, Factors};
use crate::vectorized;
use crate::view::{View, ViewMut};
use std::ops::Range;

pub(super) fn adamw(cpu: &Cpu, arguments: AdamWUpdate<View<'_>, ViewMut<'_>>) -> Result<()> {
    let AdamWUpdate { parameters, master, momentum, variance, gradients, len, settings } = arguments;
    let states = States {
        master: master.into_mut_slice(),
        momentum: momentum.into_mut_slice(),
        variance: variance.into_mut_slice(),
    };
    let (gradients, factors) = (Floats::from(gradients), Factors::new(settings));
    let runs = cpu.workers.runs(len, 1);
    let tasks = runs.iter().cloned().zip(states.runs(&runs, 1));
    let Some(parameters) = parameters else {
        return cpu.workers.each(tasks.collect(), |(run, mut states)| {
            update_run(cpu, &mut states, gradients, run, &factors, |_, _| {})
        });
    };
    let tasks = tasks.zip(FloatsMut::from(parameters).runs(&runs, 1)).collect();
    cpu.workers.each(tasks, |((run, mut states), mut parameters)| {
        update_run(cpu, &mut states, gradients, run, &factors, |range, master| {
            parameters.store(range, master);
        })
    })
}

/// The states that an update changes, f32.
struct States<'a> {
    master: &'a mut [f32],
    momentum: &'a mut [f32],
    variance: &'a mut [f32],
}

impl Split for States<'_> {
    fn cut(self, len: usize) -> (Self, Self) {
        let (master, master_rest) = self.master.split_at_mut(len);
        let (momentum, momentum_rest) = self.momentum.split_at_mut(len);
        let (variance, variance_rest) = self.variance.split_at_mut(len);
        (
            States { master, momentum, variance },
            States { master: master_rest, momentum: momentum_rest, variance: variance_rest },
        )
    }
}

/// Updates `states`, the elements `run` of a tensor; calls `updated` with each block of new weights
/// and its place in the run.
fn update_run(
    cpu: &Cpu,
    states: &mut States<'_>,
    gradients: Floats<'_>,
    run: Range<usize>,
    factors: &Factors,
    mut updated: impl FnMut(Range<usize>, &[f32]),
) -> Result<()> {
    let mut scratch = cpu.scratch(BLOCK)?;
    vectorized!({
        for block in blocks(run.clone()) {
            let gradients = gradients.read(block.clone(), &mut scratch);
            let own = block.start - run.start..block.end - run.start;
            let master = &mut states.master[own.clone()];
            let moments = (&mut states.momentum[own.clone()], &mut states.variance[own.clone()]);
            update_slice((&mut *master, moments.0, moments.1), gradients, factors);
            updated(own, master);
        }
    });
    Ok(())
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
