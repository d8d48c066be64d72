//! Attention backward, which recomputes the probabilities.

use super::{Heads, Pair, Sizes, hide, pairs, per_head, prefetch_head};
use crate::Result;
use crate::cpu::Cpu;
use crate::cpu::grid::Grid;
use crate::cpu::math::{LANES, dot, exponentiate};
use crate::cpu::operand::{Floats, FloatsMut};
use crate::cpu::product::{Panels, Rows, Start, widened_rows};
use crate::cpu::tile::{Tile, TileMut};
use crate::cpu::workers::blocks;
use crate::dispatch::vectorized;
use crate::operations::{Addend, AttentionBackward};
use crate::shapes::AttentionShape;
use crate::view::{View, ViewMut};
use std::iter;
use std::ops::Range;

pub(in crate::cpu) fn attention_backward(
    cpu: &Cpu,
    arguments: AttentionBackward<View<'_>, ViewMut<'_>>,
) -> Result<()> {
    let AttentionBackward { dqkv, dout, qkv, out, log_sum, shape } = arguments;
    let AttentionShape { tokens, heads, head_dim, .. } = shape;
    let (sizes, qkv, log_sum) = (Sizes::new(shape), Floats::from(qkv), log_sum.as_slice());
    let [dout, out] =
        [dout, out].map(|data| Tile::new(data.into(), shape.rows(), shape.width(), shape.width()));
    let inputs = |pair: Pair| {
        let ((sequence, kv_head), group) = (pair, sizes.group);
        let rows = sequence * tokens..(sequence + 1) * tokens;
        let columns = kv_head * group * head_dim..(kv_head + 1) * group * head_dim;
        let first = (sequence * heads + kv_head * group) * tokens;
        PairInputs {
            heads: Heads::new(qkv, shape, pair),
            dout: dout.at(rows.clone(), columns.clone()),
            out: out.at(rows, columns),
            log_sum: &log_sum[first..first + group * tokens],
        }
    };
    let tasks = pairs(shape, cpu.workers.threads()).zip(gradients(dqkv.into(), shape)).collect();
    cpu.workers.each(tasks, |((pair, next), gradient)| {
        backward(cpu, sizes, gradient, inputs(pair), next.map(inputs))
    })
}

/// One (sequence, key/value head) pair's part of the packed gradient, as [`Heads`].
struct Gradient<'a> {
    queries: TileMut<'a>,
    keys: TileMut<'a>,
    values: TileMut<'a>,
}

/// Returns the packed gradient, cut by pair.
fn gradients(dqkv: FloatsMut<'_>, shape: AttentionShape) -> impl Iterator<Item = Gradient<'_>> {
    let AttentionShape { tokens, head_dim, heads, kv_heads, .. } = shape;
    let packed_width = shape.packed_width();
    let all = TileMut::new(dqkv, shape.rows(), packed_width, packed_width);
    let (queries, rest) = all.split_columns(heads * head_dim);
    let (keys, values) = rest.split_columns(kv_heads * head_dim);
    let queries = per_head(queries, tokens, heads / kv_heads * head_dim);
    let keys = per_head(keys, tokens, head_dim);
    let values = per_head(values, tokens, head_dim);
    queries.into_iter().zip(keys).zip(values).map(|((queries, keys), values)| Gradient {
        queries,
        keys,
        values,
    })
}

/// Inputs of one pair's gradient.
struct PairInputs<'a> {
    heads: Heads<'a>,
    /// `[tokens, group · head_dim]`
    dout: Tile<'a>,
    /// `[tokens, group · head_dim]`
    out: Tile<'a>,
    /// `[group, tokens]`
    log_sum: &'a [f32],
}

impl PairInputs<'_> {
    /// Prefetches `rows` of all operands that query head `head` reads; see [`Heads::prefetch`].
    fn prefetch(&self, rows: &Range<usize>, head: usize) {
        self.heads.prefetch(rows, head);
        for tile in [self.dout, self.out] {
            prefetch_head(tile, rows, head, self.heads.keys.shape().1);
        }
    }
}

