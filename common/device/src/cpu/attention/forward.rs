//! Attention forward.

use super::{Heads, Sizes, hide, pairs, per_head};
use crate::Result;
use crate::cpu::Cpu;
use crate::cpu::grid::Grid;
use crate::cpu::math::{LANES, exponentiate, ln, maximum};
use crate::cpu::operand::Floats;
use crate::cpu::product::{Panels, Rows, Start, widened_rows};
use crate::cpu::tile::TileMut;
use crate::dispatch::vectorized;
use crate::operations::Attention;
use crate::view::{View, ViewMut};
use std::ops::Range;

pub(in crate::cpu) fn attention(cpu: &Cpu, arguments: Attention<View<'_>, ViewMut<'_>>) -> Result<()> {
    let Attention { out, log_sum, qkv, shape } = arguments;
    let (sizes, width) = (Sizes::new(shape), shape.width());
    let out = TileMut::new(out.into(), shape.rows(), width, width);
    let (log_sum, qkv) = (log_sum.into_mut_slice::<f32>(), Floats::from(qkv));
    let outs = per_head(out, shape.tokens, sizes.group * shape.head_dim);
    let log_sums = log_sum.chunks_mut((sizes.group * shape.tokens).max(1));
    let tasks = pairs(shape, cpu.workers.threads()).zip(outs.into_iter().zip(log_sums)).collect();
    cpu.workers.each(tasks, |((pair, next), (out, log_sum))| {
        let heads = |pair| Heads::new(qkv, shape, pair);
        forward(cpu, sizes, out, log_sum, heads(pair), next.map(heads))
    })
}

fn forward(
    cpu: &Cpu,
    sizes: Sizes,
    mut out: TileMut<'_>,
    log_sum: &mut [f32],
    heads: Heads<'_>,
    next: Option<Heads<'_>>,
) -> Result<()> {
    let Sizes { tokens, head_dim, group, instructions, .. } = sizes;
    let lengths = [
        sizes.by_token(),
        sizes.by_element(),
        sizes.wide_rows(),
        sizes.tile_scores(),
        sizes.sums(),
        sizes.queries,
    ];
    let mut scratch = cpu.scratch(lengths.iter().sum())?;
    let [keys, values, queries, scores, outs, sums] = scratch.parts(lengths);
    let keys = Panels::widened(instructions, keys, heads.keys);
    let values = Panels::widened(instructions, values, heads.values.transposed_if(true));
    for (head, log_sum) in (0..group).zip(log_sum.chunks_mut(tokens)) {
        let columns = head * head_dim..(head + 1) * head_dim;
        for rows in sizes.blocks() {
            if let Some(next) = &next {
                next.prefetch(&rows, head);
            }
            out.at(0..tokens, columns.clone()).prefetch_rows(rows.clone());
            let queries = widened_rows(queries, heads.queries.at(rows.clone(), columns.clone()));
            let block = ForwardBlock { sizes, rows: rows.clone(), keys: &keys, values: &values };
            let log_sum = &mut log_sum[rows.clone()];
            out.at(rows, columns.clone()).overwrite(outs, instructions.width(), |outs| {
                block.compute(queries, scores, outs, sums, log_sum);
            });
        }
    }
    Ok(())
}

/// Some queries of a head.
struct ForwardBlock<'a> {
    sizes: Sizes,
    rows: Range<usize>,
    keys: &'a Panels<'a>,
    values: &'a Panels<'a>,
}

impl ForwardBlock<'_> {
    /// `outs` `[queries, head_dim]` = softmax(queries · keysᵀ) · values, tile by tile.
    fn compute(
        &self,
        queries: Rows<'_>,
        scores: &mut [f32],
        mut outs: Grid<'_, f32>,
        sums: &mut [f32],
        log_sum: &mut [f32],
    ) {
        let Sizes { head_dim, scale, .. } = self.sizes;
        let stride = self.sizes.stride();
        for tile in self.sizes.tiles(self.rows.len()) {
            let seen = self.rows.start + tile.end;
            let (sums, log_sum) = (&mut sums[tile.clone()], &mut log_sum[tile.clone()]);
            let tile_scores = Grid::new(scores, tile.len(), stride, stride);
            let queries = queries.starting_at(tile.start);
            self.keys.add_products(tile_scores, Start::Zero, queries, seen, 0..head_dim);
            vectorized!(softmax(scores, stride, sums, log_sum, seen, scale));
            let probabilities = Rows {
                bytes: bytemuck::cast_slice(scores),
                row: stride * size_of::<f32>(),
                step: size_of::<f32>(),
            };
            let mut outs = outs.rows(tile);
            let products = outs.reborrow();
            self.values.add_products(products, Start::Zero, probabilities, head_dim, 0..seen);
            vectorized!(divide_rows(outs, sums));
            for (log_sum, sum) in log_sum.iter_mut().zip(sums) {
                *log_sum += ln(*sum);
            }
        }
    }
}

/// Turns the scores of a tile's queries, the last of which sees `seen` keys, into
/// e^(scale·score − largest), 0 behind the query; `sums` = their sums, `largest` = the scaled
/// largest scores.
#[inline(always)]
fn softmax(
    scores: &mut [f32],
    stride: usize,
    sums: &mut [f32],
    largest: &mut [f32],
    seen: usize,
    scale: f32,
) {
    let first = seen + 1 - sums.len();
    let rows = scores.chunks_exact_mut(stride).zip(sums.iter_mut().zip(largest));
    for (row, (scores, (sum, largest))) in rows.enumerate() {
        let scores = hide(&mut scores[..seen.next_multiple_of(LANES)], first + row, f32::NEG_INFINITY);
        *largest = maximum(scores) * scale;
        *sum = exponentiate(scores, scale, *largest);
    }
}

#[inline(always)]
fn divide_rows(rows: Grid<'_, f32>, sums: &[f32]) {
    for (row, sum) in rows.into_rows().zip(sums) {
        let factor = 1.0 / sum;
        for x in row {
            *x *= factor;
        }
    }
}
