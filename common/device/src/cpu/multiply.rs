//! The library's product of f32 matrices, in the strips of columns that suit its innermost loop.

use crate::dispatch;
use crate::kernels::Write;
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

/// Columns of a product that are computed at a time, at most: a multiple of what the innermost loop works on at once, on
/// AVX2 and AVX-512. Measured: wider products are up to twice as slow, because the operands' copies leave the nearer caches.
const COLUMNS: usize = 480;

/// Elements of a vector on AVX2, and vectors of columns that the library's innermost loop works on at once there.
const AVX2_VECTOR: usize = 8;
const AVX2_VECTORS: usize = 3;

/// `out = a · b` or `out += a · b`, on this thread.
pub(super) fn multiply(mut out: MatMut<'_, f32>, write: Write, a: MatRef<'_, f32>, b: MatRef<'_, f32>) {
    let accumulate = match write {
        Write::Replace => Accum::Replace,
        Write::Accumulate => Accum::Add,
    };
    let (columns, avx2) = (out.ncols(), dispatch::is_avx2());
    let mut left = 0;
    while left < columns {
        let width = strip(columns - left, avx2);
        let out = out.as_mut().subcols_mut(left, width);
        matmul(out, accumulate, a, b.subcols(left, width), 1.0, Par::Seq);
        left += width;
    }
}

/// Columns to compute next of `rest` that are left.
///
/// A last vector by itself has too few sums at a time to hide how long one takes, so that three vectors and one take a quarter
/// longer than two and two. Not more strips than that takes: each reads all of `a` again. An element's sum is the same either
/// way.
fn strip(rest: usize, avx2: bool) -> usize {
    const GROUP: usize = AVX2_VECTORS * AVX2_VECTOR;
    let single = avx2 && (1..=AVX2_VECTOR).contains(&(rest % GROUP));
    match rest {
        // A single column would be added up in another order.
        _ if rest == COLUMNS + 1 => COLUMNS - GROUP,
        _ if rest > COLUMNS => COLUMNS,
        _ if single && rest > GROUP => rest - AVX2_VECTOR - rest % GROUP,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // None of these leaves a column by itself.
        assert_eq!(strips(961, true), [480, 456, 16, 9]);
        assert_eq!(strips(961, false), [480, 456, 25]);
    }
}
