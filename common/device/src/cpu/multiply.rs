//! Products of f32 matrices on one thread, by a library, in strips of columns that suit its
//! innermost loop.

use crate::shapes::Write;
use ndarray::{ArrayView2, ArrayViewMut2, Axis};

/// Columns of a strip, at most: a multiple of the innermost loop's columns on AVX2 and AVX-512.
/// Measured: wider strips are up to twice as slow, because the operands' copies leave the nearer
/// caches.
const COLUMNS: usize = 480;

/// Elements of a vector on AVX2, and vectors of columns that the library's innermost loop works on
/// at once there.
const AVX2_VECTOR: usize = 8;
const AVX2_VECTORS: usize = 3;

/// `out = a · b` or `out += a · b`, on this thread. How an element's sum is rounded depends on the
/// depth alone, wherever the matrices are cut.
///
/// # Panics
/// If the shapes do not fit.
pub(super) fn multiply(
    mut out: ArrayViewMut2<'_, f32>,
    write: Write,
    a: ArrayView2<'_, f32>,
    mut b: ArrayView2<'_, f32>,
) {
    assert_eq!((out.dim(), a.ncols()), ((a.nrows(), b.ncols()), b.nrows()), "shapes of a product");
    if a.ncols() == 0 && write == Write::Replace {
        out.fill(0.0);
    }
    let library = Gemm::fastest();
    while out.ncols() > 0 {
        let width = strip(out.ncols(), library.is_avx2());
        let (out_strip, out_rest) = out.split_at(Axis(1), width);
        let (b_strip, b_rest) = b.split_at(Axis(1), width);
        // SAFETY: the shapes of the strips fit as those of the whole matrices do.
        unsafe { library.multiply(out_strip, write, a, b_strip) };
        (out, b) = (out_rest, b_rest);
    }
}

/// Columns to compute next of `rest` that are left.
///
/// A single last vector has too few sums at a time to hide their latency, so three vectors and one
/// take a quarter longer than two and two. There are no more strips than that needs, since each
/// reads all of `a` again.
fn strip(rest: usize, avx2: bool) -> usize {
    const GROUP: usize = AVX2_VECTORS * AVX2_VECTOR;
    let single = avx2 && (1..=AVX2_VECTOR).contains(&(rest % GROUP));
    match rest {
        _ if rest > COLUMNS => COLUMNS,
        _ if single && rest > GROUP => rest - AVX2_VECTOR - rest % GROUP,
        _ => rest,
    }
}

/// The library that multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gemm {
    /// The kernels under `faer` alone: with all of `faer` the workspace takes a third longer to
    /// build.
    #[cfg(target_arch = "x86_64")]
    Wide(private_gemm_x86::InstrSet),
    /// For any CPU.
    Portable,
}

impl Gemm {
    /// The fastest on this CPU.
    fn fastest() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use private_gemm_x86::InstrSet;
            if std::arch::is_x86_feature_detected!("avx512f") {
                return Gemm::Wide(InstrSet::Avx512);
            }
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                return Gemm::Wide(InstrSet::Avx256);
            }
        }
        Gemm::Portable
    }

    /// True if its vectors have 8 floats.
    fn is_avx2(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Gemm::Wide(instructions) => instructions == private_gemm_x86::InstrSet::Avx256,
            Gemm::Portable => false,
        }
    }

    /// # Safety
    /// The shapes fit, and the CPU has the library's instructions.
    unsafe fn multiply(
        self,
        out: ArrayViewMut2<'_, f32>,
        write: Write,
        a: ArrayView2<'_, f32>,
        b: ArrayView2<'_, f32>,
    ) {
        match self {
            // SAFETY: as this function's, and the library found these instructions.
            #[cfg(target_arch = "x86_64")]
            Gemm::Wide(instructions) => unsafe { wide(instructions, out, write, a, b) },
            // SAFETY: as this function's.
            Gemm::Portable => unsafe { portable(out, write, a, b) },
        }
    }
}

/// # Safety
/// The shapes fit, and the CPU has these instructions.
#[cfg(target_arch = "x86_64")]
unsafe fn wide(
    instructions: private_gemm_x86::InstrSet,
    mut out: ArrayViewMut2<'_, f32>,
    write: Write,
    a: ArrayView2<'_, f32>,
    b: ArrayView2<'_, f32>,
) {
    use private_gemm_x86::{Accum, DType, DstKind, IType, gemm};
    use std::ptr::null;
    let accumulate = match write {
        Write::Replace => Accum::Replace,
        Write::Accumulate => Accum::Add,
    };
    let alpha = 1.0_f32;
    // SAFETY: a view is valid within its shape and strides, and the shapes fit. There are no lists
    // of rows and columns and there is no diagonal, which is what the null pointers say.
    unsafe {
        gemm(
            DType::F32,
            IType::U64,
            instructions,
            out.nrows(),
            out.ncols(),
            a.ncols(),
            out.as_mut_ptr().cast(),
            out.strides()[0],
            out.strides()[1],
            null(),
            null(),
            DstKind::Full,
            accumulate,
            a.as_ptr().cast(),
            a.strides()[0],
            a.strides()[1],
            false,
            null(),
            0,
            b.as_ptr().cast(),
            b.strides()[0],
            b.strides()[1],
            false,
            (&raw const alpha).cast(),
            1,
        );
    }
}

