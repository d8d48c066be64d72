//! A counter-based generator of random numbers (Salmon et al., 2011): every number depends only on
//! a key and its position, so that any part of a sequence can be computed alone. Only operations
//! that IEEE 754 defines exactly are used, so all machines compute the same numbers.

use crate::dispatch::vectorized;
use std::f64::consts::{FRAC_PI_2, LN_2, SQRT_2};

/// Writes numbers `start..start + out.len()` of the sequence with this key: normal, with mean 0 and
/// standard deviation `deviation`.
pub fn normals((key, deviation): (u64, f64), start: usize, out: &mut [f32]) {
    let (first, rest) = out.split_at_mut(start % 2 * usize::from(!out.is_empty()));
    for value in first.iter_mut() {
        *value = normal_pair((key, deviation), start / 2)[1];
    }
    vectorized!(pairs((key, deviation), start.div_ceil(2), rest));
}

/// Number of pairs that are computed together, in the lanes of vector instructions.
const TOGETHER: usize = 32;

/// Writes the pairs from number `from` on.
#[inline(always)]
fn pairs((key, deviation): (u64, f64), from: usize, out: &mut [f32]) {
    for (block, values) in out.chunks_mut(2 * TOGETHER).enumerate() {
        let first = from + block * TOGETHER;
        let (mut bits, mut radii) = ([0; TOGETHER], [0.0; TOGETHER]);
        let (mut turns, mut pairs) = ([(0.0, 0.0); TOGETHER], [[0.0; 2]; TOGETHER]);
        // Separate loops, each simple enough for the compiler to vectorise.
        for (i, bits) in bits.iter_mut().enumerate() {
            *bits = mix(key.wrapping_add((first + i) as u64));
        }
        for (radius, &bits) in radii.iter_mut().zip(&bits) {
            *radius = deviation * radius_of((bits >> 32) as u32);
        }
        for (turn, &bits) in turns.iter_mut().zip(&bits) {
            *turn = sin_cos_turn(bits as u32);
        }
        for (pair, (&radius, &turn)) in pairs.iter_mut().zip(radii.iter().zip(&turns)) {
            *pair = scaled(radius, turn);
        }
        values.copy_from_slice(&pairs.as_flattened()[..values.len()]);
    }
}

/// Difference between successive counters of SplitMix64's sequence.
pub const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Computes SplitMix64's finalizer after one step of its sequence (Steele et al., 2014): a
/// bijection in which every output bit depends on all input bits.
#[inline(always)]
pub fn mix(counter: u64) -> u64 {
    let z = counter.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns two independent normal values with standard deviation `deviation`, from 64 random bits
/// (Box & Muller, 1958): pair `number` of the tensor with this key.
fn normal_pair((key, deviation): (u64, f64), number: usize) -> [f32; 2] {
    let bits = mix(key.wrapping_add(number as u64));
    scaled(deviation * radius_of((bits >> 32) as u32), sin_cos_turn(bits as u32))
}

#[inline(always)]
fn scaled(radius: f64, (sin, cos): (f64, f64)) -> [f32; 2] {
    [(radius * cos) as f32, (radius * sin) as f32]
}

#[inline(always)]
fn radius_of(bits: u32) -> f64 {
    let uniform = (f64::from(bits) + 0.5) / (1u64 << 32) as f64;
    (-2.0 * ln(uniform)).sqrt()
}

/// Returns the natural logarithm of a positive normal number, to 1e-11. It is the logarithm of the
/// number's power of two, plus that of its mantissa m, within √½ to √2, from the series of 2 ·
/// artanh((m − 1) / (m + 1)).
#[inline(always)]
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let halved = mantissa > SQRT_2;
    let exponent = (bits >> 52) as i32 - 1023 + i32::from(halved);
    let mantissa = if halved { mantissa / 2.0 } else { mantissa };
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let terms = [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0];
    f64::from(exponent) * LN_2 + 2.0 * s * polynomial(s * s, terms)
}

/// Returns sine and cosine of `turn` / 2³² of a full turn, to 1e-11, from Taylor polynomials within
/// an eighth of a turn around the nearest quarter. Selects instead of branching, so that the
/// compiler can vectorise it.
#[inline(always)]
fn sin_cos_turn(turn: u32) -> (f64, f64) {
    let quarter = turn.wrapping_add(1 << 29) >> 30;
    let rest = turn.wrapping_sub(quarter << 30) as i32;
    let x = f64::from(rest) * (FRAC_PI_2 / f64::from(1u32 << 30));
    let sin_terms = [-1.0 / 39_916_800.0, 1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0];
    let cos_terms =
        [1.0 / 479_001_600.0, -1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0];
    let (sin, cos) = (x * polynomial(x * x, sin_terms), polynomial(x * x, cos_terms));
    let (sin, cos) = if quarter & 1 == 1 { (cos, sin) } else { (sin, cos) };
    let negated = |value: f64, odd: u32| f64::from_bits(value.to_bits() ^ u64::from(odd) << 63);
    (negated(sin, quarter >> 1), negated(cos, quarter >> 1 ^ quarter & 1))
}

/// Evaluates the polynomial in `x` with `coefficients` from the highest power down (Horner's
/// scheme).
#[inline(always)]
fn polynomial<const TERMS: usize>(x: f64, coefficients: [f64; TERMS]) -> f64 {
    coefficients.into_iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn logarithm_and_rotation_are_the_library_s(bits: u64) {
            let uniform = ((bits >> 32) as f64 + 0.5) / 2f64.powi(32);
            prop_assert!((ln(uniform) - uniform.ln()).abs() < 1e-11);
            let angle = std::f64::consts::TAU * f64::from(bits as u32) / 2f64.powi(32);
            let (sin, cos) = sin_cos_turn(bits as u32);
            prop_assert!((sin - angle.sin()).abs() < 1e-11 && (cos - angle.cos()).abs() < 1e-11);
        }
    }
}
