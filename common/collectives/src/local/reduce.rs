//! Sums over ranks, in f32 over a balanced binary tree, rounded once.
//!
//! Ranks split at the largest power of two below their count, so (0+1)+2 for three, ((0+1)+(2+3))+4 for five: aligned
//! power-of-two groups are subtrees. Each element is summed by itself, so the result does not depend on how buffers are
//! cut.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use pulp::{Arch, NullaryFnOnce};
use std::ops::Range;

/// Elements summed at a time: inputs and partial sums of a few ranks stay in the first-level cache.
pub(crate) const BLOCK: usize = 512;

/// An element type that can be summed.
pub(crate) trait Summand: Copy + Default + 'static {
    /// `values` as f32, exactly; `room` holds them if they have to be converted.
    fn wide<'a>(values: &'a [Self], room: &'a mut [f32]) -> &'a [f32];

    /// `values` rounded to nearest, ties to even; `room` holds them if they have to be converted.
    fn narrow<'a>(values: &'a [f32], room: &'a mut [Self]) -> &'a [Self];
}

impl Summand for f32 {
    fn wide<'a>(values: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        values
    }

    fn narrow<'a>(values: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        values
    }
}

impl Summand for bf16 {
    fn wide<'a>(values: &'a [bf16], room: &'a mut [f32]) -> &'a [f32] {
        let room = &mut room[..values.len()];
        run(Widen { out: room, a: values });
        room
    }

    fn narrow<'a>(values: &'a [f32], room: &'a mut [bf16]) -> &'a [bf16] {
        let room = &mut room[..values.len()];
        run(Narrow { out: room, a: values });
        room
    }
}

impl Summand for f16 {
    fn wide<'a>(values: &'a [f16], room: &'a mut [f32]) -> &'a [f32] {
        let room = &mut room[..values.len()];
        values.convert_to_f32_slice(room);
        room
    }

    fn narrow<'a>(values: &'a [f32], room: &'a mut [f16]) -> &'a [f16] {
        let room = &mut room[..values.len()];
        room.convert_from_f32_slice(values);
        room
    }
}

/// Where sums over ranks are computed, a block of at most [`BLOCK`] elements at a time.
pub(crate) struct Adder<T> {
    inputs: [[f32; BLOCK]; 4],
    total: [f32; BLOCK],
    rounded: [T; BLOCK],
}

impl<T: Summand> Adder<T> {
    pub(crate) fn new() -> Self {
        Adder { inputs: [[0.0; BLOCK]; 4], total: [0.0; BLOCK], rounded: [T::default(); BLOCK] }
    }

    /// The sum over `ranks` ranks of what `read` gives for each.
    pub(crate) fn sum<'a>(&mut self, len: usize, ranks: usize, read: &impl Fn(usize) -> &'a [T]) -> &[T] {
        let total = &mut self.total[..len];
        tree_sum(total, 0..ranks, read, &mut self.inputs);
        T::narrow(total, &mut self.rounded)
    }
}

fn tree_sum<'a, T: Summand>(
    out: &mut [f32],
    ranks: Range<usize>,
    read: &impl Fn(usize) -> &'a [T],
    rooms: &mut [[f32; BLOCK]; 4],
) {
    let [a, b, c, d] = rooms;
    let first = ranks.start;
    match ranks.len() {
        1 => out.copy_from_slice(T::wide(read(first), a)),
        2 => run(Pair { out, a: T::wide(read(first), a), b: T::wide(read(first + 1), b) }),
        4 => {
            let (a, b) = (T::wide(read(first), a), T::wide(read(first + 1), b));
            let (c, d) = (T::wide(read(first + 2), c), T::wide(read(first + 3), d));
            run(Quad { out, a, b, c, d });
        }
        count => {
            let middle = first + count.next_power_of_two() / 2;
            tree_sum(out, first..middle, read, rooms);
            let right = &mut [0.0; BLOCK][..out.len()];
            tree_sum(right, middle..ranks.end, read, rooms);
            run(Add { out, a: right });
        }
    }
}

/// Runs a loop with the widest vectors that this processor has.
fn run(kernel: impl NullaryFnOnce<Output = ()>) {
    Arch::new().dispatch(kernel);
}

struct Widen<'a> {
    out: &'a mut [f32],
    a: &'a [bf16],
}

impl NullaryFnOnce for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, a) in self.out.iter_mut().zip(self.a) {
            *out = f32::from_bits(u32::from(a.to_bits()) << 16);
        }
    }
}

struct Narrow<'a> {
    out: &'a mut [bf16],
    a: &'a [f32],
}

impl NullaryFnOnce for Narrow<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, a) in self.out.iter_mut().zip(self.a) {
            let bits = a.to_bits();
            let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
            let quiet = (bits >> 16) | 0x40;
            *out = bf16::from_bits(if a.is_nan() { quiet } else { rounded } as u16);
        }
    }
}

struct Pair<'a> {
    out: &'a mut [f32],
    a: &'a [f32],
    b: &'a [f32],
}

impl NullaryFnOnce for Pair<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for ((out, a), b) in self.out.iter_mut().zip(self.a).zip(self.b) {
            *out = a + b;
        }
    }
}

struct Quad<'a> {
    out: &'a mut [f32],
    a: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    d: &'a [f32],
}

impl NullaryFnOnce for Quad<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let inputs = self.a.iter().zip(self.b).zip(self.c.iter().zip(self.d));
        for (out, ((a, b), (c, d))) in self.out.iter_mut().zip(inputs) {
            *out = (a + b) + (c + d);
        }
    }
}

struct Add<'a> {
    out: &'a mut [f32],
    a: &'a [f32],
}

impl NullaryFnOnce for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, a) in self.out.iter_mut().zip(self.a) {
            *out += a;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widened<T: Summand>(value: T) -> f32 {
        T::wide(&[value], &mut [0.0])[0]
    }

    fn narrowed<T: Summand>(value: f32) -> T {
        T::narrow(&[value], &mut [T::default()])[0]
    }

    #[test]
    fn widening_is_exact() {
        for bits in 0..=u16::MAX {
            let (brain, half) = (bf16::from_bits(bits), f16::from_bits(bits));
            assert!(same(widened(brain), brain.to_f32()), "bf16 {bits:#x}");
            assert!(same(widened(half), half.to_f32()), "f16 {bits:#x}");
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
                assert!(same(narrowed::<bf16>(value).to_f32(), brain), "bf16 of {value:e}");
                assert!(same(narrowed::<f16>(value).to_f32(), half), "f16 of {value:e}");
            }
        }
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }
}
