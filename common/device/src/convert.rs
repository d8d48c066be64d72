//! Conversions between f32 and the 16-bit floats: widening is exact, narrowing rounds to nearest,
//! ties to even.
//!
//! For use inside [`vectorized!`](crate::dispatch::vectorized).

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// `to = from`.
#[inline(always)]
pub(crate) fn widen_bf16(to: &mut [f32], from: &[bf16]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = f32::from_bits(u32::from(from.to_bits()) << 16);
    }
}

/// `to = from`, rounded. NaN stays NaN.
#[inline(always)]
pub(crate) fn narrow_bf16(to: &mut [bf16], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = bf16::from_bits((rounded_bits(*from) >> 16) as u16);
    }
}

/// Returns the bits of `x`, rounded to bf16, as an f32's: the lower half is unspecified.
#[inline(always)]
pub(crate) fn rounded_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    if x.is_nan() { bits | 0x40_0000 } else { rounded }
}

/// `to = from`.
#[inline(always)]
pub(crate) fn widen_f16(to: &mut [f32], from: &[f16]) {
    from.convert_to_f32_slice(to);
}

/// `to = from`, rounded.
#[inline(always)]
pub(crate) fn narrow_f16(to: &mut [f16], from: &[f32]) {
    to.convert_from_f32_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widened<T>(value: T, widen: impl Fn(&mut [f32], &[T])) -> f32 {
        let mut wide = [0.0];
        widen(&mut wide, &[value]);
        wide[0]
    }

    fn narrowed<T: Copy + Default>(value: f32, narrow: impl Fn(&mut [T], &[f32])) -> T {
        let mut narrowed = [T::default()];
        narrow(&mut narrowed, &[value]);
        narrowed[0]
    }

    #[test]
    fn widening_is_exact() {
        for bits in 0..=u16::MAX {
            let (brain, half) = (bf16::from_bits(bits), f16::from_bits(bits));
            assert!(same(widened(brain, widen_bf16), brain.to_f32()), "bf16 {bits:#x}");
            assert!(same(widened(half, widen_f16), half.to_f32()), "f16 {bits:#x}");
        }
    }

    #[test]
    fn narrowing_rounds_to_nearest_even() {
        // Every 16-bit value, the halfway points above it, and their neighbours.
        let around = |value: f32| [-2i32, -1, 0, 1, 2].map(|step| value.to_bits().wrapping_add_signed(step));
        for bits in 0..=u16::MAX {
            let brain = u32::from(bits) << 16;
            let next = f16::from_bits(bits.wrapping_add(1)).to_f32();
            let half = f16::from_bits(bits).to_f32();
            let middles =
                [f32::from_bits(brain), f32::from_bits(brain | 0x8000), half, (half + next) / 2.0, 65520.0];
            for value in middles.into_iter().flat_map(around).map(f32::from_bits) {
                let (brain, half) = (bf16::from_f32(value).to_f32(), f16::from_f32(value).to_f32());
                assert!(same(narrowed(value, narrow_bf16).to_f32(), brain), "bf16 of {value:e}");
                assert!(same(narrowed(value, narrow_f16).to_f32(), half), "f16 of {value:e}");
            }
        }
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }
}
