//! Slices as row-major matrices.

use ndarray::{ArrayView2, ArrayViewMut2, Axis, Ix2, ShapeBuilder as _, StrideShape};

/// Why a view cannot fail: its slice is as long as its shape says.
const FITS: &str = "a matrix that lies within its slice";

/// The first `rows · columns` of `data` as a packed row-major matrix.
pub(super) fn packed(data: &[f32], rows: usize, columns: usize) -> ArrayView2<'_, f32> {
    matrix(&data[..rows * columns], rows, columns, columns)
}

/// The first `rows · columns` of `data` as a packed row-major matrix to write.
pub(super) fn packed_mut(data: &mut [f32], rows: usize, columns: usize) -> ArrayViewMut2<'_, f32> {
    matrix_mut(&mut data[..rows * columns], rows, columns, columns)
}

/// `rows × columns` elements of `x`, whose rows start `stride` elements apart.
pub(super) fn matrix<T>(x: &[T], rows: usize, columns: usize, stride: usize) -> ArrayView2<'_, T> {
    ArrayView2::from_shape(row_major(rows, columns, stride), x).expect(FITS)
}

/// As [`matrix`], to write.
pub(super) fn matrix_mut<T>(x: &mut [T], rows: usize, columns: usize, stride: usize) -> ArrayViewMut2<'_, T> {
    ArrayViewMut2::from_shape(row_major(rows, columns, stride), x).expect(FITS)
}

fn row_major(rows: usize, columns: usize, stride: usize) -> StrideShape<Ix2> {
    // An empty matrix needs no elements, whatever its strides.
    let strides = if rows * columns == 0 { (0, 0) } else { (stride, 1) };
    (rows, columns).strides(strides)
}

/// Row `row` of a row-major matrix.
#[inline(always)]
pub(super) fn row_of<T>(matrix: ArrayView2<'_, T>, row: usize) -> &[T] {
    matrix.index_axis_move(Axis(0), row).to_slice().unwrap_or_default()
}

/// Row `row` of a row-major matrix, to write.
#[inline(always)]
pub(super) fn row_of_mut<T>(matrix: ArrayViewMut2<'_, T>, row: usize) -> &mut [T] {
    matrix.index_axis_move(Axis(0), row).into_slice().unwrap_or_default()
}
