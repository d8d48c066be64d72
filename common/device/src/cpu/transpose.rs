//! Transposing copies.

use super::dense::row_of;
use crate::vectorized;
use ndarray::ArrayView2;

/// Side of the squares that are turned in registers.
const SIDE: usize = 4;

/// Rows and columns that are copied to the nearest cache at a time.
const LINES: usize = 16;
const WIDTH: usize = 64;

/// Elements between rows of a transposed copy of `columns` columns: more than `columns`, so that
/// the excess of a square falls between rows, and rarely a multiple of a page, so that rows do not
/// compete for the same cache lines.
pub(super) fn transposed_stride(columns: usize) -> usize {
    columns.next_multiple_of(LINES) + LINES
}

/// `to = fromᵀ`, its rows [`transposed_stride`] apart. `widen` copies a piece of a row.
pub(super) fn transpose<T>(to: &mut [f32], from: ArrayView2<'_, T>, widen: impl Fn(&mut [f32], &[T])) {
    let (rows, columns) = from.dim();
    let stride = transposed_stride(rows);
    let mut lines = [[0.0; WIDTH]; LINES];
    vectorized!({
        for top in (0..rows).step_by(LINES) {
            for left in (0..columns).step_by(WIDTH) {
                let (height, width) = (LINES.min(rows - top), WIDTH.min(columns - left));
                for (i, line) in lines.iter_mut().enumerate().take(height) {
                    widen(&mut line[..width], &row_of(from, top + i)[left..left + width]);
                }
                turn_lines(&mut to[left * stride + top..], stride, &lines, width);
            }
        }
    });
}

/// `to[j][i] = lines[i][j]` for j below `width`.
#[inline(always)]
fn turn_lines(to: &mut [f32], stride: usize, lines: &[[f32; WIDTH]; LINES], width: usize) {
    for j in (0..width).step_by(SIDE) {
        let columns = turn_columns(lines, j);
        for (k, column) in columns.iter().enumerate().take(width - j) {
            to[(j + k) * stride..][..LINES].copy_from_slice(column);
        }
    }
}

/// Columns `j..j + SIDE` of `lines`, as rows.
#[inline(always)]
fn turn_columns(lines: &[[f32; WIDTH]; LINES], j: usize) -> [[f32; LINES]; SIDE] {
    let mut columns = [[0.0; LINES]; SIDE];
    for i in (0..LINES).step_by(SIDE) {
        let mut square = [[0.0; SIDE]; SIDE];
        for (row, line) in square.iter_mut().zip(&lines[i..i + SIDE]) {
            row.copy_from_slice(&line[j..j + SIDE]);
        }
        for (column, turned) in columns.iter_mut().zip(turn_square(square)) {
            column[i..i + SIDE].copy_from_slice(&turned);
        }
    }
    columns
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn turn_square(square: [[f32; SIDE]; SIDE]) -> [[f32; SIDE]; SIDE] {
    use std::arch::x86_64::{__m128, _MM_TRANSPOSE4_PS};
    let [mut a, mut b, mut c, mut d]: [__m128; SIDE] = bytemuck::cast(square);
    // SAFETY: every x86-64 has these instructions, and the function touches its arguments alone.
    unsafe { _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d) };
    bytemuck::cast([a, b, c, d])
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn turn_square(square: [[f32; SIDE]; SIDE]) -> [[f32; SIDE]; SIDE] {
    std::array::from_fn(|j| std::array::from_fn(|i| square[i][j]))
}
