//! Matrix products: cut over threads, and into panels where operands have to be widened or
//! transposed.

use super::Cpu;
use super::elementwise;
use super::multiply::multiply;
use super::tile::{Tile, TileMut};
use super::transpose::transposed_stride;
use super::workers::cut;
use crate::Result;
use crate::operations::{Addend, Matmul};
use crate::shapes::{Matrix, Write};
use crate::view::{View, ViewMut};
use std::ops::Range;

/// Rows and columns of a panel, at most: copying it must be cheap next to multiplying it.
const SIDE: usize = 1024;

/// Depth of a panel, at most: as deep as the product's innermost loop runs.
const DEPTH: usize = 512;

/// Columns of a product from which on a transposed operand is worth copying to rows.
const WORTH_PACKING: usize = 96;

/// Multiplications that are worth another thread.
const GRAIN: usize = 1 << 20;

/// Threads take multiples of this many rows or columns, which the innermost loops process at a
/// time; the last takes the rest.
const MULTIPLE: usize = 16;

fn tile(matrix: Matrix<View<'_>>) -> Tile<'_> {
    let Matrix { data, rows, columns, stride, transposed, .. } = matrix;
    Tile::new(data.into(), rows, columns, stride).transposed_if(transposed)
}

pub(super) fn matmul(cpu: &Cpu, arguments: Matmul<View<'_>, ViewMut<'_>>) -> Result<()> {
    let Matmul { out, a, b, addend } = arguments;
    let Matrix { mut data, rows, columns, stride, .. } = out;
    let write = match addend {
        Addend::Zero => Write::Replace,
        Addend::Out => Write::Accumulate,
        Addend::Base(base) => {
            elementwise::copy_or_convert(cpu, data.reborrow(), base)?;
            Write::Accumulate
        }
    };
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let out = TileMut::new(data.into(), rows, columns, stride);
    let product = Product { a: tile(a), b: tile(b), write };
    cpu.workers.each(product.shares(cpu, out), |share| product.compute(cpu, share))
}

/// A part of a product for one thread.
struct Share<'a> {
    out: TileMut<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
}

struct Product<'a> {
    a: Tile<'a>,
    b: Tile<'a>,
    write: Write,
}

impl Product<'_> {
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

    fn compute(&self, cpu: &Cpu, mut share: Share<'_>) -> Result<()> {
        let depth = self.a.shape().1;
        let a = self.a.at(share.rows, 0..depth);
        let b = self.b.at(0..depth, share.columns.clone());
        let in_place = a.is_f32() && b.is_f32() && share.out.is_f32();
        // Decided by the whole product, so that the bits do not depend on the cut.
        let wide = self.b.shape().1 >= WORTH_PACKING;
        if in_place && !(a.is_transposed() && wide) {
            let (a, b) = (a.read(&mut []), b.read(&mut []));
            share.out.compute(self.write, &mut [], |out, write| multiply(out, write, a, b));
            return Ok(());
        }
        Panels::new(share.out.shape(), depth).compute(cpu, &mut share.out, self.write, a, b)
    }
}

/// Sizes of the panels of a product whose operands are copied piece by piece: widened to f32, and a
/// transposed `a` laid out by rows, because the innermost loop reads a few of its rows at a time
/// along the depth, which would touch a cache line for each element.
struct Panels {
    rows: usize,
    columns: usize,
    depth: usize,
}

impl Panels {
    fn new((rows, columns): (usize, usize), depth: usize) -> Self {
        Panels { rows: rows.min(SIDE), columns: columns.min(SIDE), depth: depth.min(DEPTH) }
    }

    fn compute(
        &self,
        cpu: &Cpu,
        out: &mut TileMut<'_>,
        write: Write,
        a: Tile<'_>,
        b: Tile<'_>,
    ) -> Result<()> {
        let (a_len, b_len) = (self.rows * transposed_stride(self.depth), self.depth * self.columns);
        let mut scratch = cpu.scratch(a_len + b_len + self.rows * self.columns)?;
        let [a_panel, b_panel, out_panel] = scratch.parts([a_len, b_len, self.rows * self.columns]);
        let ((rows, columns), depth) = (out.shape(), a.shape().1);
        for (rows, columns) in
            pieces(rows, self.rows).flat_map(|r| pieces(columns, self.columns).map(move |c| (r.clone(), c)))
        {
            out.at(rows.clone(), columns.clone()).compute(write, out_panel, |mut out, mut write| {
                for steps in pieces(depth, self.depth) {
                    let a = a.at(rows.clone(), steps.clone()).read_by_rows(a_panel);
                    let b = b.at(steps, columns.clone()).read(b_panel);
                    multiply(out.view_mut(), write, a, b);
                    write = Write::Accumulate;
                }
            });
        }
        Ok(())
    }
}

/// `0..total` in pieces of at most `size`; one empty piece if there is nothing.
fn pieces(total: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..total.max(1)).step_by(size.max(1)).map(move |start| start..(start + size).min(total))
}
