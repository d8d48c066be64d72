//! AdamW (Loshchilov & Hutter, 2019, algorithm 2), rounding as PyTorch's: decay first, then the adaptive step.

use super::Cpu;
use super::elementwise::{BLOCK, blocks};
use super::operand::{Source, Split};
use crate::Result;
use crate::adamw::Factors;
use crate::check::Check;
use crate::kernels::AdamW;
use crate::vectorized;
use crate::view::{View, ViewMut};
use std::ops::Range;

pub(super) fn adamw(
    cpu: &Cpu,
    master: ViewMut<'_>,
    momentum: ViewMut<'_>,
    variance: ViewMut<'_>,
    gradients: View<'_>,
    update: AdamW,
) -> Result<()> {
    let (states, gradients) = operands(master, momentum, variance, &gradients)?;
    let factors = Factors::new(update);
    let runs = cpu.workers.runs(states.len(), 1);
    let tasks = runs.iter().cloned().zip(states.runs(&runs, 1)).collect();
    cpu.workers.each(tasks, |(run, mut states)| {
        update_run(cpu, &mut states, gradients, run, &factors, |_, _| {});
    });
    Ok(())
}

pub(super) fn adamw_rounding(
    cpu: &Cpu,
    parameters: ViewMut<'_>,
    master: ViewMut<'_>,
    momentum: ViewMut<'_>,
    variance: ViewMut<'_>,
    gradients: View<'_>,
    update: AdamW,
) -> Result<()> {
    let (states, gradients) = operands(master, momentum, variance, &gradients)?;
    let parameters = Check("adamw").target("parameters", parameters, states.len())?;
    let factors = Factors::new(update);
    let runs = cpu.workers.runs(states.len(), 1);
    let parts = parameters.runs(&runs, 1).into_iter().zip(states.runs(&runs, 1));
    let tasks = runs.iter().cloned().zip(parts).collect();
    cpu.workers.each(tasks, |(run, (mut parameters, mut states))| {
        update_run(cpu, &mut states, gradients, run, &factors, |range, master| {
            parameters.store(range, master);
        });
    });
    Ok(())
}

/// What an update changes, f32.
struct States<'a> {
    master: &'a mut [f32],
    momentum: &'a mut [f32],
    variance: &'a mut [f32],
}

impl States<'_> {
    fn len(&self) -> usize {
        self.master.len()
    }
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

fn operands<'a, 'g>(
    master: ViewMut<'a>,
    momentum: ViewMut<'a>,
    variance: ViewMut<'a>,
    gradients: &View<'g>,
) -> Result<(States<'a>, Source<'g>)> {
    let check = Check("adamw");
    let len = master.len();
    let gradients = check.source("gradients", gradients, len)?;
    let states = States {
        master: check.f32_mut("master", master, len)?,
        momentum: check.f32_mut("momentum", momentum, len)?,
        variance: check.f32_mut("variance", variance, len)?,
    };
    Ok((states, gradients))
}

/// Updates `states`, the elements `run` of a tensor; `updated` hears of each block of new weights, and where in the run
/// it lies.
fn update_run(
    cpu: &Cpu,
    states: &mut States<'_>,
    gradients: Source<'_>,
    run: Range<usize>,
    factors: &Factors,
    mut updated: impl FnMut(Range<usize>, &[f32]),
) {
    let mut scratch = cpu.scratch(BLOCK);
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
