//! Root-mean-square normalisation (Zhang & Sennrich, 2019), forward and backward.

use super::Cpu;
use super::elementwise::add_slice;
use super::math::dot;
use super::operand::{Floats, FloatsMut};
use super::workers::{Split, cut};
use crate::Result;
use crate::dispatch::vectorized;
use crate::operations::{RmsNorm, RmsNormBackward};
use crate::shapes::{GroupedRows, Write};
use crate::view::{View, ViewMut};
use std::ops::Range;

pub(super) fn rms_norm(cpu: &Cpu, arguments: RmsNorm<View<'_>, ViewMut<'_>>) -> Result<()> {
    let RmsNorm { out, inverse_rms, x, weight, shape, eps } = arguments;
    let (out, inverse_rms) = (FloatsMut::from(out), inverse_rms.into_mut_slice::<f32>());
    let (x, weight, width) = (Floats::from(x), Floats::from(weight), shape.width);
    let runs = cpu.workers.runs(shape.groups(), shape.group * width);
    let outputs = out.runs(&runs, shape.stride).into_iter().zip(inverse_rms.runs(&runs, shape.group));
    let tasks = runs.iter().cloned().zip(outputs).collect();
    cpu.workers.each(tasks, |(run, (mut out, inverse_rms))| {
        let mut scratch = cpu.scratch(3 * width)?;
        let [wide_out, wide_x, wide_weight] = scratch.parts([width; 3]);
        vectorized!({
            let weight = weight.read(0..width, wide_weight);
            for (i, inverse) in inverse_rms.iter_mut().enumerate() {
                let (within, start) = (shape.start(i), shape.start(run.start * shape.group + i));
                let x = x.read(start..start + width, wide_x);
                *inverse = 1.0 / (dot(x, x) / width as f32 + eps).sqrt();
                out.write(
                    within..within + width,
                    wide_out,
                    #[inline(always)]
                    |out| scale_row(out, x, weight, *inverse),
                );
            }
        });
        Ok(())
    })
}

#[inline(always)]
fn scale_row(out: &mut [f32], x: &[f32], weight: &[f32], inverse: f32) {
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * inverse * weight;
    }
}

pub(super) fn rms_norm_backward(cpu: &Cpu, arguments: RmsNormBackward<View<'_>, ViewMut<'_>>) -> Result<()> {
    let RmsNormBackward { dx, dweight, write, dout, x, weight, inverse_rms, shape } = arguments;
    let (dx, mut dweight) = (FloatsMut::from(dx), FloatsMut::from(dweight));
    let dout = dout.map(Floats::from);
    let inputs =
        Inputs { dout, x: x.into(), weight: weight.into(), inverse_rms: inverse_rms.as_slice(), shape };
    let (width, runs) = (shape.width, cpu.workers.runs(shape.groups(), shape.group * shape.width));
    let mut sums = cpu.scratch(width)?;
    sums.fill(0.0);
    if runs.len() == 1 {
        backward(cpu, dx, Some(&mut sums[..]), &inputs, 0..shape.groups())?;
    } else {
        // Each thread sums some columns over all rows in order, so that the bits do not depend on
        // the number of threads.
        let columns: Vec<_> = cut(width, runs.len().min(width)).collect();
        let tasks = columns.iter().cloned().zip((&mut sums[..]).runs(&columns, 1)).collect();
        let douts = dout.unwrap_or(dx.as_floats());
        cpu.workers.each(tasks, |(columns, sums)| weigh(cpu, sums, douts, &inputs, columns))?;
        let tasks = runs.iter().cloned().zip(dx.runs(&runs, shape.stride)).collect();
        cpu.workers.each(tasks, |(run, dx)| backward(cpu, dx, None, &inputs, run))?;
    }
    let mut wide = cpu.scratch(width)?;
    dweight.update(
        0..width,
        &mut wide,
        #[inline(always)]
        |dweight| {
            if write == Write::Replace {
                dweight.fill(0.0);
            }
            add_slice(dweight, &sums);
        },
    );
    Ok(())
}

struct Inputs<'a> {
    /// `None` if `dx` holds it.
    dout: Option<Floats<'a>>,
    x: Floats<'a>,
    weight: Floats<'a>,
    inverse_rms: &'a [f32],
    shape: GroupedRows,
}

/// Computes the groups `run`, with which `dx` begins. With r = 1/rms and n = width: dx += r·(w·dy)
/// − x·r³/n·Σ(w·dy·x), and dw += Σ_rows dy·x·r if `dweight` is given.
fn backward(
    cpu: &Cpu,
    mut dx: FloatsMut<'_>,
    mut dweight: Option<&mut [f32]>,
    inputs: &Inputs<'_>,
    run: Range<usize>,
) -> Result<()> {
    let shape = inputs.shape;
    let width = shape.width;
    let mut scratch = cpu.scratch(5 * width)?;
    let [wide_dx, wide_dout, wide_x, wide_weight, scaled] = scratch.parts([width; 5]);
    vectorized!({
        let weight = inputs.weight.read(0..width, wide_weight);
        for (i, row) in (run.start * shape.group..run.end * shape.group).enumerate() {
            let (within, start) = (shape.start(i), shape.start(row));
            let within = within..within + width;
            let dout = match &inputs.dout {
                Some(dout) => dout.read(start..start + width, wide_dout),
                None => dx.as_floats().read(within.clone(), wide_dout),
            };
            let x = inputs.x.read(start..start + width, wide_x);
            let inverse = inputs.inverse_rms[row];
            for ((scaled, dout), weight) in scaled.iter_mut().zip(dout).zip(weight) {
                *scaled = dout * weight;
            }
            if let Some(dweight) = &mut dweight {
                weigh_row(dweight, dout, x, inverse);
            }
            let along = dot(scaled, x) * inverse * inverse * inverse / width as f32;
            let replace = inputs.dout.is_none();
            dx.update(
                within,
                wide_dx,
                #[inline(always)]
                |dx| {
                    if replace {
                        dx.fill(0.0);
                    }
                    project_row(dx, scaled, x, inverse, along);
                },
            );
        }
    });
    Ok(())
}

/// dw += Σ_rows dy·x·r, of some columns.
fn weigh(
    cpu: &Cpu,
    dweight: &mut [f32],
    dout: Floats<'_>,
    inputs: &Inputs<'_>,
    columns: Range<usize>,
) -> Result<()> {
    let mut scratch = cpu.scratch(2 * columns.len())?;
    let [wide_dout, wide_x] = scratch.parts([columns.len(); 2]);
    vectorized!({
        for row in 0..inputs.shape.rows {
            let start = inputs.shape.start(row);
            let range = start + columns.start..start + columns.end;
            let dout = dout.read(range.clone(), wide_dout);
            weigh_row(dweight, dout, inputs.x.read(range, wide_x), inputs.inverse_rms[row]);
        }
    });
    Ok(())
}

/// `dweight += dy·x·r`.
#[inline(always)]
fn weigh_row(dweight: &mut [f32], dout: &[f32], x: &[f32], inverse: f32) {
    for ((dweight, dout), x) in dweight.iter_mut().zip(dout).zip(x) {
        *dweight += dout * (x * inverse);
    }
}

/// `dx += r·scaled − x·along`.
#[inline(always)]
fn project_row(dx: &mut [f32], scaled: &[f32], x: &[f32], inverse: f32, along: f32) {
    for ((dx, scaled), x) in dx.iter_mut().zip(scaled).zip(x) {
        *dx += scaled * inverse - x * along;
    }
}
