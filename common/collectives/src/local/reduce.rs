//! Sums over ranks, in f32 over a balanced binary tree, rounded once.
//!
//! Ranks split at the largest power of two below their count, so (0+1)+2 for three, ((0+1)+(2+3))+4 for five: aligned
//! power-of-two groups are subtrees. Each element is summed by itself, so the result does not depend on how buffers are
//! cut.

use half::{bf16, f16};
use pulp::{Arch, NullaryFnOnce};

/// Elements summed at a time: small enough that inputs and partial sums stay in the first-level cache.
pub(crate) const BLOCK: usize = 1024;

/// An element type that can be summed.
pub(crate) trait Summand: Copy + Default + 'static {
    /// Exact.
    fn widen(self) -> f32;
    /// To nearest, ties to even.
    fn narrow(value: f32) -> Self;
}

impl Summand for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        value
    }
}

impl Summand for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        bf16::from_bits(if value.is_nan() { quiet } else { rounded } as u16)
    }
}

impl Summand for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let magnitude = (bits & 0x7fff) << 13;
        // The exponent's bias is 15 here and 127 there; a multiplication also normalises subnormal numbers.
        let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
        let special = magnitude | 0x7f80_0000;
        let value = if bits & 0x7c00 == 0x7c00 { special } else { finite };
        f32::from_bits(value | (bits & 0x8000) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let normal = magnitude.wrapping_add(0xfff + ((magnitude >> 13) & 1)).wrapping_sub(112 << 23) >> 13;
        // Half a unit of 1/2 is half of the smallest subnormal's unit: the addition rounds as needed.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let finite = if magnitude < 0x3880_0000 { subnormal } else { normal };
        let limited = if magnitude >= 0x4780_0000 { 0x7c00 } else { finite };
        let encoded = if value.is_nan() { 0x7e00 } else { limited };
        f16::from_bits((encoded | (bits >> 16) & 0x8000) as u16)
    }
}

/// `out = sum over ranks of read(rank)`, for at most [`BLOCK`] elements. `read` gives one rank's block.
pub(crate) fn tree_sum<'a, T: Summand>(
    out: &mut [f32],
    ranks: std::ops::Range<usize>,
    read: &impl Fn(usize) -> &'a [T],
) {
    match ranks.len() {
        1 => run(Widen { out, a: read(ranks.start) }),
        2 => run(Pair { out, a: read(ranks.start), b: read(ranks.start + 1) }),
        count => {
            let middle = ranks.start + count.next_power_of_two() / 2;
            tree_sum(out, ranks.start..middle, read);
            if ranks.end - middle == 1 {
                return run(Add { out, a: read(middle) });
            }
            let mut right = [0.0; BLOCK];
            let right = &mut right[..out.len()];
            tree_sum(right, middle..ranks.end, read);
            run(Add { out, a: &*right });
        }
    }
}

/// `out = a`, rounded.
pub(crate) fn narrow<T: Summand>(out: &mut [T], a: &[f32]) {
    run(Narrow { out, a });
}

/// `out += a`, each sum rounded.
pub(crate) fn accumulate<T: Summand>(out: &mut [T], a: &[T]) {
    run(Accumulate { out, a });
}

/// Runs a loop with the widest vectors that this processor has.
fn run(kernel: impl NullaryFnOnce<Output = ()>) {
    Arch::new().dispatch(kernel);
}

struct Widen<'a, T> {
    out: &'a mut [f32],
    a: &'a [T],
}

impl<T: Summand> NullaryFnOnce for Widen<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, a) in self.out.iter_mut().zip(self.a) {
            *out = a.widen();
        }
    }
}

struct Pair<'a, T> {
    out: &'a mut [f32],
    a: &'a [T],
    b: &'a [T],
}

impl<T: Summand> NullaryFnOnce for Pair<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for ((out, a), b) in self.out.iter_mut().zip(self.a).zip(self.b) {
            *out = a.widen() + b.widen();
        }
    }
}

struct Add<'a, T> {
    out: &'a mut [f32],
    a: &'a [T],
}

impl<T: Summand> NullaryFnOnce for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, a) in self.out.iter_mut().zip(self.a) {
            *out += a.widen();
        }
    }
}

struct Narrow<'a, T> {
    out: &'a mut [T],
    a: &'a [f32],
}

impl<T: Summand> NullaryFnOnce for Narrow<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, a) in self.out.iter_mut().zip(self.a) {
            *out = T::narrow(*a);
        }
    }
}

struct Accumulate<'a, T> {
    out: &'a mut [T],
    a: &'a [T],
}

impl<T: Summand> NullaryFnOnce for Accumulate<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, a) in self.out.iter_mut().zip(self.a) {
            *out = T::narrow(out.widen() + a.widen());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_is_exact() {
        for bits in 0..=u16::MAX {
            let (brain, half) = (bf16::from_bits(bits), f16::from_bits(bits));
            assert!(same(brain.widen(), brain.to_f32()), "bf16 {bits:#x}");
            assert!(same(half.widen(), half.to_f32()), "f16 {bits:#x}");
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
            for middle in middles {
                for value in around(middle).map(f32::from_bits) {
                    assert!(
                        same(bf16::narrow(value).to_f32(), bf16::from_f32(value).to_f32()),
                        "bf16 of {value:e}"
                    );
                    assert!(
                        same(f16::narrow(value).to_f32(), f16::from_f32(value).to_f32()),
                        "f16 of {value:e}"
                    );
                }
            }
        }
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }
}