/// # Safety
/// The shapes fit.
unsafe fn portable(
    mut out: ArrayViewMut2<'_, f32>,
    write: Write,
    a: ArrayView2<'_, f32>,
    b: ArrayView2<'_, f32>,
) {
    let beta = match write {
        Write::Replace => 0.0,
        Write::Accumulate => 1.0,
    };
    // SAFETY: a view is valid within its shape and strides, and the shapes fit.
    unsafe {
        matrixmultiply::sgemm(
            out.nrows(),
            a.ncols(),
            out.ncols(),
            1.0,
            a.as_ptr(),
            a.strides()[0],
            a.strides()[1],
            b.as_ptr(),
            b.strides()[0],
            b.strides()[1],
            beta,
            out.as_mut_ptr(),
            out.strides()[0],
            out.strides()[1],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, s};

    fn strips(columns: usize, avx2: bool) -> Vec<usize> {
        let mut strips = Vec::new();
        while strips.iter().sum::<usize>() < columns {
            strips.push(strip(columns - strips.iter().sum::<usize>(), avx2));
        }
        strips
    }

    #[test]
    fn no_vector_is_left_alone_on_avx2() {
        assert_eq!(
            [8, 24, 64, 384].map(|columns| strips(columns, true)),
            [[8], [24], [64], [384]].map(Vec::from)
        );
        assert_eq!(strips(32, true), [16, 16]);
        assert_eq!(strips(49, true), [40, 9]);
        assert_eq!(strips(128, true), [112, 16]);
        assert_eq!(strips(1000, true), [480, 480, 40]);
        assert_eq!(strips(992, true), [480, 480, 16, 16]);
        assert_eq!(strips(1000, false), [480, 480, 40]);
    }

    fn product(
        library: Gemm,
        out: &Array2<f32>,
        write: Write,
        a: &Array2<f32>,
        b: &Array2<f32>,
    ) -> Array2<f32> {
        let mut out = out.clone();
        // SAFETY: the test makes shapes that fit, and asks for libraries that this CPU serves.
        unsafe { library.multiply(out.view_mut(), write, a.view(), b.view()) };
        out
    }

    /// Exact for the sums below: whole numbers, all of them small.
    fn whole(rows: usize, columns: usize, seed: usize) -> Array2<f32> {
        Array2::from_shape_fn((rows, columns), |(i, j)| ((i * 7 + j * 3 + seed) % 11) as f32 - 5.0)
    }

    #[test]
    fn both_libraries_multiply_alike() {
        for (rows, columns, depth) in [(1, 1, 1), (1, 40, 9), (40, 1, 600), (7, 9, 3), (33, 129, 70)] {
            let (a, b, out) = (whole(rows, depth, 1), whole(depth, columns, 2), whole(rows, columns, 3));
            for write in [Write::Replace, Write::Accumulate] {
                let wide = product(Gemm::fastest(), &out, write, &a, &b);
                assert_eq!(
                    wide,
                    product(Gemm::Portable, &out, write, &a, &b),
                    "{rows} {columns} {depth} {write:?}"
                );
                assert_eq!(wide[[rows - 1, columns - 1]], expected(&out, write, &a, &b));
            }
        }
    }

    /// The last element.
    fn expected(out: &Array2<f32>, write: Write, a: &Array2<f32>, b: &Array2<f32>) -> f32 {
        let (row, column) = (out.nrows() - 1, out.ncols() - 1);
        let sum: f32 = (0..a.ncols()).map(|k| a[[row, k]] * b[[k, column]]).sum();
        if write == Write::Accumulate { out[[row, column]] + sum } else { sum }
    }

    /// Cuts change no bit, with the library too that other tests do not use on this CPU.
    #[test]
    fn the_portable_librarys_sums_know_nothing_of_their_neighbours() {
        let fraction = |i: usize, j: usize| ((i * 31 + j * 17) % 97) as f32 / 97.0;
        let a = Array2::from_shape_fn((20, 700), |(i, j)| fraction(i, j));
        let b = Array2::from_shape_fn((700, 50), |(i, j)| fraction(j, i));
        let out = Array2::from_shape_fn((20, 50), |(i, j)| fraction(i, j + 5));
        for write in [Write::Replace, Write::Accumulate] {
            let all = product(Gemm::Portable, &out, write, &a, &b);
            for (rows, columns) in [(1, 50), (20, 1), (3, 7), (13, 33)] {
                let (a, b) = (a.slice(s![..rows, ..]).to_owned(), b.slice(s![.., ..columns]).to_owned());
                let some =
                    product(Gemm::Portable, &out.slice(s![..rows, ..columns]).to_owned(), write, &a, &b);
                assert_eq!(
                    some,
                    all.slice(s![..rows, ..columns]),
                    "{rows} rows, {columns} columns, {write:?}"
                );
            }
        }
    }
}
