//! Addition, copies with conversion, and filling.

use super::Cpu;
use super::non_temporal;
use super::operand::{Floats, FloatsMut};
use super::workers::{Split, blocks};
use crate::Result;
use crate::dispatch::vectorized;
use crate::view::{View, ViewMut};
use half::{bf16, f16};
use std::ops::Range;

/// Elements that are widened at a time, so that scratch memory stays in the nearest cache.
pub(super) const BLOCK: usize = 2048;

pub(super) fn add(cpu: &Cpu, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
    each_block(
        cpu,
        out,
        x,
        #[inline(always)]
        |out, at, x, scratch| {
            out.update(
                at,
                scratch,
                #[inline(always)]
                |out| add_slice(out, x),
            );
        },
    )
}

/// Calls `f` with each block of `x`, the run of `out` that it belongs to, its place there, and
/// scratch memory for a block.
fn each_block(
    cpu: &Cpu,
    out: ViewMut<'_>,
    x: View<'_>,
    f: impl Fn(&mut FloatsMut<'_>, Range<usize>, &[f32], &mut [f32]) + Sync,
) -> Result<()> {
    let (len, x) = (out.len(), Floats::from(x));
    cpu.workers.each_run(FloatsMut::from(out), len, 1, |run, mut out| {
        let mut scratch = cpu.scratch(2 * BLOCK)?;
        let [wide_out, wide_x] = scratch.parts([BLOCK; 2]);
        vectorized!(for block in blocks(run.clone(), BLOCK) {
            let at = block.start - run.start..block.end - run.start;
            f(&mut out, at, x.read(block, wide_x), wide_out);
        });
        Ok(())
    })
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
    if out.dtype() == x.dtype() {
        let (size, bytes) = (out.dtype().size(), x.bytes());
        let runs = cpu.workers.runs(x.len(), 1);
        let tasks = runs.iter().cloned().zip(out.into_bytes_mut().runs(&runs, size)).collect();
        return cpu.workers.each(tasks, |(run, out)| {
            non_temporal::copy(out, &bytes[run.start * size..run.end * size]);
            Ok(())
        });
    }
    each_block(
        cpu,
        out,
        x,
        #[inline(always)]
        |out, at, x, _| out.store(at, x),
    )
}

/// `out = values`, rounded.
pub(crate) fn round_into(cpu: &Cpu, out: FloatsMut<'_>, values: &[f32]) -> Result<()> {
    cpu.workers.each_run(out, values.len(), 1, |run, mut out| {
        vectorized!(out.store(0..run.len(), &values[run.clone()]));
        Ok(())
    })
}

pub(super) fn fill(cpu: &Cpu, out: ViewMut<'_>, value: f32) -> Result<()> {
    let len = out.len();
    cpu.workers.each_run(FloatsMut::from(out), len, 1, |_, out| {
        match out {
            FloatsMut::F32(out) => out.fill(value),
            FloatsMut::Bf16(out) => out.fill(bf16::from_f32(value)),
            FloatsMut::F16(out) => out.fill(f16::from_f32(value)),
        }
        Ok(())
    })
}
