//! Matrix products, cut over threads.

use super::Cpu;
use super::product::multiply;
use super::tile::{Tile, TileMut};
use super::workers::cut;
use crate::Result;
use crate::operations::Matmul;
use crate::shapes::Matrix;
use crate::view::{View, ViewMut};
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
    cpu.workers.each(shares(cpu, out, depth), |Share { out, rows, columns }| {
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

/// Cuts the longer side of a product of this depth over the threads.
fn shares<'a>(cpu: &Cpu, out: TileMut<'a>, depth: usize) -> Vec<Share<'a>> {
    let (rows, columns) = out.shape();
    let worth = (rows * columns * depth).div_ceil(GRAIN);
    let by_rows = rows >= columns;
    let long = if by_rows { rows } else { columns };
    let blocks = (long / MULTIPLE).max(1);
    let parts = cpu.workers.threads().min(worth).min(blocks).max(1);
    let mut rest = out;
    let mut shares = Vec::with_capacity(parts);
    for run in cut(blocks, parts) {
        let run = run.start * MULTIPLE..if run.end == blocks { long } else { run.end * MULTIPLE };
        let (out, next) = if by_rows { rest.split_rows(run.len()) } else { rest.split_columns(run.len()) };
        shares.push(match by_rows {
            true => Share { out, rows: run, columns: 0..columns },
            false => Share { out, rows: 0..rows, columns: run },
        });
        rest = next;
    }
    shares
}
