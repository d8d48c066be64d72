//! The gated activation SwiGLU (Shazeer, 2020), forward and backward.

use super::Cpu;
use super::math::sigmoid;
use super::operand::{Floats, FloatsMut};
use super::workers::blocks;
use crate::Result;
use crate::dispatch::vectorized;
use crate::operations::{Swiglu, SwigluBackward};
use crate::shapes::RowShape;
use crate::view::{View, ViewMut};
use std::ops::Range;

/// Elements of a row per chunk. While one is computed, the same chunk of the next row is
/// prefetched: a core's own prefetching stops at the end of a page.
const CHUNK: usize = 128;

/// Returns the elements `chunk` of row `row`.
fn within(chunk: &Range<usize>, row: usize, width: usize) -> Range<usize> {
    row * width + chunk.start..row * width + chunk.end
}

pub(super) fn swiglu(cpu: &Cpu, arguments: Swiglu<View<'_>, ViewMut<'_>>) -> Result<()> {
    let Swiglu { out, gate_up, shape: RowShape { rows, width } } = arguments;
    let (out, gate_up) = (FloatsMut::from(out), Floats::from(gate_up));
    cpu.workers.each_run(out, rows, width, |run, mut out| {
        let mut scratch = cpu.scratch(3 * width)?;
        let [wide_out, wide] = scratch.parts([width, 2 * width]);
        vectorized!(for (i, row) in run.enumerate() {
            let (gate, up) = gate_up.read(2 * row * width..2 * (row + 1) * width, wide).split_at(width);
            out.write(
                i * width..(i + 1) * width,
                wide_out,
                #[inline(always)]
                |out| {
                    for chunk in blocks(0..width, CHUNK) {
                        gate_up.prefetch(within(&chunk, 2 * row + 2, width));
                        gate_up.prefetch(within(&chunk, 2 * row + 3, width));
                        gate_row(&mut out[chunk.clone()], &gate[chunk.clone()], &up[chunk]);
                    }
                },
            );
        });
        Ok(())
    })
}

/// Writes silu(gate) · up, of at most [`CHUNK`] elements.
#[inline(always)]
fn gate_row(out: &mut [f32], gate: &[f32], up: &[f32]) {
    let mut s = [0.0; CHUNK];
    sigmoid(&mut s[..gate.len()], gate);
    for ((out, s), (gate, up)) in out.iter_mut().zip(&s).zip(gate.iter().zip(up)) {
        *out = gate * s * up;
    }
}

pub(super) fn swiglu_backward(cpu: &Cpu, arguments: SwigluBackward<View<'_>, ViewMut<'_>>) -> Result<()> {
    let SwigluBackward { dgate_up, dout, gate_up, shape: RowShape { rows, width } } = arguments;
    let (dgate_up, douts, gate_up) = (FloatsMut::from(dgate_up), Floats::from(dout), Floats::from(gate_up));
    cpu.workers.each_run(dgate_up, rows, 2 * width, |run, mut dgate_up| {
        let mut scratch = cpu.scratch(5 * width)?;
        let [wide_dgate_up, wide, wide_dout] = scratch.parts([2 * width, 2 * width, width]);
        vectorized!(for (i, row) in run.enumerate() {
            let (gate, up) = gate_up.read(2 * row * width..2 * (row + 1) * width, wide).split_at(width);
            let dout = douts.read(row * width..(row + 1) * width, wide_dout);
            dgate_up.write(
                2 * i * width..2 * (i + 1) * width,
                wide_dgate_up,
                #[inline(always)]
                |dgate_up| {
                    let (dgate, dup) = dgate_up.split_at_mut(width);
                    for chunk in blocks(0..width, CHUNK) {
                        gate_up.prefetch(within(&chunk, 2 * row + 2, width));
                        gate_up.prefetch(within(&chunk, 2 * row + 3, width));
                        douts.prefetch(within(&chunk, row + 1, width));
                        let (dgate, dup) = (&mut dgate[chunk.clone()], &mut dup[chunk.clone()]);
                        gate_row_backward(dgate, dup, &dout[chunk.clone()], &gate[chunk.clone()], &up[chunk]);
                    }
                },
            );
        });
        Ok(())
    })
}

/// Writes the gradients of at most [`CHUNK`] elements. With s = sigmoid(gate):
/// d silu/d gate = s·(1 + gate·(1 − s)).
#[inline(always)]
fn gate_row_backward(dgate: &mut [f32], dup: &mut [f32], dout: &[f32], gate: &[f32], up: &[f32]) {
    let mut s = [0.0; CHUNK];
    sigmoid(&mut s[..gate.len()], gate);
    let inputs = dout.iter().zip(gate).zip(up).zip(&s);
    for ((dgate, dup), (((dout, gate), up), s)) in dgate.iter_mut().zip(dup).zip(inputs) {
        *dgate = dout * up * (s * (1.0 + gate * (1.0 - s)));
        *dup = dout * (gate * s);
    }
}
