//! Attention backward, which recomputes the probabilities.

use super::{Heads, QUERIES, Sizes, hide, pairs, per_head};
use crate::Result;
use crate::cpu::Cpu;
use crate::cpu::dense::{packed, packed_mut, row_of};
use crate::cpu::math::{dot, exponentiate};
use crate::cpu::multiply::multiply;
use crate::cpu::operand::{Floats, FloatsMut};
use crate::cpu::tile::{Tile, TileMut};
use crate::operations::AttentionBackward;
use crate::shapes::{AttentionShape, Write};
use crate::vectorized;
use crate::view::{View, ViewMut};
use ndarray::{ArrayView2, ArrayViewMut2, s};
use std::ops::Range;

pub(in crate::cpu) fn attention_backward(
    cpu: &Cpu,
    arguments: AttentionBackward<View<'_>, ViewMut<'_>>,
) -> Result<()> {
    let AttentionBackward { dqkv, dout, qkv, out, log_sum, shape } = arguments;
    let sizes = Sizes::new(shape);
    let inputs =
        Inputs { dout: dout.into(), qkv: qkv.into(), out: out.into(), log_sum: log_sum.as_slice(), shape };
    let tasks = pairs(shape).zip(gradients(dqkv.into(), shape)).collect();
    cpu.workers.each(tasks, |(pair, gradient)| backward(cpu, sizes, gradient, inputs.pair(pair)))
}

/// One (sequence, key/value head) pair's part of the packed gradient, as [`Heads`].
struct Gradient<'a> {
    queries: TileMut<'a>,
    keys: TileMut<'a>,
    values: TileMut<'a>,
}

/// The packed gradient, cut by pair.
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

#[derive(Clone, Copy)]
struct Inputs<'a> {
    dout: Floats<'a>,
    qkv: Floats<'a>,
    out: Floats<'a>,
    log_sum: &'a [f32],
    shape: AttentionShape,
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

impl<'a> Inputs<'a> {
    fn pair(self, (sequence, kv_head): (usize, usize)) -> PairInputs<'a> {
        let AttentionShape { tokens, heads, kv_heads, head_dim, .. } = self.shape;
        let group = heads / kv_heads;
        let rows = sequence * tokens..(sequence + 1) * tokens;
        let columns = kv_head * group * head_dim..(kv_head + 1) * group * head_dim;
        let width = self.shape.width();
        let part =
            |source| Tile::new(source, self.shape.rows(), width, width).at(rows.clone(), columns.clone());
        let first = (sequence * heads + kv_head * group) * tokens;
        PairInputs {
            heads: Heads::new(self.qkv, self.shape, sequence, kv_head),
            dout: part(self.dout),
            out: part(self.out),
            log_sum: &self.log_sum[first..first + group * tokens],
        }
    }
}

fn backward(cpu: &Cpu, sizes: Sizes, gradient: Gradient<'_>, inputs: PairInputs<'_>) -> Result<()> {
    let (head, tile) = (sizes.head(), QUERIES * sizes.head_dim);
    let mut scratch = cpu.scratch(2 * sizes.scores() + 4 * head + 4 * tile)?;
    let [scores, dscores, keys, values, dkeys, dvalues, queries, dout, out, dqueries] =
        scratch.parts([sizes.scores(), sizes.scores(), head, head, head, head, tile, tile, tile, tile]);
    let (keys, values) = (inputs.heads.keys.read(keys), inputs.heads.values.read(values));
    let mut room = Room { scores, dscores, queries, dout, out, dqueries };
    let Gradient { queries: mut dqueries, keys: mut dkeys_tile, values: mut dvalues_tile } = gradient;
    dkeys_tile.compute(Write::Replace, dkeys, |mut dkeys, write| {
        dvalues_tile.compute(write, dvalues, |mut dvalues, mut write| {
            // The last tile sees every key, so it comes first, and overwrites.
            for (head, rows) in
                (0..sizes.group).flat_map(|head| sizes.tiles().rev().map(move |rows| (head, rows)))
            {
                let seen = rows.end;
                let tile = BackwardTile {
                    sizes,
                    head,
                    rows,
                    keys: keys.slice_move(s![..seen, ..]),
                    values: values.slice_move(s![..seen, ..]),
                };
                let outputs = (dkeys.slice_mut(s![..seen, ..]), dvalues.slice_mut(s![..seen, ..]));
                tile.compute(&mut room, &inputs, &mut dqueries, outputs, write);
                write = Write::Accumulate;
            }
        });
    });
    Ok(())
}

