//! Sums over ranks, in f32 over a balanced binary tree, rounded once.
//!
//! Ranks split at the largest power of two below their count, so (0+1)+2 for three, ((0+1)+(2+3))+4
//! for five: aligned power-of-two groups are subtrees. Each element is summed by itself, so the
//! result does not depend on how buffers are cut.

use super::buffers::Span;
use device::convert::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
use device::{DType, Element, vectorized};
use half::{bf16, f16};
use std::ops::Range;

/// Elements summed at a time: inputs and partial sums of a few ranks stay in the first-level cache.
const BLOCK: usize = 512;

/// Where the sums of a range of elements go.
#[derive(Clone, Copy)]
pub(crate) enum Sums<'a> {
    /// Rounded, to this range of these buffers.
    Rounded(&'a [Span]),
    /// Unrounded, to an f32 buffer that has the elements of the range alone.
    Exact(&'a Span),
}

/// Sums `range` of buffers of `dtype` over `ranks` ranks. `read` returns the bytes of some elements of
/// one rank's buffer.
///
/// # Safety
/// The buffers behind `to` are alive, and no other thread touches what is written there. What `read`
/// returns may be such memory.
pub(crate) unsafe fn sum<'a>(
    dtype: DType,
    range: Range<usize>,
    ranks: usize,
    read: impl Fn(usize, Range<usize>) -> &'a [u8],
    to: Sums<'_>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::F32 => sum_as::<f32>(range, ranks, read, to),
            DType::Bf16 => sum_as::<bf16>(range, ranks, read, to),
            DType::F16 => sum_as::<f16>(range, ranks, read, to),
            DType::U32 => unreachable!("checked when issued"),
        }
    }
}

/// # Safety
/// As [`sum`].
unsafe fn sum_as<'a, T: Summand>(
    range: Range<usize>,
    ranks: usize,
    read: impl Fn(usize, Range<usize>) -> &'a [u8],
    to: Sums<'_>,
) {
    let mut adder = Adder::<T>::new();
    for start in range.clone().step_by(BLOCK) {
        let block = start..range.end.min(start + BLOCK);
        let read = |rank| bytemuck::cast_slice(read(rank, block.clone()));
        match to {
            Sums::Rounded(buffers) => {
                let sum = bytemuck::cast_slice(adder.sum(block.len(), ranks, &read));
                for buffer in buffers {
                    // SAFETY: only this thread touches the block, and no longer reads it.
                    unsafe { buffer.write(block.clone()) }.copy_from_slice(sum);
                }
            }
            Sums::Exact(buffer) => {
                let sum = bytemuck::cast_slice(adder.exact(block.len(), ranks, &read));
                let at = block.start - range.start..block.end - range.start;
                // SAFETY: only this thread touches the place.
                unsafe { buffer.write(at) }.copy_from_slice(sum);
            }
        }
    }
}

/// An element type that can be summed.
trait Summand: Element + Default {
    /// Returns `values` as f32, exactly; `room` holds them if they have to be converted.
    fn wide<'a>(values: &'a [Self], room: &'a mut [f32]) -> &'a [f32];

    /// Returns `values` rounded to nearest, ties to even; `room` holds them if they have to be
    /// converted.
    fn narrow<'a>(values: &'a [f32], room: &'a mut [Self]) -> &'a [Self];
}

impl Summand for f32 {
    #[inline(always)]
    fn wide<'a>(values: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        values
    }

    #[inline(always)]
    fn narrow<'a>(values: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        values
    }
}

/// Implements [`Summand`] for a float of 16 bits by its conversions.
macro_rules! sixteen_bits {
    ($type:ident, $widen:ident, $narrow:ident) => {
        impl Summand for $type {
            #[inline(always)]
            fn wide<'a>(values: &'a [Self], room: &'a mut [f32]) -> &'a [f32] {
                let room = &mut room[..values.len()];
                $widen(room, values);
                room
            }

            #[inline(always)]
            fn narrow<'a>(values: &'a [f32], room: &'a mut [Self]) -> &'a [Self] {
                let room = &mut room[..values.len()];
                $narrow(room, values);
                room
            }
        }
    };
}

sixteen_bits!(bf16, widen_bf16, narrow_bf16);
sixteen_bits!(f16, widen_f16, narrow_f16);

/// Computes sums over ranks, a block of at most [`BLOCK`] elements at a time.
struct Adder<T> {
    inputs: [[f32; BLOCK]; 4],
    total: [f32; BLOCK],
    rounded: [T; BLOCK],
}

impl<T: Summand> Adder<T> {
    fn new() -> Self {
        Adder { inputs: [[0.0; BLOCK]; 4], total: [0.0; BLOCK], rounded: [T::default(); BLOCK] }
    }

    /// Returns the sum over `ranks` ranks of what `read` returns for each, before it is rounded.
    fn exact<'a>(&mut self, len: usize, ranks: usize, read: &impl Fn(usize) -> &'a [T]) -> &[f32] {
        tree_sum(&mut self.total[..len], 0..ranks, read, &mut self.inputs);
        &self.total[..len]
    }

    /// Returns the sum as [`Adder::exact`] does, rounded.
    fn sum<'a>(&mut self, len: usize, ranks: usize, read: &impl Fn(usize) -> &'a [T]) -> &[T] {
        self.exact(len, ranks, read);
        vectorized!(T::narrow(&self.total[..len], &mut self.rounded))
    }
}

/// Writes the sum over `ranks` to `out`, with rooms for converted inputs.
fn tree_sum<'a, T: Summand>(
    out: &mut [f32],
    ranks: Range<usize>,
    read: &impl Fn(usize) -> &'a [T],
    rooms: &mut [[f32; BLOCK]; 4],
) {
    let first = ranks.start;
    match ranks.len() {
        1 => vectorized!(out.copy_from_slice(T::wide(read(first), &mut rooms[0]))),
        2 => vectorized!(add_two(out, [0, 1].map(|i| read(first + i)), rooms)),
        4 => vectorized!(add_four(out, [0, 1, 2, 3].map(|i| read(first + i)), rooms)),
        count => {
            let middle = first + count.next_power_of_two() / 2;
            tree_sum(out, first..middle, read, rooms);
            let right = &mut [0.0; BLOCK][..out.len()];
            tree_sum(right, middle..ranks.end, read, rooms);
            vectorized!(add(out, right));
        }
    }
}

/// `out = a + b`
#[inline(always)]
fn add_two<T: Summand>(out: &mut [f32], [a, b]: [&[T]; 2], rooms: &mut [[f32; BLOCK]; 4]) {
    let [room_a, room_b, ..] = rooms;
    for ((out, a), b) in out.iter_mut().zip(T::wide(a, room_a)).zip(T::wide(b, room_b)) {
        *out = a + b;
    }
}

/// `out = (a + b) + (c + d)`
#[inline(always)]
fn add_four<T: Summand>(out: &mut [f32], [a, b, c, d]: [&[T]; 4], rooms: &mut [[f32; BLOCK]; 4]) {
    let [room_a, room_b, room_c, room_d] = rooms;
    let left = T::wide(a, room_a).iter().zip(T::wide(b, room_b));
    let right = T::wide(c, room_c).iter().zip(T::wide(d, room_d));
    for ((out, (a, b)), (c, d)) in out.iter_mut().zip(left).zip(right) {
        *out = (a + b) + (c + d);
    }
}

/// `out += a`
#[inline(always)]
fn add(out: &mut [f32], a: &[f32]) {
    for (out, a) in out.iter_mut().zip(a) {
        *out += a;
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
