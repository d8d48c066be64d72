//! Functions and sums that give the same bits on every CPU and for every cut: plain f32 operations
//! in a fixed order.

/// Partial sums of a reduction over a row.
pub(super) const LANES: usize = 16;

/// Returns the natural logarithm, rounded from f64's.
pub(super) fn ln(x: f32) -> f32 {
    libm::log(f64::from(x)) as f32
}

/// Returns e^x to within 2 units in the last place; 0 for x < −86.9, where e^x is below 2⁻¹²⁵; +∞
/// above the largest f32; NaN for NaN.
///
/// x = n·ln 2 + r with |r| ≤ ln 2 / 2 (ln 2 in two parts, so that n·ln 2 loses nothing; Cody &
/// Waite, 1980); e^r by its Taylor polynomial of degree 7.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Adding it to a small number rounds that to an integer, which the low bits of the sum then
    /// hold.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut p = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        p = p * r + coefficient;
    }
    let e_r = 1.0 + (r + r * r * p);
    // 2^(n−1) from its bits: n may be 128.
    let half_power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(126 << 23));
    let y = (e_r + e_r) * half_power;
    let y = if x < -86.9 { 0.0 } else { y };
    if x > 88.722_84 { f32::INFINITY } else { y }
}

/// Returns 1 / (1 + e^−x).
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
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
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_chunks.remainder(), b_chunks.remainder());
    for (a, b) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += a * b;
    }
    fold(lanes, |a, b| a + b)
}

/// Returns the largest element; −∞ if there are none. NaN elements are skipped.
#[inline(always)]
pub(super) fn maximum(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for x in chunks {
        for lane in 0..LANES {
            lanes[lane] = larger(lanes[lane], x[lane]);
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
    let mut chunks = x.chunks_exact_mut(LANES);
    for x in &mut chunks {
        exponentiate_lanes(x, scale, shift, &mut sums);
    }
    let rest = chunks.into_remainder();
    if !rest.is_empty() {
        let mut padded = [f32::NEG_INFINITY; LANES];
        padded[..rest.len()].copy_from_slice(rest);
        exponentiate_lanes(&mut padded, scale, shift, &mut sums);
        rest.copy_from_slice(&padded[..rest.len()]);
    }
    fold(sums, |a, b| a + b)
}

#[inline(always)]
fn exponentiate_lanes(x: &mut [f32], scale: f32, shift: f32, sums: &mut [f32; LANES]) {
    for (x, sum) in x.iter_mut().zip(sums) {
        *x = exp(*x * scale - shift);
        *sum += *x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectorized;

    /// Returns the error in units in the last place of the exact value.
    fn error(x: f32) -> f64 {
        let exact = f64::from(x).exp();
        let unit = f64::from((exact as f32).next_up()) - f64::from(exact as f32);
        (f64::from(exp(x)) - exact).abs() / unit
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
        assert_eq!([0.0, -0.0].map(exp), [1.0, 1.0]);
        assert_eq!([f32::NEG_INFINITY, f32::MIN, -1e3, -87.0].map(exp), [0.0; 4]);
        assert_eq!([f32::INFINITY, f32::MAX, 1e3, 88.73].map(exp), [f32::INFINITY; 4]);
        assert!(exp(f32::NAN).is_nan() && exp(88.72).is_finite());
    }

    #[test]
    fn vectors_and_single_elements_agree_to_the_bit() {
        let x: Vec<f32> = (0..1003).map(|i| (i * 7919 % 2003) as f32 / 50.0 - 35.0).collect();
        for len in [1, 15, 16, 17, 100, 1003] {
            let mut powers = x[..len].to_vec();
            let sum = vectorized!(exponentiate(&mut powers, 0.7, 1.5));
            let mut sums = [0.0; LANES];
            for (i, x) in x[..len].iter().enumerate() {
                assert_eq!(powers[i], exp(x * 0.7 - 1.5));
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
