//! Functions and sums that give the same bits on every CPU and for every cut: plain f32 operations
//! in a fixed order.

use std::array::from_fn;

/// Partial sums of a reduction over a row.
pub(super) const LANES: usize = 16;

/// Returns the natural logarithm, rounded from f64's.
pub(super) fn ln(x: f32) -> f32 {
    libm::log(f64::from(x)) as f32
}

/// Elements whose powers are computed together. A power is a long chain of operations, each of
/// which needs the one before; a core overlaps the chains of several vectors if they stand close
/// together.
const TOGETHER: usize = 32;

/// Returns e^x of each element to within 2 units in the last place; 0 for x < −86.9, where e^x is
/// below 2⁻¹²⁵; +∞ above the largest f32; NaN for NaN.
///
/// x = n·ln 2 + r with |r| ≤ ln 2 / 2 (ln 2 in two parts, so that n·ln 2 loses nothing; Cody &
/// Waite, 1980); e^r by its Taylor polynomial of degree 7.
#[inline(always)]
fn exp<const N: usize>(x: [f32; N]) -> [f32; N] {
    /// Adding it to a small number rounds that to an integer, which the low bits of the sum then
    /// hold.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted: [f32; N] = from_fn(|i| x[i] * std::f32::consts::LOG2_E + ROUND);
    let n: [f32; N] = from_fn(|i| shifted[i] - ROUND);
    let r: [f32; N] = from_fn(|i| (x[i] - n[i] * LN_2_HIGH) - n[i] * LN_2_LOW);
    let mut p = [1.0 / 5040.0; N];
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        p = from_fn(|i| p[i] * r[i] + coefficient);
    }
    let e_r: [f32; N] = from_fn(|i| 1.0 + (r[i] + r[i] * r[i] * p[i]));
    // 2^(n−1) from its bits: n may be 128.
    let half_power: [f32; N] =
        from_fn(|i| f32::from_bits((shifted[i].to_bits() << 23).wrapping_add(126 << 23)));
    let y: [f32; N] = from_fn(|i| (e_r[i] + e_r[i]) * half_power[i]);
    let y: [f32; N] = from_fn(|i| if x[i] < -86.9 { 0.0 } else { y[i] });
    from_fn(|i| if x[i] > 88.722_84 { f32::INFINITY } else { y[i] })
}

/// Writes 1 / (1 + e^−x) for each x.
///
/// # Panics
/// If the slices have different lengths.
#[inline(always)]
pub(super) fn sigmoid(out: &mut [f32], x: &[f32]) {
    assert_eq!(out.len(), x.len(), "elements to write and to read");
    let ((chunks, rest), (x_chunks, x_rest)) = (out.as_chunks_mut::<TOGETHER>(), x.as_chunks());
    for (out, x) in chunks.iter_mut().zip(x_chunks) {
        *out = sigmoid_chunk(*x);
    }
    for (out, x) in rest.iter_mut().zip(x_rest) {
        [*out] = sigmoid_chunk([*x]);
    }
}

#[inline(always)]
fn sigmoid_chunk<const N: usize>(x: [f32; N]) -> [f32; N] {
    let powers = exp::<N>(from_fn(|i| -x[i]));
    from_fn(|i| 1.0 / (1.0 + powers[i]))
}

#[inline(always)]
fn fold(mut lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] = combine(lanes[i], lanes[i + width]);
        }
    }
    lanes[0]
}

/// Returns Σ a·b, in 16 partial sums.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((a_chunks, a_rest), (b_chunks, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane += a * b;
    }
    fold(lanes, |a, b| a + b)
}

/// Returns the largest element; −∞ if there are none. NaN elements are skipped.
#[inline(always)]
pub(super) fn maximum(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (chunks, rest) = x.as_chunks::<LANES>();
    for x in chunks {
        for (lane, x) in lanes.iter_mut().zip(x) {
            *lane = larger(*lane, *x);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, *x);
    }
    fold(lanes, larger)
}

/// `x = e^(x · scale − shift)` in place, for a positive scale; returns the sum of the results, in
/// 16 partial sums.
#[inline(always)]
pub(super) fn exponentiate(x: &mut [f32], scale: f32, shift: f32) -> f32 {
    let mut sums = [0.0; LANES];
    let (together, rest) = x.as_chunks_mut::<TOGETHER>();
    for x in together {
        exponentiate_chunk(x, scale, shift, &mut sums);
    }
    let (single, rest) = rest.as_chunks_mut::<LANES>();
    for x in single {
        exponentiate_chunk(x, scale, shift, &mut sums);
    }
    if !rest.is_empty() {
        let mut padded = [f32::NEG_INFINITY; LANES];
        padded[..rest.len()].copy_from_slice(rest);
        exponentiate_chunk(&mut padded, scale, shift, &mut sums);
        rest.copy_from_slice(&padded[..rest.len()]);
    }
    fold(sums, |a, b| a + b)
}

#[inline(always)]
fn exponentiate_chunk<const N: usize>(x: &mut [f32; N], scale: f32, shift: f32, sums: &mut [f32; LANES]) {
    const { assert!(N.is_multiple_of(LANES)) };
    *x = exp(from_fn(|i| x[i] * scale - shift));
    for x in x.chunks_exact(LANES) {
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum += x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::vectorized;

    /// Returns the error in units in the last place of the exact value.
    fn error(x: f32) -> f64 {
        let exact = f64::from(x).exp();
        let unit = f64::from((exact as f32).next_up()) - f64::from(exact as f32);
        (f64::from(exp([x])[0]) - exact).abs() / unit
    }

    #[test]
    fn exp_is_within_two_units_everywhere() {
        let steps = 400_000;
        let at = |i: i32| -86.9 + 175.6 * i as f32 / steps as f32;
        let worst = (0..=steps).map(at).chain((1..149).map(|i| 2f32.powi(-i))).map(error).fold(0.0, f64::max);
        assert!(worst < 2.0, "off by {worst} units");
    }

    #[test]
    fn exp_at_the_ends() {
        assert_eq!(exp([0.0, -0.0]), [1.0, 1.0]);
        assert_eq!(exp([f32::NEG_INFINITY, f32::MIN, -1e3, -87.0]), [0.0; 4]);
        assert_eq!(exp([f32::INFINITY, f32::MAX, 1e3, 88.73]), [f32::INFINITY; 4]);
        let [nan, finite] = exp([f32::NAN, 88.72]);
        assert!(nan.is_nan() && finite.is_finite());
    }

    #[test]
    fn vectors_and_single_elements_agree_to_the_bit() {
        let x: Vec<f32> = (0..1003).map(|i| (i * 7919 % 2003) as f32 / 50.0 - 35.0).collect();
        for len in [1, 15, 16, 17, 32, 47, 100, 1003] {
            let mut powers = x[..len].to_vec();
            let sum = vectorized!(exponentiate(&mut powers, 0.7, 1.5));
            let mut sums = [0.0; LANES];
            for (i, x) in x[..len].iter().enumerate() {
                assert_eq!([powers[i]], exp([x * 0.7 - 1.5]));
                sums[i % LANES] += powers[i];
            }
            assert_eq!(sum, fold(sums, |a, b| a + b));
            assert_eq!(vectorized!(dot(&x[..len], &x[..len])), dot(&x[..len], &x[..len]));
            assert_eq!(
                vectorized!(maximum(&x[..len])),
                x[..len].iter().copied().fold(f32::NEG_INFINITY, f32::max)
            );
        }
    }
}
