//! Attention as matrix products over tiles of queries, with the softmax of `softmax.cu` between
//! them: for heads whose tiles do not fit into shared memory, and as a reference for the tiled
//! kernels.
//!
//! The scores of one tile of one head exist at a time: [`QUERIES`] rows of at most T columns. As on
//! tensor cores, probabilities and the gradients of scores are rounded to the operands' type before
//! the next product; sums are f32, and results are rounded once.

use super::softmax::{
    ScoreTile, attention_delta, attention_softmax, attention_softmax_backward, attention_store,
};
use super::table::same_type;
use super::{Launcher, MatrixOperand, Multiplier, Operand};
use crate::operations::{Attention, AttentionBackward};
use crate::shapes::{AttentionShape, Matrix, Write};
use crate::{DType, Result};
use std::ops::Range;

/// Queries of a tile: a product large enough to be worth a launch, of scores that stay in a GPU's
/// cache.
const QUERIES: usize = 256;

/// Alignment of addresses in scratch memory, in bytes.
const ALIGNMENT: usize = 256;

/// See [`Attention`]; operands but `log_sum` have one type, heads any width. Scratch: a tile of
/// scores in f32, and unless that is the operands' type one of probabilities.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn attention_by_products(l: &impl Multiplier, arguments: Attention<Operand, Operand>) -> Result<()> {
    let Attention { out, log_sum, qkv, shape } = arguments;
    same_type("attention", qkv, [("out", out)])?;
    let room = [scores_bytes(shape), rounded_bytes(qkv.dtype, shape)];
    let [scores, probabilities] = parts(l, room)?;
    let scores = Operand { pointer: scores, dtype: DType::F32 };
    let probabilities = rounded(qkv.dtype, probabilities, scores);
    for head in Head::all(shape) {
        let log_sum = head.statistics(log_sum.pointer);
        for rows in head.tiles() {
            let (seen, tile) = (0..rows.end, head.tile(&rows));
            let (queries, keys) = (head.queries(qkv, rows.clone()), head.keys(qkv, seen.clone()));
            l.multiply(packed(scores, tile), queries, keys.t(), Write::Replace)?;
            attention_softmax(l, probabilities, log_sum, scores.pointer, tile)?;
            let (out, values) = (head.out(out, rows), head.values(qkv, seen));
            l.multiply(out, packed(probabilities, tile), values, Write::Replace)?;
        }
    }
    Ok(())
}

/// See [`AttentionBackward`]; operands but `log_sum` have one type, heads any width. Scratch: f32
/// `[batch, heads, tokens]`, tiles of scores and of their gradients, and f32 `[tokens, head_dim]`
/// twice, for the gradients of keys and values.
///
/// # Errors
/// As [`attention_by_products`].
pub fn attention_backward_by_products(
    l: &impl Multiplier,
    arguments: AttentionBackward<Operand, Operand>,
) -> Result<()> {
    let AttentionBackward { dqkv, dout, qkv, out, shape, .. } = arguments;
    same_type("attention_backward", qkv, [("dqkv", dqkv), ("dout", dout), ("out", out)])?;
    let backward = Backward::new(l, arguments)?;
    attention_delta(l, backward.delta, dout, out, shape)?;
    let group = (shape.heads / shape.kv_heads.max(1)).max(1);
    for head in Head::all(shape) {
        for rows in head.tiles().rev() {
            // The first tile sees every key and value, so it overwrites their gradients.
            let first = head.head.is_multiple_of(group) && rows.end == shape.tokens;
            let write = if first { Write::Replace } else { Write::Accumulate };
            backward.tile(l, &head, rows, write)?;
        }
        if (head.head + 1).is_multiple_of(group) {
            attention_store(l, head.keys(dqkv, 0..shape.tokens), backward.dkeys, 1)?;
            attention_store(l, head.values(dqkv, 0..shape.tokens), backward.dvalues, 1)?;
        }
    }
    Ok(())
}

/// Inputs and scratch memory of every tile's backward.
struct Backward {
    arguments: AttentionBackward<Operand, Operand>,
    /// f32 `[batch, heads, tokens]`: Σ dout · out.
    delta: u64,
    scores: Operand,
    dprobabilities: Operand,
    probabilities: Operand,
    dscores: Operand,
    /// f32 `[tokens, head_dim]`, summed over the query heads that share them.
    dkeys: u64,
    dvalues: u64,
}

impl Backward {
    fn new(l: &impl Launcher, arguments: AttentionBackward<Operand, Operand>) -> Result<Self> {
        let AttentionBackward { qkv, shape, .. } = arguments;
        let (wide, narrow) = (scores_bytes(shape), rounded_bytes(qkv.dtype, shape));
        let statistics = shape.rows() * shape.heads * 4;
        let sums = shape.tokens * shape.head_dim * 4;
        let [delta, scores, dprobabilities, probabilities, dscores, dkeys, dvalues] =
            parts(l, [statistics, wide, wide, narrow, narrow, sums, sums])?;
        let [scores, dprobabilities] =
            [scores, dprobabilities].map(|pointer| Operand { pointer, dtype: DType::F32 });
        let probabilities = rounded(qkv.dtype, probabilities, scores);
        let dscores = rounded(qkv.dtype, dscores, dprobabilities);
        Ok(Backward { arguments, delta, scores, dprobabilities, probabilities, dscores, dkeys, dvalues })
    }

