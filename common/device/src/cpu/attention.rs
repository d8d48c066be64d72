//! Causal attention, forward and backward, in tiles of queries against the keys up to them.
//!
//! One tile's scores exist at a time. Each (sequence, key/value head) pair is a task of its own; the query heads that
//! share a key/value head follow each other, so their contributions to its gradient add up in order.

use super::Cpu;
use super::dispatch::vectorized;
use super::math::{LANES, dot, exponentiate, maximum};
use super::operand::{Check, Source, Target};
use super::tile::{Tile, TileMut, multiply, packed, packed_mut, row_of, row_of_mut};
use crate::Result;
use crate::buffer::{View, ViewMut};
use crate::kernels::{Attention, Write};
use faer::{MatMut, MatRef};
use std::ops::Range;

/// Queries of a tile.
const QUERIES: usize = 64;

/// Sizes that follow from [`Attention`].
#[derive(Clone, Copy)]
struct Sizes {
    tokens: usize,
    head_dim: usize,
    /// Query heads per key/value head.
    group: usize,
    /// 1/√head_dim.
    scale: f32,
}

impl Sizes {
    fn new(check: Check, shape: Attention) -> Result<Self> {
        let kv_heads = shape.kv_heads.max(1);
        check.len("heads", shape.heads, shape.heads.next_multiple_of(kv_heads))?;
        check.len("kv_heads", shape.kv_heads, kv_heads)?;
        let scale = 1.0 / (shape.head_dim as f64).sqrt();
        Ok(Sizes {
            tokens: shape.tokens,
            head_dim: shape.head_dim,
            group: shape.heads / kv_heads,
            scale: scale as f32,
        })
    }

    /// The tiles of queries; each attends to keys `0..end`.
    fn tiles(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.tokens).step_by(QUERIES).map(move |start| start..(start + QUERIES).min(self.tokens))
    }

    /// Elements of a tile of scores, at most.
    fn scores(self) -> usize {
        QUERIES.min(self.tokens) * self.tokens
    }

    /// Elements of one head of one sequence.
    fn head(self) -> usize {
        self.tokens * self.head_dim
    }
}

/// One (sequence, key/value head) pair's part of a packed projection.
#[derive(Clone, Copy)]
struct Heads<'a> {
    /// `[tokens, group · head_dim]`
    queries: Tile<'a>,
    /// `[tokens, head_dim]`
    keys: Tile<'a>,
    /// `[tokens, head_dim]`
    values: Tile<'a>,
}

impl<'a> Heads<'a> {
    fn new(qkv: Source<'a>, shape: Attention, sequence: usize, kv_head: usize) -> Self {
        let width = shape.packed_width();
        let rows = sequence * shape.tokens..(sequence + 1) * shape.tokens;
        let all = Tile::new(qkv, shape.rows(), width, width);
        let head = |first: usize, count: usize| {
            all.at(rows.clone(), first * shape.head_dim..(first + count) * shape.head_dim)
        };
        let group = shape.heads / shape.kv_heads;
        Heads {
            queries: head(kv_head * group, group),
            keys: head(shape.heads + kv_head, 1),
            values: head(shape.heads + shape.kv_heads + kv_head, 1),
        }
    }
}

