//! Matrix products, cut over threads.

use super::Cpu;
use super::product::multiply;
use super::tile::{Tile, TileMut};
use super::workers::cut;
use crate::Result;
use crate::operations::Matmul;
use crate::shapes::Matrix;
use crate::view::{View, ViewMut};
use std::cmp::Reverse;
use std::ops::Range;

/// Number of multiplications that justify another thread.
const GRAIN: usize = 1 << 20;

/// Threads take multiples of this many rows or columns, which the innermost loops process at a
/// time; the last takes the rest.
const MULTIPLE: usize = 32;

fn tile(matrix: Matrix<View<'_>>) -> Tile<'_> {
    let Matrix { data, rows, columns, stride, transposed, .. } = matrix;
    Tile::new(data.into(), rows, columns, stride).transposed_if(transposed)
}

pub(super) fn matmul(cpu: &Cpu, arguments: Matmul<View<'_>, ViewMut<'_>>) -> Result<()> {
    let Matmul { out, a, b, addend, rounding } = arguments;
    let Matrix { data, rows, columns, stride, .. } = out;
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let out = TileMut::new(data.into(), rows, columns, stride);
    let addend = addend.map(|base| Tile::new(base.into(), rows, columns, columns));
    let (a, b) = (tile(a), tile(b));
    let depth = a.shape().1;
    cpu.workers.each(shares(cpu, out, a), |Share { out, rows, columns }| {
        let addend = addend.map(|base| base.at(rows.clone(), columns.clone()));
        multiply(cpu, out, addend, a.at(rows, 0..depth), b.at(0..depth, columns), rounding)
    })
}

/// A part of a product for one thread.
struct Share<'a> {
    out: TileMut<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Cuts a product over the threads.
fn shares<'a>(cpu: &Cpu, out: TileMut<'a>, a: Tile<'_>) -> Vec<Share<'a>> {
    let ((rows, columns), depth) = (out.shape(), a.shape().1);
    let worth = (rows * columns * depth).div_ceil(GRAIN);
    let parts = cpu.workers.threads().min(worth);
    let (by_rows, by_columns) = grid(parts, rows, columns, a.is_transposed());
    let mut shares = Vec::with_capacity(by_rows * by_columns);
    let mut below = out;
    for rows in multiples(rows, by_rows) {
        let (mut beside, next) = below.split_rows(rows.len());
        below = next;
        for columns in multiples(columns, by_columns) {
            let (out, next) = beside.split_columns(columns.len());
            beside = next;
            shares.push(Share { out, rows: rows.clone(), columns });
        }
    }
    shares
}

/// Returns the numbers of parts of the rows and of the columns: as many in all as possible, at most
/// `parts`, and of those the numbers with which threads copy least. A part copies its columns'
/// operand, and its rows' if that is stored `across` the depth; otherwise rows are mostly read in
/// place, which takes roughly a quarter of the time.
fn grid(parts: usize, rows: usize, columns: usize, across: bool) -> (usize, usize) {
    let most = |size: usize| (size / MULTIPLE).max(1);
    let grids = (1..=parts.clamp(1, most(rows))).map(|by_rows| {
        let by_columns = (parts / by_rows).clamp(1, most(columns));
        let (rows, columns) = (rows / by_rows, columns / by_columns);
        let copied = columns + if across { rows } else { rows / 4 };
        (by_rows * by_columns, Reverse(copied), (by_rows, by_columns))
    });
    grids.max().map_or((1, 1), |(.., grid)| grid)
}

/// Cuts `0..total` into `parts` whose lengths are multiples of [`MULTIPLE`], but for the last one.
fn multiples(total: usize, parts: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = (total / MULTIPLE).max(1);
    cut(blocks, parts).map(move |part| {
        let end = if part.end == blocks { total } else { part.end * MULTIPLE };
        part.start * MULTIPLE..end
    })
}

#[cfg(test)]
mod tests {
    use super::grid;

    #[test]
    fn products_are_cut_where_least_is_copied() {
        // Of `tiny`, forward: 1024 tokens times 768, 384 and 128 columns.
        assert_eq!(grid(2, 1024, 768, false), (1, 2));
        assert_eq!(grid(8, 1024, 384, false), (2, 4));
        assert_eq!(grid(8, 1024, 128, false), (4, 2));
        // A weight's gradient, whose left operand is copied.
        assert_eq!(grid(2, 768, 128, true), (2, 1));
        assert_eq!(grid(8, 768, 128, true), (8, 1));
        assert_eq!(grid(6, 384, 384, true), (3, 2));
        // Fewer parts than threads.
        assert_eq!(grid(8, 64, 64, true), (2, 2));
        assert_eq!(grid(8, 5, 40, false), (1, 1));
        assert_eq!(grid(0, 1024, 768, false), (1, 1));
    }
}
