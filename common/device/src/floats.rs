//! Loops over floats in main memory that no buffer holds, such as a file's.

use crate::DType;
use crate::convert::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
use crate::dispatch::vectorized;
use bytemuck::{cast_slice, cast_slice_mut};

/// `values = bits`, which are numbers of a 16-bit type.
///
/// # Panics
/// If `dtype` is not a 16-bit type, or the lengths differ.
pub fn widen(values: &mut [f32], bits: &[u16], dtype: DType) {
    assert_eq!(values.len(), bits.len(), "as many values as bits");
    match dtype {
        DType::Bf16 => vectorized!(widen_bf16(values, cast_slice(bits))),
        DType::F16 => vectorized!(widen_f16(values, cast_slice(bits))),
        other => unreachable!("{other} is not a 16-bit type"),
    }
}

/// `bits = values`, rounded to the nearest number of a 16-bit type, ties to even. NaN stays NaN.
///
/// # Panics
/// As [`widen`].
pub fn narrow(bits: &mut [u16], values: &[f32], dtype: DType) {
    assert_eq!(values.len(), bits.len(), "as many values as bits");
    match dtype {
        DType::Bf16 => vectorized!(narrow_bf16(cast_slice_mut(bits), values)),
        DType::F16 => vectorized!(narrow_f16(cast_slice_mut(bits), values)),
        other => unreachable!("{other} is not a 16-bit type"),
    }
}

/// True if none of the f32 values in little-endian `bytes` is infinite or NaN. Checks two values at
/// a time: only an exponent of all ones overflows into the sign bit.
pub fn are_finite(bytes: &[u8]) -> bool {
    const EXPONENTS: u64 = 0x7f80_0000_7f80_0000;
    const ONES: u64 = 0x0080_0000_0080_0000;
    const SIGNS: u64 = 0x8000_0000_8000_0000;
    let overflow = |pair| (u64::from_le_bytes(pair) & EXPONENTS) + ONES;
    let (pairs, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // No early exit, so that the compiler vectorises the loop.
    let mut all = overflow(last);
    vectorized!(for pair in pairs {
        all |= overflow(*pair);
    });
    all & SIGNS == 0
}

/// Returns the largest magnitude of the finite values; 0 if there is none.
pub fn largest_finite(values: &[f32]) -> f32 {
    // Magnitudes are in the order of their bits, and infinity is the first that is not finite.
    let magnitude = |value: &f32| value.to_bits() & (u32::MAX >> 1);
    let finite = |bits: u32| if bits < f32::INFINITY.to_bits() { bits } else { 0 };
    let mut largest = 0;
    vectorized!(for value in values {
        largest = largest.max(finite(magnitude(value)));
    });
    f32::from_bits(largest)
}

/// Returns the sum of the squares of `values`, added in order.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value) * f64::from(value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_finite_are_found_anywhere() {
        let mut values = vec![1.5f32; 40_001];
        values[7] = f32::MIN_POSITIVE / 2.0;
        values[8] = -f32::MAX;
        assert!(are_finite(cast_slice(&values)));
        assert_eq!(largest_finite(&values), f32::MAX);
        values[8] = -2.5;
        for at in [0, 16_383, 16_384, 40_000] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut changed = values.clone();
                changed[at] = bad;
                assert!(!are_finite(cast_slice(&changed)), "{bad} at {at}");
                assert_eq!(largest_finite(&changed), 2.5, "{bad} at {at}");
            }
        }
        assert_eq!(largest_finite(&[]), 0.0);
    }
}