    /// Queues, with P the probabilities: dV += Pᵀ·dO, dP = dO·Vᵀ, dS = P ∘ (dP − delta) · scale, dQ
    /// = dS·K, dK += dSᵀ·Q (Dao et al., 2022, appendix B.2).
    fn tile(&self, l: &impl Multiplier, head: &Head, rows: Range<usize>, write: Write) -> Result<()> {
        let AttentionBackward { dqkv, dout, qkv, log_sum, .. } = self.arguments;
        let (seen, tile) = (0..rows.end, head.tile(&rows));
        let (queries, keys) = (head.queries(qkv, rows.clone()), head.keys(qkv, seen.clone()));
        let (dout, values) = (head.out(dout, rows.clone()), head.values(qkv, seen));
        l.multiply(packed(self.scores, tile), queries, keys.t(), Write::Replace)?;
        l.multiply(packed(self.dprobabilities, tile), dout, values.t(), Write::Replace)?;
        let rounded = [self.probabilities, self.dscores];
        let wide = [self.scores.pointer, self.dprobabilities.pointer];
        let statistics = [log_sum.pointer, self.delta].map(|all| head.statistics(all));
        attention_softmax_backward(l, rounded, wide, statistics, tile)?;
        let [probabilities, dscores] = rounded.map(|data| packed(data, tile));
        l.multiply(head.sums(self.dvalues, tile.keys), probabilities.t(), dout, write)?;
        l.multiply(head.sums(self.dkeys, tile.keys), dscores.t(), queries, write)?;
        l.multiply(head.queries(dqkv, rows), dscores, keys, Write::Replace)
    }
}

/// One query head of one sequence, and the key/value head that it reads.
struct Head {
    shape: AttentionShape,
    sequence: usize,
    head: usize,
    kv_head: usize,
}

impl Head {
    /// Returns every head of every sequence; those that share keys and values follow each other.
    fn all(shape: AttentionShape) -> impl Iterator<Item = Head> {
        let kv_head = move |head| head * shape.kv_heads / shape.heads;
        (0..shape.batch).flat_map(move |sequence| {
            (0..shape.heads).map(move |head| Head { shape, sequence, head, kv_head: kv_head(head) })
        })
    }

    /// Returns the tiles of queries; each attends to keys `0..end`.
    fn tiles(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + use<> {
        let tokens = self.shape.tokens;
        (0..tokens).step_by(QUERIES).map(move |start| start..(start + QUERIES).min(tokens))
    }

    fn tile(&self, rows: &Range<usize>) -> ScoreTile {
        let scale = (1.0 / (self.shape.head_dim as f64).sqrt()) as f32;
        let (first, queries, keys) = (rows.start, rows.len(), rows.end);
        ScoreTile { first, queries, keys, scale }
    }

    /// `rows` of this sequence in head number `head` of a matrix whose rows are `stride` apart.
    fn rows(&self, data: Operand, rows: Range<usize>, head: usize, stride: usize) -> MatrixOperand {
        let AttentionShape { tokens, head_dim, .. } = self.shape;
        let first = (self.sequence * tokens + rows.start) * stride + head * head_dim;
        let pointer = data.pointer + (first * data.dtype.size()) as u64;
        let data = Operand { pointer, ..data };
        Matrix::new(data, rows.len(), head_dim).with_stride(stride)
    }

    fn queries(&self, qkv: Operand, rows: Range<usize>) -> MatrixOperand {
        self.rows(qkv, rows, self.head, self.shape.packed_width())
    }

    fn keys(&self, qkv: Operand, rows: Range<usize>) -> MatrixOperand {
        self.rows(qkv, rows, self.shape.heads + self.kv_head, self.shape.packed_width())
    }

    fn values(&self, qkv: Operand, rows: Range<usize>) -> MatrixOperand {
        let head = self.shape.heads + self.shape.kv_heads + self.kv_head;
        self.rows(qkv, rows, head, self.shape.packed_width())
    }

    fn out(&self, out: Operand, rows: Range<usize>) -> MatrixOperand {
        self.rows(out, rows, self.head, self.shape.width())
    }

    /// Returns the first `keys` rows of f32 `[tokens, head_dim]`.
    fn sums(&self, pointer: u64, keys: usize) -> MatrixOperand {
        Matrix::new(Operand { pointer, dtype: DType::F32 }, keys, self.shape.head_dim)
    }

    /// Returns the address of this head's part of f32 `[batch, heads, tokens]`.
    fn statistics(&self, all: u64) -> u64 {
        all + ((self.sequence * self.shape.heads + self.head) * self.shape.tokens * 4) as u64
    }
}

/// Returns a tile's scores as a matrix.
fn packed(data: Operand, tile: ScoreTile) -> MatrixOperand {
    Matrix::new(data, tile.queries, tile.keys)
}

/// Returns the maximum number of bytes of a tile of scores in f32.
fn scores_bytes(shape: AttentionShape) -> usize {
    QUERIES.min(shape.tokens) * shape.tokens * 4
}

/// Returns the bytes of one in the operands' type; none for f32, which is rounded in place.
fn rounded_bytes(dtype: DType, shape: AttentionShape) -> usize {
    if dtype == DType::F32 { 0 } else { scores_bytes(shape) / 4 * dtype.size() }
}

/// Returns the matrix that `wide` is rounded to.
fn rounded(dtype: DType, pointer: u64, wide: Operand) -> Operand {
    if dtype == DType::F32 { wide } else { Operand { pointer, dtype } }
}

/// Addresses of parts of scratch memory of the given sizes.
pub(super) fn parts<const N: usize>(l: &impl Launcher, bytes: [usize; N]) -> Result<[u64; N]> {
    let bytes = bytes.map(|bytes| bytes.next_multiple_of(ALIGNMENT));
    let mut next = l.scratch(bytes.iter().sum::<usize>().max(1))?;
    Ok(bytes.map(|bytes| {
        let part = next;
        next += bytes as u64;
        part
    }))
}
