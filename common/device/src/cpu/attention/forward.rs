//! Attention forward.

use super::{Heads, QUERIES, Sizes, hide, pairs, per_head};
use crate::Result;
use crate::cpu::Cpu;
use crate::cpu::dense::{packed, packed_mut, row_of_mut};
use crate::cpu::math::{exponentiate, maximum};
use crate::cpu::multiply::multiply;
use crate::cpu::operand::Floats;
use crate::cpu::tile::TileMut;
use crate::operations::Attention;
use crate::shapes::Write;
use crate::vectorized;
use crate::view::{View, ViewMut};
use ndarray::{ArrayViewMut2, s};
use std::ops::Range;

pub(in crate::cpu) fn attention(cpu: &Cpu, arguments: Attention<View<'_>, ViewMut<'_>>) -> Result<()> {
    let Attention { out, log_sum, qkv, shape } = arguments;
    let (sizes, width) = (Sizes::new(shape), shape.width());
    let out = TileMut::new(out.into(), shape.rows(), width, width);
    let (log_sum, qkv) = (log_sum.into_mut_slice::<f32>(), Floats::from(qkv));
    let outs = per_head(out, shape.tokens, sizes.group * shape.head_dim);
    let log_sums = log_sum.chunks_mut((sizes.group * shape.tokens).max(1));
    let tasks = pairs(shape).zip(outs.into_iter().zip(log_sums)).collect();
    cpu.workers.each(tasks, |((sequence, head), (out, log_sum))| {
        forward(cpu, sizes, out, log_sum, Heads::new(qkv, shape, sequence, head))
    })
}

fn forward(
    cpu: &Cpu,
    sizes: Sizes,
    mut out: TileMut<'_>,
    log_sum: &mut [f32],
    heads: Heads<'_>,
) -> Result<()> {
    let Sizes { tokens, head_dim, group, .. } = sizes;
    let tile = QUERIES * head_dim;
    let mut scratch = cpu.scratch(sizes.scores() + 2 * sizes.head() + 2 * tile + QUERIES)?;
    let [scores, wide_keys, wide_values, wide_queries, wide_out, sums] =
        scratch.parts([sizes.scores(), sizes.head(), sizes.head(), tile, tile, QUERIES]);
    let (keys, values) = (heads.keys.read(wide_keys), heads.values.read(wide_values));
    for (head, log_sum) in (0..group).zip(log_sum.chunks_mut(tokens)) {
        let columns = head * head_dim..(head + 1) * head_dim;
        for rows in sizes.tiles() {
            let (count, seen) = (rows.len(), rows.end);
            let queries = heads.queries.at(rows.clone(), columns.clone()).read(wide_queries);
            let scores = &mut scores[..count * seen];
            multiply(
                packed_mut(scores, count, seen),
                Write::Replace,
                queries,
                keys.slice_move(s![..seen, ..]).reversed_axes(),
            );
            let log_sum = &mut log_sum[rows.clone()];
            vectorized!(softmax_tile(scores, sums, log_sum, rows.clone(), sizes.scale));
            for (log_sum, sum) in log_sum.iter_mut().zip(&*sums) {
                *log_sum += sum.ln();
            }
            let probabilities = packed(scores, count, seen);
            out.at(rows, columns.clone()).compute(Write::Replace, wide_out, |mut out, write| {
                multiply(out.view_mut(), write, probabilities, values.slice_move(s![..seen, ..]));
                vectorized!(divide_rows(out, sums));
            });
        }
    }
    Ok(())
}

/// Turns the scores of queries `rows` against keys `0..rows.end` into e^(scale·score − largest), 0
/// behind the query; `sums` = their sums, `largest` = the scaled largest scores.
#[inline(always)]
fn softmax_tile(scores: &mut [f32], sums: &mut [f32], largest: &mut [f32], rows: Range<usize>, scale: f32) {
    let outputs = sums.iter_mut().zip(largest);
    for ((row, scores), (sum, largest)) in rows.clone().zip(scores.chunks_exact_mut(rows.end)).zip(outputs) {
        let seen = hide(scores, row + 1, f32::NEG_INFINITY);
        *largest = maximum(seen) * scale;
        *sum = exponentiate(seen, scale, *largest);
    }
}

#[inline(always)]
fn divide_rows(mut out: ArrayViewMut2<'_, f32>, sums: &[f32]) {
    for (row, sum) in sums.iter().enumerate().take(out.nrows()) {
        let factor = 1.0 / sum;
        for x in row_of_mut(out.view_mut(), row) {
            *x *= factor;
        }
    }
}
