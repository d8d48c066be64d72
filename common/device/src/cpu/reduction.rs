//! Reductions whose result does not depend on how a tensor is cut: a maximum, and a sum in fixed
//! point.

use super::Cpu;
use super::elementwise::BLOCK;
use super::operand::Floats;
use super::workers::blocks;
use crate::Result;
use crate::check::check_floats;
use crate::dispatch::vectorized;
use crate::kernels::max_or_nan;
use crate::view::View;

/// Folds the elements of `x` block by block, on several threads; returns each thread's result.
fn fold<T: Send + Copy + Default>(
    cpu: &Cpu,
    x: View<'_>,
    step: impl Fn(T, &[f32]) -> T + Sync,
) -> Result<Vec<T>> {
    let (runs, x) = (cpu.workers.runs(x.len(), 1), Floats::from(x));
    let mut results = vec![T::default(); runs.len()];
    let tasks = runs.into_iter().zip(&mut results).collect();
    cpu.workers.each(tasks, |(run, result)| {
        let mut scratch = cpu.scratch(BLOCK)?;
        vectorized!(for block in blocks(run, BLOCK) {
            *result = step(*result, x.read(block, &mut scratch));
        });
        Ok(())
    })?;
    Ok(results)
}

pub(super) fn max_magnitude(cpu: &Cpu, all: &[View<'_>]) -> Result<f32> {
    check_floats("max_magnitude", all)?;
    all.iter().try_fold(0.0, |most, x| Ok(max_or_nan(most, largest(cpu, x.clone())?)))
}

fn largest(cpu: &Cpu, x: View<'_>) -> Result<f32> {
    let largest = fold(
        cpu,
        x,
        #[inline(always)]
        |largest, x| max_bits(x, largest),
    )?;
    Ok(f32::from_bits(largest.into_iter().fold(0, u32::max)))
}

/// Returns the largest of `largest` and the magnitudes' bits: magnitudes order as their bits do,
/// with NaN above all.
#[inline(always)]
fn max_bits(x: &[f32], mut largest: u32) -> u32 {
    for x in x {
        largest = largest.max(x.to_bits() & 0x7fff_ffff);
    }
    largest
}

pub(super) fn sum_of_squares(cpu: &Cpu, all: &[View<'_>], exponent: i32) -> Result<u128> {
    check_floats("sum_of_squares", all)?;
    let scale = 2f64.powi(-exponent);
    all.iter().map(|x| squares(cpu, x.clone(), scale)).sum()
}

fn squares(cpu: &Cpu, x: View<'_>, scale: f64) -> Result<u128> {
    let sums = fold(
        cpu,
        x,
        #[inline(always)]
        |sum: u128, x| sum + u128::from(fixed_sum(x, scale)),
    )?;
    Ok(sums.into_iter().sum())
}

/// Returns Σ round((x·scale)²·2⁴⁸) of at most [`BLOCK`] elements.
///
/// The square of a 24-bit number is exact in f64. Adding 1.5·2⁵² rounds it to an integer below 2⁵⁰,
/// which the low bits of the sum hold; 2¹¹ of them fit in 61 bits.
#[inline(always)]
fn fixed_sum(x: &[f32], scale: f64) -> u64 {
    const ROUND: f64 = 1.5 * (1u64 << 52) as f64;
    const FIXED: f64 = (1u64 << 48) as f64;
    let mut sum = 0u64;
    for x in x {
        let x = f64::from(*x) * scale;
        sum = sum.wrapping_add((x * x * FIXED + ROUND).to_bits().wrapping_sub(ROUND.to_bits()));
    }
    sum
}

const _: () = assert!(BLOCK <= 1 << 13);
