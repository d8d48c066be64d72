//! AdamW (Loshchilov & Hutter, 2019, algorithm 2), rounding as PyTorch's: decay first, then the adaptive step.

use super::Cpu;
use super::dispatch::vectorized;
use super::elementwise::{BLOCK, blocks};
use super::operand::{Check, Source, Split};
use crate::Result;
use crate::buffer::{View, ViewMut};
use crate::kernels::AdamW;
use std::ops::Range;

pub(super) fn adamw(
    cpu: &Cpu,
    master: ViewMut<'_>,
    momentum: ViewMut<'_>,
    variance: ViewMut<'_>,
    gradients: View<'_>,
    update: AdamW,
) -> Result<()> {
    let check = Check("adamw");
    let len = master.len();
    let gradients = check.source("gradients", &gradients, len)?;
    let master = check.f32_mut("master", master, len)?;
    let momentum = check.f32_mut("momentum", momentum, len)?;
    let variance = check.f32_mut("variance", variance, len)?;
    let factors = Factors::new(update);
    let runs = cpu.workers.runs(len, 1);
    let states = master.runs(&runs, 1).into_iter().zip(momentum.runs(&runs, 1)).zip(variance.runs(&runs, 1));
    let tasks = runs.iter().cloned().zip(states).collect();
    cpu.workers.each(tasks, |(run, ((master, momentum), variance))| {
        update_run(cpu, master, momentum, variance, gradients, run, &factors);
    });
    Ok(())
}

/// What one update multiplies with; the bias corrections in f64, rounded once.
struct Factors {
    gradient_scale: f32,
    keep_momentum: f32,
    new_momentum: f32,
    keep_variance: f32,
    new_variance: f32,
    keep_weight: f32,
    step_size: f32,
    /// √(1 − β₂ᵗ)
    root_correction: f32,
    eps: f32,
}

impl Factors {
    fn new(update: AdamW) -> Self {
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

fn update_run(
    cpu: &Cpu,
    master: &mut [f32],
    momentum: &mut [f32],
    variance: &mut [f32],
    gradients: Source<'_>,
    run: Range<usize>,
    factors: &Factors,
) {
    let mut scratch = cpu.scratch(BLOCK);
    vectorized!({
        for block in blocks(run.clone()) {
            let gradients = gradients.read(block.clone(), &mut scratch);
            let own = block.start - run.start..block.end - run.start;
            let states = (&mut master[own.clone()], &mut momentum[own.clone()], &mut variance[own]);
            update_slice(states, gradients, factors);
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