fn backward(
    cpu: &Cpu,
    sizes: Sizes,
    mut gradient: Gradient<'_>,
    inputs: PairInputs<'_>,
    next: Option<PairInputs<'_>>,
) -> Result<()> {
    let Sizes { tokens, group, instructions, .. } = sizes;
    let (head, padded) = ((tokens * sizes.padded()).next_multiple_of(LANES), sizes.padded());
    let lengths = [sizes.by_token(), sizes.by_token(), sizes.by_element(), head, head, sizes.room()];
    let mut scratch = cpu.scratch(lengths.iter().sum())?;
    let [keys, values, key_elements, dkeys, dvalues, room] = scratch.parts(lengths);
    let keys = KeysValues {
        keys: Panels::widened(instructions, keys, inputs.heads.keys),
        values: Panels::widened(instructions, values, inputs.heads.values),
        key_elements: Panels::widened(instructions, key_elements, inputs.heads.keys.transposed_if(true)),
    };
    dkeys.fill(0.0);
    dvalues.fill(0.0);
    for head in 0..group {
        let head = Head { sizes, number: head, inputs: &inputs, next: next.as_ref(), keys: &keys };
        head.compute(room, &mut gradient, dkeys, dvalues);
    }
    gradient.keys.finish(Grid::new(dkeys, tokens, padded, padded), Addend::Zero);
    gradient.values.finish(Grid::new(dvalues, tokens, padded, padded), Addend::Zero);
    Ok(())
}

impl Sizes {
    /// Returns the number of f32 that one head needs. Its sums take the place of widened rows.
    fn room(self) -> usize {
        2 * (self.by_element() + self.scores()) + (3 * self.wide_rows()).max(self.sums())
    }
}

/// A pair's keys and values, copied for the innermost loop.
struct KeysValues<'a> {
    keys: Panels<'a>,
    values: Panels<'a>,
    /// The keys again, with the head's elements as columns.
    key_elements: Panels<'a>,
}

/// One query head.
struct Head<'a> {
    sizes: Sizes,
    number: usize,
    inputs: &'a PairInputs<'a>,
    /// Inputs of the pair to prefetch; see [`pairs`].
    next: Option<&'a PairInputs<'a>>,
    keys: &'a KeysValues<'a>,
}

impl Head<'_> {
    /// Returns its columns of the pair's queries and outputs.
    fn columns(&self) -> Range<usize> {
        self.number * self.sizes.head_dim..(self.number + 1) * self.sizes.head_dim
    }

    /// Computes, with P the probabilities: dV = Pᵀ·dO, dP = dO·Vᵀ, dS = P ∘ (dP − rowsum(dO ∘ O)) ·
    /// scale, dQ = dS·K, dK = dSᵀ·Q (Dao et al., 2022, appendix B.2). The queries' gradient is
    /// overwritten; `dkeys` and `dvalues` `[tokens, head_dim]` are added to.
    fn compute(&self, room: &mut [f32], gradient: &mut Gradient<'_>, dkeys: &mut [f32], dvalues: &mut [f32]) {
        let Sizes { tokens, instructions, .. } = self.sizes;
        let columns = self.columns();
        let queries = self.inputs.heads.queries.at(0..tokens, columns.clone());
        let dout = self.inputs.dout.at(0..tokens, columns.clone());
        let (elements, room) = room.split_at_mut(2 * self.sizes.by_element());
        let (query_elements, dout_elements) = elements.split_at_mut(self.sizes.by_element());
        let query_elements = Panels::widened(instructions, query_elements, queries.transposed_if(true));
        let dout_elements = Panels::widened(instructions, dout_elements, dout.transposed_if(true));
        let (scores, room) = room.split_at_mut(self.sizes.scores());
        let (dscores, room) = room.split_at_mut(self.sizes.scores());
        for rows in self.sizes.blocks() {
            if let Some(next) = self.next {
                next.prefetch(&rows, self.number);
            }
            if self.number == 0 {
                gradient.keys.prefetch_rows(rows.clone());
                gradient.values.prefetch_rows(rows.clone());
            }
            let block = BackwardBlock { head: self, rows: rows.clone() };
            block.scores(scores, dscores, room);
            block.add_by_key(dvalues, scores, &dout_elements);
            block.add_by_key(dkeys, dscores, &query_elements);
            gradient.queries.at(rows, columns.clone()).overwrite(room, instructions.width(), |sums| {
                block.queries(sums, dscores);
            });
        }
    }
}

/// Some queries of a head.
struct BackwardBlock<'a> {
    head: &'a Head<'a>,
    rows: Range<usize>,
}

