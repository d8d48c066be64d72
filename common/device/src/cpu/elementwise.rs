//! Addition, copies with conversion, and filling.

use super::Cpu;
use super::non_temporal;
use super::operand::{Floats, FloatsMut, Split};
use crate::Result;
use crate::vectorized;
use crate::view::{View, ViewMut};
use half::{bf16, f16};
use std::ops::Range;

/// Elements that are widened at a time, so that scratch memory stays in the nearest cache.
pub(super) const BLOCK: usize = 2048;

/// `range` in pieces of at most [`BLOCK`].
pub(super) fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..(start + BLOCK).min(end))
}

pub(super) fn add(cpu: &Cpu, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
    let (runs, x) = (cpu.workers.runs(out.len(), 1), Floats::from(x));
    let tasks = runs.iter().cloned().zip(FloatsMut::from(out).runs(&runs, 1)).collect();
    cpu.workers.each(tasks, |(run, out)| add_run(cpu, out, x, run))
}

fn add_run(cpu: &Cpu, mut out: FloatsMut<'_>, x: Floats<'_>, run: Range<usize>) -> Result<()> {
    let mut scratch = cpu.scratch(2 * BLOCK)?;
    let [wide_out, wide_x] = scratch.parts([BLOCK; 2]);
    vectorized!({
        for block in blocks(run.clone()) {
            let x = x.read(block.clone(), wide_x);
            out.update(
                block.start - run.start..block.end - run.start,
                wide_out,
                #[inline(always)]
                |out| add_slice(out, x),
            );
        }
    });
    Ok(())
}

/// `out += x`.
#[inline(always)]
pub(super) fn add_slice(out: &mut [f32], x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += x;
    }
}

/// `out = x`, of any two types.
pub(super) fn copy_or_convert(cpu: &Cpu, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
    if out.dtype() == x.dtype() { copy(out, x) } else { convert(cpu, out, x) }
}

/// `out = x`, of one type.
fn copy(out: ViewMut<'_>, x: View<'_>) -> Result<()> {
    non_temporal::copy(out.into_bytes_mut(), x.bytes());
    Ok(())
}

/// `out = x`, rounded.
fn convert(cpu: &Cpu, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
    let (runs, x) = (cpu.workers.runs(out.len(), 1), Floats::from(x));
    let tasks = runs.iter().cloned().zip(FloatsMut::from(out).runs(&runs, 1)).collect();
    cpu.workers.each(tasks, |(run, out)| convert_run(cpu, out, x, run))
}

fn convert_run(cpu: &Cpu, mut out: FloatsMut<'_>, x: Floats<'_>, run: Range<usize>) -> Result<()> {
    let mut scratch = cpu.scratch(2 * BLOCK)?;
    let [wide_out, wide_x] = scratch.parts([BLOCK; 2]);
    vectorized!({
        for block in blocks(run.clone()) {
            let x = x.read(block.clone(), wide_x);
            let to = block.start - run.start..block.end - run.start;
            out.write(
                to,
                wide_out,
                #[inline(always)]
                |out| out.copy_from_slice(x),
            );
        }
    });
    Ok(())
}

/// `out = values`, rounded.
pub(crate) fn round_into(cpu: &Cpu, out: FloatsMut<'_>, values: &[f32]) -> Result<()> {
    let runs = cpu.workers.runs(values.len(), 1);
    let tasks = runs.iter().cloned().zip(out.runs(&runs, 1)).collect();
    cpu.workers.each(tasks, |(run, mut out)| {
        vectorized!(out.store(0..run.len(), &values[run.clone()]));
        Ok(())
    })
}

pub(super) fn fill(cpu: &Cpu, out: ViewMut<'_>, value: f32) -> Result<()> {
    let runs = cpu.workers.runs(out.len(), 1);
    cpu.workers.each(FloatsMut::from(out).runs(&runs, 1), |out| {
        match out {
            FloatsMut::F32(out) => out.fill(value),
            FloatsMut::Bf16(out) => out.fill(bf16::from_f32(value)),
            FloatsMut::F16(out) => out.fill(f16::from_f32(value)),
        }
        Ok(())
    })
}
