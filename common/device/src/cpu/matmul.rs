//! Matrix products, cut over threads.

use super::Cpu;
use super::product::multiply;
use super::tile::{Tile, TileMut};
use super::workers::cut;
use crate::Result;
use crate::operations::{Addend, Matmul, Rounding};
use crate::shapes::Matrix;
use crate::view::{View, ViewMut};
use std::ops::Range;

/// Multiplications that are worth another thread.
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
    let product = SharedProduct { a: tile(a), b: tile(b), rounding, addend };
    cpu.workers.each(product.shares(cpu, out), |share| product.compute(cpu, share))
}

/// A part of a product for one thread.
struct Share<'a> {
    out: TileMut<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// A product that threads share.
struct SharedProduct<'a> {
    a: Tile<'a>,
    b: Tile<'a>,
    rounding: Rounding,
    addend: Addend<Tile<'a>>,
}

impl SharedProduct<'_> {
    /// Cuts the longer side of the product over the threads.
    fn shares<'o>(&self, cpu: &Cpu, out: TileMut<'o>) -> Vec<Share<'o>> {
        let (rows, columns) = out.shape();
        let worth = (rows * columns * self.a.shape().1).div_ceil(GRAIN);
        let by_rows = rows >= columns;
        let long = if by_rows { rows } else { columns };
        let blocks = (long / MULTIPLE).max(1);
        let parts = cpu.workers.threads().min(worth).min(blocks).max(1);
        let mut rest = out;
        let mut shares = Vec::with_capacity(parts);
        for run in cut(blocks, parts) {
            let run = run.start * MULTIPLE..if run.end == blocks { long } else { run.end * MULTIPLE };
            let (out, next) =
                if by_rows { rest.split_rows(run.len()) } else { rest.split_columns(run.len()) };
            shares.push(match by_rows {
                true => Share { out, rows: run, columns: 0..columns },
                false => Share { out, rows: 0..rows, columns: run },
            });
            rest = next;
        }
        shares
    }

    fn compute(&self, cpu: &Cpu, share: Share<'_>) -> Result<()> {
        let depth = self.a.shape().1;
        let addend = self.addend.map(|base| base.at(share.rows.clone(), share.columns.clone()));
        let (a, b) = (self.a.at(share.rows, 0..depth), self.b.at(0..depth, share.columns));
        multiply(cpu, share.out, addend, a, b, self.rounding)
    }
}