/// Cuts a `[rows, heads · width]` tile into one `[tokens, width]` tile per sequence and head.
fn per_head(tile: TileMut<'_>, tokens: usize, width: usize) -> Vec<TileMut<'_>> {
    let (rows, columns) = tile.shape();
    let mut tiles = Vec::with_capacity((rows * columns).checked_div(tokens * width).unwrap_or(0));
    let mut below = tile;
    for _ in 0..rows.checked_div(tokens).unwrap_or(0) {
        let (mut right, next) = below.split_rows(tokens);
        for _ in 0..columns.checked_div(width).unwrap_or(0) {
            let (tile, next) = right.split_columns(width);
            tiles.push(tile);
            right = next;
        }
        below = next;
    }
    tiles
}

/// Every (sequence, key/value head) pair, in order.
fn pairs(shape: Attention) -> impl Iterator<Item = (usize, usize)> {
    (0..shape.batch).flat_map(move |sequence| (0..shape.kv_heads).map(move |head| (sequence, head)))
}

pub(super) fn attention(
    cpu: &Cpu,
    out: ViewMut<'_>,
    log_sum: ViewMut<'_>,
    qkv: View<'_>,
    shape: Attention,
) -> Result<()> {
    let check = Check("attention");
    let sizes = Sizes::new(check, shape)?;
    let (rows, width) = (shape.rows(), shape.width());
    let out = TileMut::new(check.target("out", out, rows * width)?, rows, width, width);
    let log_sum = check.f32_mut("log_sum", log_sum, rows * shape.heads)?;
    let qkv = check.source("qkv", &qkv, rows * shape.packed_width())?;
    let outs = per_head(out, shape.tokens, sizes.group * shape.head_dim);
    let log_sums = log_sum.chunks_mut((sizes.group * shape.tokens).max(1));
    let tasks = pairs(shape).zip(outs.into_iter().zip(log_sums)).collect();
    cpu.workers.each(tasks, |((sequence, head), (out, log_sum))| {
        forward(cpu, sizes, out, log_sum, Heads::new(qkv, shape, sequence, head));
    });
    Ok(())
}

fn forward(cpu: &Cpu, sizes: Sizes, mut out: TileMut<'_>, log_sum: &mut [f32], heads: Heads<'_>) {
    let Sizes { tokens, head_dim, group, .. } = sizes;
    let mut scratch = cpu.scratch(sizes.scores() + 2 * sizes.head() + 2 * QUERIES * head_dim + QUERIES);
    let (scores, rest) = scratch.split_at_mut(sizes.scores());
    let (wide_keys, rest) = rest.split_at_mut(sizes.head());
    let (wide_values, rest) = rest.split_at_mut(sizes.head());
    let (wide_queries, rest) = rest.split_at_mut(QUERIES * head_dim);
    let (wide_out, sums) = rest.split_at_mut(QUERIES * head_dim);
    let (keys, values) = (heads.keys.read(wide_keys), heads.values.read(wide_values));
    for (head, log_sum) in (0..group).zip(log_sum.chunks_mut(tokens)) {
        let columns = head * head_dim..(head + 1) * head_dim;
        for rows in sizes.tiles() {
            let (count, seen) = (rows.len(), rows.end);
            let queries = heads.queries.at(rows.clone(), columns.clone()).read(wide_queries);
            let scores = &mut scores[..count * seen];
            let keys = keys.subrows(0, seen).transpose();
            multiply(packed_mut(scores, count, seen), Write::Replace, queries, keys);
            let log_sum = &mut log_sum[rows.clone()];
            vectorized!(softmax_tile(scores, sums, log_sum, rows.clone(), sizes.scale));
            for (log_sum, sum) in log_sum.iter_mut().zip(&*sums) {
                *log_sum += sum.ln();
            }
            let probabilities = packed(scores, count, seen);
            out.at(rows, columns.clone()).compute(Write::Replace, wide_out, |mut out, write| {
                multiply(out.as_mut(), write, probabilities, values.subrows(0, seen));
                vectorized!(divide_rows(out, sums));
            });
        }
    }
}

/// Turns the scores of queries `rows` against keys `0..rows.end` into e^(scale·score − largest), 0 behind the query;
/// `sums` = their sums, `largest` = the scaled largest scores.
#[inline(always)]
fn softmax_tile(scores: &mut [f32], sums: &mut [f32], largest: &mut [f32], rows: Range<usize>, scale: f32) {
    let outputs = sums.iter_mut().zip(largest);
    for ((row, scores), (sum, largest)) in rows.clone().zip(scores.chunks_exact_mut(rows.end)).zip(outputs) {
        let seen = hide(scores, row + 1, f32::NEG_INFINITY);
        *largest = maximum(seen) * scale;
        *sum = exponentiate(seen, scale, *largest);
    }
}

/// Fills what lies behind the first `seen` scores with `hidden` as far as the last vector that holds a seen one, and with
/// 0 from there; returns those vectors, so that nothing is left over to compute one by one.
#[inline(always)]
fn hide(scores: &mut [f32], seen: usize, hidden: f32) -> &mut [f32] {
    let whole = seen.next_multiple_of(LANES).min(scores.len());
    let (vectors, rest) = scores.split_at_mut(whole);
    vectors[seen..].fill(hidden);
    rest.fill(0.0);
    vectors
}

#[inline(always)]
fn divide_rows(mut out: MatMut<'_, f32>, sums: &[f32]) {
    for (row, sum) in sums.iter().enumerate().take(out.nrows()) {
        let factor = 1.0 / sum;
        for x in row_of_mut(out.as_mut(), row) {
            *x *= factor;
        }
    }
}

pub(super) fn attention_backward(
    cpu: &Cpu,
    dqkv: ViewMut<'_>,
    dout: View<'_>,
    qkv: View<'_>,
    out: View<'_>,
    log_sum: View<'_>,
    shape: Attention,
) -> Result<()> {
    let check = Check("attention_backward");
    let sizes = Sizes::new(check, shape)?;
    let (rows, width) = (shape.rows(), shape.width());
    let dqkv = check.target("dqkv", dqkv, rows * shape.packed_width())?;
    let inputs = Inputs {
        dout: check.source("dout", &dout, rows * width)?,
        qkv: check.source("qkv", &qkv, rows * shape.packed_width())?,
        out: check.source("out", &out, rows * width)?,
        log_sum: check.f32("log_sum", &log_sum, rows * shape.heads)?,
        shape,
    };
    let tasks = pairs(shape).zip(gradients(dqkv, shape)).collect();
    cpu.workers.each(tasks, |(pair, gradient)| backward(cpu, sizes, gradient, inputs.pair(pair)));
    Ok(())
}

/// One (sequence, key/value head) pair's part of the packed gradient, as [`Heads`].
struct Gradient<'a> {
    queries: TileMut<'a>,
    keys: TileMut<'a>,
    values: TileMut<'a>,
}

