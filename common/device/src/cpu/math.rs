//! Functions and sums that are the same bits on every CPU and for every cut: plain f32 operations in a fixed order.

/// Partial sums of a reduction over a row.
const LANES: usize = 16;

/// e^x to within 2 units in the last place; 0 for x < −86.9, where e^x is below 2⁻¹²⁵; +∞ above the largest f32; NaN
/// for NaN.
///
/// x = n·ln 2 + r with |r| ≤ ln 2 / 2 (ln 2 in two parts, so that n·ln 2 loses nothing; Cody & Waite, 1980); e^r by its
/// Taylor polynomial of degree 7.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Adding it to a small number rounds that to an integer, which the low bits of the sum then hold.
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

/// 1 / (1 + e^−x).
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

/// Σ term(i) for i in 0..a.len(), over the pairs of `a` and `b`, in 16 partial sums.
#[inline(always)]
pub(super) fn sum_pairs(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_chunks.remainder(), b_chunks.remainder());
    for (a, b) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += term(a[lane], b[lane]);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += term(*a, *b);
    }
    fold(lanes, |a, b| a + b)
}

/// Σ a·b.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_pairs(a, b, |a, b| a * b)
}

/// The largest element; −∞ if there are none. NaN elements are passed over.
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

/// `x = e^(x · scale − shift)` in place; returns the sum of the results, in 16 partial sums.
#[inline(always)]
pub(super) fn exponentiate(x: &mut [f32], scale: f32, shift: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let mut chunks = x.chunks_exact_mut(LANES);
    for x in &mut chunks {
        for lane in 0..LANES {
            x[lane] = exp(x[lane] * scale - shift);
            lanes[lane] += x[lane];
        }
    }
    for (lane, x) in lanes.iter_mut().zip(chunks.into_remainder()) {
        *x = exp(*x * scale - shift);
        *lane += *x;
    }
    fold(lanes, |a, b| a + b)
}
