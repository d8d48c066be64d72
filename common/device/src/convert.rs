//! Conversions between f32 and the 16-bit floats: widening is exact, narrowing rounds to nearest,
//! ties to even.
//!
//! For use inside [`vectorized!`](crate::vectorized).

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// `to = from`.
#[inline(always)]
pub fn widen_bf16(to: &mut [f32], from: &[bf16]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = f32::from_bits(u32::from(from.to_bits()) << 16);
    }
}

/// `to = from`, rounded. NaN stays NaN.
#[inline(always)]
pub fn narrow_bf16(to: &mut [bf16], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = bf16::from_bits((rounded_bits(*from) >> 16) as u16);
    }
}

/// The bits of `x`, rounded to bf16, as an f32's: the lower half is unspecified.
#[inline(always)]
pub fn rounded_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    if x.is_nan() { bits | 0x40_0000 } else { rounded }
}

/// `to = from`.
#[inline(always)]
pub fn widen_f16(to: &mut [f32], from: &[f16]) {
    from.convert_to_f32_slice(to);
}

/// `to = from`, rounded.
#[inline(always)]
pub fn narrow_f16(to: &mut [f16], from: &[f32]) {
    to.convert_from_f32_slice(from);
}