/// The packed gradient, cut by pair.
fn gradients(dqkv: Target<'_>, shape: Attention) -> impl Iterator<Item = Gradient<'_>> {
    let Attention { tokens, head_dim, heads, kv_heads, .. } = shape;
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
    dout: Source<'a>,
    qkv: Source<'a>,
    out: Source<'a>,
    log_sum: &'a [f32],
    shape: Attention,
}

/// What one pair's gradient is computed from.
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
        let Attention { tokens, heads, kv_heads, head_dim, .. } = self.shape;
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

/// With P the probabilities: dV = Pᵀ·dO, dP = dO·Vᵀ, dS = P ∘ (dP − rowsum(dO ∘ O)) · scale, dQ = dS·K, dK = dSᵀ·Q
/// (Dao et al., 2022, appendix B.2).
fn backward(cpu: &Cpu, sizes: Sizes, mut gradient: Gradient<'_>, inputs: PairInputs<'_>) {
    let Sizes { tokens, head_dim, group, scale } = sizes;
    let tile = QUERIES * head_dim;
    let mut scratch = cpu.scratch(2 * sizes.scores() + 4 * sizes.head() + 4 * tile);
    let (scores, rest) = scratch.split_at_mut(sizes.scores());
    let (dscores, rest) = rest.split_at_mut(sizes.scores());
    let (wide_keys, rest) = rest.split_at_mut(sizes.head());
    let (wide_values, rest) = rest.split_at_mut(sizes.head());
    let (dkeys, rest) = rest.split_at_mut(sizes.head());
    let (dvalues, rest) = rest.split_at_mut(sizes.head());
    let (wide_queries, rest) = rest.split_at_mut(tile);
    let (wide_dout, rest) = rest.split_at_mut(tile);
    let (wide_out, wide_dqueries) = rest.split_at_mut(tile);
    let (keys, values) = (inputs.heads.keys.read(wide_keys), inputs.heads.values.read(wide_values));
    dkeys.fill(0.0);
    dvalues.fill(0.0);
    for (head, log_sum) in (0..group).zip(inputs.log_sum.chunks(tokens)) {
        let columns = head * head_dim..(head + 1) * head_dim;
        for rows in sizes.tiles() {
            let (count, seen) = (rows.len(), rows.end);
            let (keys, values) = (keys.subrows(0, seen), values.subrows(0, seen));
            let queries = inputs.heads.queries.at(rows.clone(), columns.clone()).read(wide_queries);
            let dout = inputs.dout.at(rows.clone(), columns.clone()).read(wide_dout);
            let out = inputs.out.at(rows.clone(), columns.clone()).read(wide_out);
            let (scores, dscores) = (&mut scores[..count * seen], &mut dscores[..count * seen]);
            multiply(packed_mut(scores, count, seen), Write::Replace, queries, keys.transpose());
            multiply(packed_mut(dscores, count, seen), Write::Replace, dout, values.transpose());
            vectorized!({
                softmax_tile_backward(scores, dscores, dout, out, &log_sum[rows.clone()], rows.clone(), scale)
            });
            let (probabilities, dscores) = (packed(scores, count, seen), packed(dscores, count, seen));
            multiply(packed_mut(dvalues, seen, head_dim), Write::Accumulate, probabilities.transpose(), dout);
            multiply(packed_mut(dkeys, seen, head_dim), Write::Accumulate, dscores.transpose(), queries);
            gradient.queries.at(rows, columns.clone()).compute(
                Write::Replace,
                wide_dqueries,
                |out, write| {
                    multiply(out, write, dscores, keys);
                },
            );
        }
    }
    let size = (tokens, head_dim);
    gradient.keys.compute(Write::Replace, wide_keys, |out, _| copy_rows(out, packed(dkeys, size.0, size.1)));
    gradient
        .values
        .compute(Write::Replace, wide_values, |out, _| copy_rows(out, packed(dvalues, size.0, size.1)));
}

/// `scores` become probabilities and `dscores`, the gradient of the probabilities, becomes that of the raw scores.
#[inline(always)]
fn softmax_tile_backward(
    scores: &mut [f32],
    dscores: &mut [f32],
    dout: MatRef<'_, f32>,
    out: MatRef<'_, f32>,
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

fn copy_rows(mut to: MatMut<'_, f32>, from: MatRef<'_, f32>) {
    for row in 0..from.nrows() {
        row_of_mut(to.as_mut(), row).copy_from_slice(row_of(from, row));
    }
}
