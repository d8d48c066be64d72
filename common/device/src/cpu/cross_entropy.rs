//! Cross-entropy of logits, and its gradient in their place.

use super::Cpu;
use super::math::{exponentiate, ln, maximum};
use super::operand::FloatsMut;
use super::workers::Split;
use crate::Result;
use crate::dispatch::vectorized;
use crate::operations::CrossEntropy;
use crate::shapes::RowShape;
use crate::view::{View, ViewMut};

pub(super) fn cross_entropy(cpu: &Cpu, arguments: CrossEntropy<View<'_>, ViewMut<'_>>) -> Result<()> {
    let CrossEntropy { losses, logits, targets, gradient_scale, shape } = arguments;
    let RowShape { rows, width } = shape;
    let (losses, logits) = (losses.into_mut_slice::<f32>(), FloatsMut::from(logits));
    let targets = targets.as_slice::<u32>();
    let runs = cpu.workers.runs(rows, width);
    let outputs = losses.runs(&runs, 1).into_iter().zip(logits.runs(&runs, width));
    let tasks = runs.iter().cloned().zip(outputs).collect();
    cpu.workers.each(tasks, |(run, (losses, mut logits))| {
        let mut scratch = cpu.scratch(width)?;
        vectorized!(for (i, (loss, &target)) in losses.iter_mut().zip(&targets[run.clone()]).enumerate() {
            logits.update(
                i * width..(i + 1) * width,
                &mut scratch,
                #[inline(always)]
                |logits| *loss = row_loss(logits, target as usize, gradient_scale),
            );
        });
        Ok(())
    })
}

/// Returns the loss of one row, 0 without a target; its logits become their gradient.
#[inline(always)]
fn row_loss(logits: &mut [f32], target: usize, gradient_scale: f32) -> f32 {
    if target == logits.len() {
        logits.fill(0.0);
        return 0.0;
    }
    let largest = maximum(logits);
    let below_largest = logits[target] - largest;
    let sum = exponentiate(logits, 1.0, largest);
    let factor = gradient_scale / sum;
    for x in logits.iter_mut() {
        *x *= factor;
    }
    logits[target] -= gradient_scale;
    ln(sum) - below_largest
}