impl BackwardBlock<'_> {
    /// `scores` = the probabilities, `dscores` = the gradient of the raw scores; both 0 behind a
    /// query.
    fn scores(&self, scores: &mut [f32], dscores: &mut [f32], room: &mut [f32]) {
        let Head { sizes, number, inputs, keys, .. } = *self.head;
        let Sizes { tokens, head_dim, .. } = sizes;
        let columns = self.head.columns();
        let (wide_queries, room) = room.split_at_mut(sizes.wide_rows());
        let (wide_dout, wide_out) = room.split_at_mut(sizes.wide_rows());
        let queries = widened_rows(wide_queries, inputs.heads.queries.at(self.rows.clone(), columns.clone()));
        let dout = widened_rows(wide_dout, inputs.dout.at(self.rows.clone(), columns.clone()));
        let out = widened_rows(wide_out, inputs.out.at(self.rows.clone(), columns));
        let log_sum = &inputs.log_sum[number * tokens..][self.rows.clone()];
        let stride = sizes.stride();
        for tile in sizes.tiles(self.rows.len()) {
            let (seen, first) = (self.rows.start + tile.end, tile.start * stride);
            let (scores, dscores) = (&mut scores[first..], &mut dscores[first..]);
            let [rows, dout, out] = [queries, dout, out].map(|rows| rows.starting_at(tile.start));
            let products = Grid::new(scores, tile.len(), stride, stride);
            keys.keys.add_products(products, Start::Zero, rows, seen, 0..head_dim);
            let products = Grid::new(dscores, tile.len(), stride, stride);
            keys.values.add_products(products, Start::Zero, dout, seen, 0..head_dim);
            let range = self.rows.start + tile.start..seen;
            let (log_sum, end) = (&log_sum[tile], self.rows.end);
            vectorized!(softmax_backward(sizes, scores, dscores, [dout, out], log_sum, range, end));
        }
    }

    /// Adds scoresᵀ · `columns` `[queries, head_dim]` to `sums` `[keys, head_dim]`, for all keys
    /// that the block sees. A tile of keys starts at the first query that sees any of them.
    fn add_by_key(&self, sums: &mut [f32], scores: &[f32], columns: &Panels<'_>) {
        let Sizes { head_dim, instructions, .. } = self.head.sizes;
        let (stride, padded) = (self.head.sizes.stride(), self.head.sizes.padded());
        let mut sums = Grid::new(sums, self.rows.end, padded, padded);
        // The keys before the block and its own first tile all start at its first query, so they
        // are one call. Scores of keys behind a query are 0.
        let upper = (self.rows.start + instructions.rows()).min(self.rows.end);
        for keys in iter::once(0..upper).chain(blocks(upper..self.rows.end, instructions.rows())) {
            let first = keys.start.max(self.rows.start);
            let transposed = Rows {
                bytes: bytemuck::cast_slice(&scores[(first - self.rows.start) * stride + keys.start..]),
                row: size_of::<f32>(),
                step: stride * size_of::<f32>(),
            };
            let steps = first..self.rows.end;
            columns.add_products(sums.rows(keys), Start::Sums, transposed, head_dim, steps);
        }
    }

    /// `sums` `[queries, head_dim]` = dscores · keys.
    fn queries(&self, mut sums: Grid<'_, f32>, dscores: &[f32]) {
        let (sizes, size) = (self.head.sizes, size_of::<f32>());
        let rows = Rows { bytes: bytemuck::cast_slice(dscores), row: sizes.stride() * size, step: size };
        for tile in sizes.tiles(self.rows.len()) {
            let (seen, rows) = (self.rows.start + tile.end, rows.starting_at(tile.start));
            let keys = &self.head.keys.key_elements;
            keys.add_products(sums.rows(tile), Start::Zero, rows, sizes.head_dim, 0..seen);
        }
    }
}

/// Turns the scores of some queries into probabilities, and `dscores`, the gradient of the
/// probabilities, into that of the raw scores. `dout` and `out` are `[queries, head_dim]`,
/// `log_sum` is `[queries]`. Behind a query both become 0, up to key `end` and the end of its
/// vector.
#[inline(always)]
fn softmax_backward(
    sizes: Sizes,
    scores: &mut [f32],
    dscores: &mut [f32],
    [dout, out]: [Rows<'_>; 2],
    log_sum: &[f32],
    queries: Range<usize>,
    end: usize,
) {
    let Sizes { head_dim, scale, .. } = sizes;
    let (stride, whole) = (sizes.stride(), end.next_multiple_of(LANES));
    let both = scores.chunks_exact_mut(stride).zip(dscores.chunks_exact_mut(stride));
    for (row, ((query, log_sum), (scores, dscores))) in queries.zip(log_sum).zip(both).enumerate() {
        let probabilities = hide(&mut scores[..whole], query + 1, f32::NEG_INFINITY);
        let gradients = hide(&mut dscores[..whole], query + 1, 0.0);
        exponentiate(probabilities, scale, *log_sum);
        // The mean of the gradients, weighted by the probabilities.
        let mean = dot(dout.row(row, head_dim), out.row(row, head_dim));
        for (gradient, probability) in gradients.iter_mut().zip(probabilities) {
            *gradient = *probability * (*gradient - mean) * scale;
        }
    }
}
