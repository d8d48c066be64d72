//! Causal attention, forward and backward, in tiles of queries against the keys up to them.
//!
//! One block's scores exist at a time, in the nearest or the middle cache. Like every product, they
//! are computed in registers, tile by tile. Rows of one head lie far apart, often on different
//! pages, where a core's own prefetching stops; so a thread prefetches rows of the pair that it
//! will probably compute next. Each (sequence, key/value head) pair is a task of its own; the query
//! heads that share a key/value head follow each other, so their contributions to its gradient are
//! added in order.

mod backward;
mod forward;

pub(super) use backward::attention_backward;
pub(super) use forward::attention;

use super::math::LANES;
use super::operand::Floats;
use super::product::{Instructions, Panels, packed_row};
use super::tile::{Tile, TileMut};
use super::workers::{blocks, pieces};
use crate::shapes::AttentionShape;
use std::ops::Range;

/// Maximum number of queries of a block: 56, 66 or 64 in whole tiles of 14, 6 or 8. In backward a
/// block adds to the gradients of all keys up to it, so fewer blocks mean fewer passes over them.
const QUERIES: usize = 66;

/// Sizes that follow from [`AttentionShape`], and the instructions of the products.
#[derive(Clone, Copy)]
struct Sizes {
    instructions: Instructions,
    tokens: usize,
    head_dim: usize,
    /// Query heads per key/value head.
    group: usize,
    /// Maximum number of queries of a block: whole tiles.
    queries: usize,
    /// 1/√head_dim.
    scale: f32,
}

impl Sizes {
    fn new(shape: AttentionShape) -> Self {
        let instructions = Instructions::widest();
        let scale = 1.0 / (shape.head_dim as f64).sqrt();
        Sizes {
            instructions,
            tokens: shape.tokens,
            head_dim: shape.head_dim,
            group: shape.heads / shape.kv_heads,
            queries: QUERIES / instructions.rows() * instructions.rows(),
            scale: scale as f32,
        }
    }

    /// Returns the blocks of queries; each attends to keys `0..end`.
    fn blocks(self) -> impl Iterator<Item = Range<usize>> {
        blocks(0..self.tokens, self.queries)
    }

    /// Cuts `rows` rows into tiles.
    fn tiles(self, rows: usize) -> impl Iterator<Item = Range<usize>> {
        pieces(rows, self.instructions.rows())
    }

    /// Returns the number of f32 from a row of scores to the next: whole vectors, such that rows do
    /// not compete for the same cache lines.
    fn stride(self) -> usize {
        packed_row(self.tokens)
    }

    /// Returns the number of f32 of a tile's scores.
    fn tile_scores(self) -> usize {
        self.instructions.rows() * self.stride()
    }

    /// Returns the number of f32 of a block's scores.
    fn scores(self) -> usize {
        self.queries * self.stride()
    }

    /// Returns the columns of sums over a head's elements: whole vectors.
    fn padded(self) -> usize {
        self.head_dim.next_multiple_of(self.instructions.width())
    }

    /// Returns the number of f32 of a block's sums over a head's elements.
    fn sums(self) -> usize {
        (self.queries * self.padded()).next_multiple_of(LANES)
    }

    /// Returns the number of f32 of a block's rows, widened.
    fn wide_rows(self) -> usize {
        self.queries * packed_row(self.head_dim)
    }

    /// Returns the number of f32 of a copy of a head whose columns are tokens.
    fn by_token(self) -> usize {
        Panels::len(self.instructions, self.tokens, self.head_dim)
    }

    /// Returns the number of f32 of a copy of a head whose columns are the head's elements.
    fn by_element(self) -> usize {
        Panels::len(self.instructions, self.head_dim, self.tokens)
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
    fn new(qkv: Floats<'a>, shape: AttentionShape, (sequence, kv_head): Pair) -> Self {
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

    /// Prefetches `rows` of query head `head` of the pair; with head 0, of the keys and values too.
    fn prefetch(&self, rows: &Range<usize>, head: usize) {
        prefetch_head(self.queries, rows, head, self.keys.shape().1);
        if head == 0 {
            self.keys.prefetch_rows(rows.clone());
            self.values.prefetch_rows(rows.clone());
        }
    }
}

/// Prefetches `rows` of head `head` of `tile`, whose heads have `head_dim` columns each.
fn prefetch_head(tile: Tile<'_>, rows: &Range<usize>, head: usize, head_dim: usize) {
    tile.at(0..tile.shape().0, head * head_dim..(head + 1) * head_dim).prefetch_rows(rows.clone());
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

/// A (sequence, key/value head) pair.
type Pair = (usize, usize);

/// Returns every pair in order, each with the pair `threads` places later, which the same thread
/// will probably compute next: threads take pairs from one queue.
fn pairs(shape: AttentionShape, threads: usize) -> impl Iterator<Item = (Pair, Option<Pair>)> {
    let count = shape.batch * shape.kv_heads;
    let pair = move |number: usize| (number / shape.kv_heads, number % shape.kv_heads);
    (0..count)
        .map(move |number| (pair(number), Some(number + threads).filter(|next| *next < count).map(pair)))
}

/// Fills the scores after the first `seen` with `hidden` up to the end of the last vector that
/// holds a seen one, and with 0 from there. Returns the whole vectors, so that none is computed
/// element by element. `scores` are whole vectors, and at least `seen`.
#[inline(always)]
fn hide(scores: &mut [f32], seen: usize, hidden: f32) -> &mut [f32] {
    let (vectors, rest) = scores.split_at_mut(seen.next_multiple_of(LANES));
    vectors[seen..].fill(hidden);
    rest.as_chunks_mut::<LANES>().0.fill([0.0; LANES]);
    vectors
}
