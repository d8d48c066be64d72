//! Matrix products: cut over threads, and for 16-bit operands into panels that are widened one at a time.

use super::Cpu;
use super::operand::Check;
use super::tile::{Tile, TileMut, multiply};
use super::workers::cut;
use crate::kernels::{Matrix, MatrixMut, Write};
use crate::{DeviceError, Result};
use std::ops::Range;

/// Elements of a widened panel, about: as much as stays in the second-level cache.
const PANEL: usize = 256 * 1024;

/// Multiplications below which a product is not worth another thread.
const GRAIN: usize = 1 << 20;

/// Threads take multiples of this many rows or columns: what the innermost loops work on at once.
const MULTIPLE: usize = 16;

fn check_matrix(
    check: Check,
    operand: &'static str,
    len: usize,
    (rows, columns): (usize, usize),
    stride: usize,
) -> Result<()> {
    let expected = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * stride.max(columns) + columns };
    if len < expected {
        return Err(DeviceError::Shape { kernel: check.0, operand, expected, got: len });
    }
    if stride < columns && rows > 1 {
        return Err(DeviceError::Shape { kernel: check.0, operand, expected: columns, got: stride });
    }
    Ok(())
}

fn operand<'a>(check: Check, name: &'static str, matrix: &Matrix<'a>) -> Result<Tile<'a>> {
    let Matrix { data, rows, columns, stride, transposed } = matrix;
    check_matrix(check, name, data.len(), (*rows, *columns), *stride)?;
    let source = check.floats(name, data)?;
    Ok(Tile::new(source, *rows, *columns, *stride).transposed_if(*transposed))
}

pub(super) fn matmul(
    cpu: &Cpu,
    out: MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    write: Write,
) -> Result<()> {
    let check = Check("matmul");
    let (a, b) = (operand(check, "a", &a)?, operand(check, "b", &b)?);
    let MatrixMut { data, rows, columns, stride } = out;
    check_matrix(check, "out", data.len(), (rows, columns), stride)?;
    check.len("rows of a", a.shape().0, rows)?;
    check.len("columns of b", b.shape().1, columns)?;
    check.len("rows of b", b.shape().0, a.shape().1)?;
    let out = TileMut::new(check.floats_mut("out", data)?, rows, columns, stride);
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let product = Product { a, b, write };
    cpu.workers.each(product.shares(cpu, out), |share| product.compute(cpu, share));
    Ok(())
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
        let blocks = long.div_ceil(MULTIPLE);
        let parts = cpu.workers.threads().min(worth).min(blocks).max(1);
        let mut rest = out;
        let mut shares = Vec::with_capacity(parts);
        for run in cut(blocks, parts) {
            let run = run.start * MULTIPLE..(run.end * MULTIPLE).min(long);
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

    fn compute(&self, cpu: &Cpu, mut share: Share<'_>) {
        let depth = self.a.shape().1;
        let a = self.a.at(share.rows, 0..depth);
        let b = self.b.at(0..depth, share.columns);
        if a.is_f32() && b.is_f32() && share.out.is_f32() {
            let (a, b) = (a.read(&mut []), b.read(&mut []));
            return share.out.compute(self.write, &mut [], |out, write| multiply(out, write, 1.0, a, b));
        }
        self.compute_in_panels(cpu, &mut share.out, a, b);
    }

    /// Widens a panel of b, and against it one panel of a after the other.
    fn compute_in_panels(&self, cpu: &Cpu, out: &mut TileMut<'_>, a: Tile<'_>, b: Tile<'_>) {
        let (rows, columns) = out.shape();
        let depth = a.shape().1;
        let side = (PANEL / depth.max(1)).clamp(64, 1024);
        let (tall, wide) = (side.min(rows), side.min(columns));
        let mut scratch = cpu.scratch(tall * depth + depth * wide + tall * wide);
        let (a_panel, rest) = scratch.split_at_mut(tall * depth);
        let (b_panel, out_panel) = rest.split_at_mut(depth * wide);
        for left in (0..columns).step_by(wide) {
            let columns = left..(left + wide).min(columns);
            let b = b.at(0..depth, columns.clone()).read(b_panel);
            for top in (0..rows).step_by(tall) {
                let rows = top..(top + tall).min(rows);
                let a = a.at(rows.clone(), 0..depth).read(a_panel);
                out.at(rows, columns.clone())
                    .compute(self.write, out_panel, |out, write| multiply(out, write, 1.0, a, b));
            }
        }
    }
}