/// Scratch memory of one tile: its scores and their gradient, and where 16-bit operands are
/// widened.
struct Room<'s> {
    scores: &'s mut [f32],
    dscores: &'s mut [f32],
    queries: &'s mut [f32],
    dout: &'s mut [f32],
    out: &'s mut [f32],
    dqueries: &'s mut [f32],
}

/// Queries `rows` of a head against the keys and values up to them.
struct BackwardTile<'a> {
    sizes: Sizes,
    head: usize,
    rows: Range<usize>,
    keys: ArrayView2<'a, f32>,
    values: ArrayView2<'a, f32>,
}

impl BackwardTile<'_> {
    /// With P the probabilities: dV = Pᵀ·dO, dP = dO·Vᵀ, dS = P ∘ (dP − rowsum(dO ∘ O)) · scale,
    /// dQ = dS·K, dK = dSᵀ·Q (Dao et al., 2022, appendix B.2). `dqueries` is overwritten, the other
    /// outputs as `write` says.
    fn compute(
        &self,
        room: &mut Room<'_>,
        inputs: &PairInputs<'_>,
        dqueries: &mut TileMut<'_>,
        (dkeys, dvalues): (ArrayViewMut2<'_, f32>, ArrayViewMut2<'_, f32>),
        write: Write,
    ) {
        let Sizes { tokens, head_dim, scale, .. } = self.sizes;
        let (rows, columns) = (self.rows.clone(), self.head * head_dim..(self.head + 1) * head_dim);
        let (count, seen) = (rows.len(), rows.end);
        let queries = inputs.heads.queries.at(rows.clone(), columns.clone()).read(room.queries);
        let dout = inputs.dout.at(rows.clone(), columns.clone()).read(room.dout);
        let out = inputs.out.at(rows.clone(), columns.clone()).read(room.out);
        let (scores, dscores) = (&mut room.scores[..count * seen], &mut room.dscores[..count * seen]);
        multiply(packed_mut(scores, count, seen), Write::Replace, queries, self.keys.reversed_axes());
        multiply(packed_mut(dscores, count, seen), Write::Replace, dout, self.values.reversed_axes());
        let log_sum = &inputs.log_sum[self.head * tokens..][rows.clone()];
        vectorized!(softmax_tile_backward(scores, dscores, dout, out, log_sum, rows.clone(), scale));
        let (probabilities, dscores) = (packed(scores, count, seen), packed(dscores, count, seen));
        multiply(dvalues, write, probabilities.reversed_axes(), dout);
        multiply(dkeys, write, dscores.reversed_axes(), queries);
        dqueries.at(rows, columns).compute(Write::Replace, room.dqueries, |dqueries, write| {
            multiply(dqueries, write, dscores, self.keys);
        });
    }
}

/// `scores` become probabilities and `dscores`, the gradient of the probabilities, becomes that of
/// the raw scores.
#[inline(always)]
fn softmax_tile_backward(
    scores: &mut [f32],
    dscores: &mut [f32],
    dout: ArrayView2<'_, f32>,
    out: ArrayView2<'_, f32>,
    log_sum: &[f32],
    rows: Range<usize>,
    scale: f32,
) {
    let tiles = scores.chunks_exact_mut(rows.end).zip(dscores.chunks_exact_mut(rows.end));
    for (i, (scores, dscores)) in tiles.enumerate() {
        let seen = hide(scores, rows.start + i + 1, f32::NEG_INFINITY);
        let dseen = hide(dscores, rows.start + i + 1, 0.0);
        exponentiate(seen, scale, log_sum[i]);
        let mean = dot(row_of(dout, i), row_of(out, i));
        for (dscore, probability) in dseen.iter_mut().zip(seen) {
            *dscore = *probability * (*dscore - mean) * scale;
        }
    }
}
