//! Sums over ranks on the CPU. `tree_sum.cu` computes the same on a GPU.

use crate::convert::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
use crate::dtype::{DType, Element};
use crate::vectorized;
use half::{bf16, f16};
use std::ops::Range;

/// Computes sums over ranks in f32 over a balanced binary tree, a block of at most [`TreeSum::BLOCK`]
/// elements at a time.
///
/// Ranks split at the largest power of two below their count, so (0+1)+2 for three, ((0+1)+(2+3))+4
/// for five: aligned power-of-two groups are subtrees. Each element is summed by itself, so the
/// result does not depend on how buffers are cut.
pub struct TreeSum {
    dtype: DType,
    inputs: [[f32; TreeSum::BLOCK]; 4],
    total: [f32; TreeSum::BLOCK],
    rounded: [u16; TreeSum::BLOCK],
}

impl TreeSum {
    /// Elements of a block, at most: inputs and partial sums of a few ranks stay in the nearest cache.
    pub const BLOCK: usize = 512;

    /// Returns the room for sums of floats of `dtype`.
    pub fn new(dtype: DType) -> Self {
        let (inputs, total) = ([[0.0; TreeSum::BLOCK]; 4], [0.0; TreeSum::BLOCK]);
        TreeSum { dtype, inputs, total, rounded: [0; TreeSum::BLOCK] }
    }

    /// Returns the sums over `ranks` ranks, before they are rounded. `read` returns the bytes of a
    /// rank's `len` floats.
    ///
    /// # Panics
    /// If `ranks` is 0, `len` exceeds [`TreeSum::BLOCK`], the type is not a float's, or `read` returns fewer
    /// than `len` elements or bytes that are not aligned to them.
    pub fn exact<'a>(&mut self, len: usize, ranks: usize, read: &dyn Fn(usize) -> &'a [u8]) -> &[f32] {
        let (out, rooms) = (&mut self.total[..len], &mut self.inputs);
        match self.dtype {
            DType::F32 => add_up::<f32>(out, 0..ranks, read, rooms),
            DType::Bf16 => add_up::<bf16>(out, 0..ranks, read, rooms),
            DType::F16 => add_up::<f16>(out, 0..ranks, read, rooms),
            DType::U32 => unreachable!("sums are of floats"),
        }
        out
    }

    /// Returns the bytes of the sums, rounded to nearest, ties to even.
    ///
    /// # Panics
    /// As [`TreeSum::exact`].
    pub fn rounded<'a>(&mut self, len: usize, ranks: usize, read: &dyn Fn(usize) -> &'a [u8]) -> &[u8] {
        self.exact(len, ranks, read);
        let (total, rounded) = (&self.total[..len], &mut self.rounded[..len]);
        match self.dtype {
            DType::Bf16 => vectorized!(narrow_bf16(bytemuck::cast_slice_mut(rounded), total)),
            DType::F16 => vectorized!(narrow_f16(bytemuck::cast_slice_mut(rounded), total)),
            _ => return bytemuck::cast_slice(total),
        }
        bytemuck::cast_slice(rounded)
    }
}

/// An element type that can be summed.
trait Summand: Element {
    /// Returns `values` as f32, exactly; `room` holds them if they have to be converted.
    fn wide<'a>(values: &'a [Self], room: &'a mut [f32]) -> &'a [f32];
}

impl Summand for f32 {
    #[inline(always)]
    fn wide<'a>(values: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        values
    }
}

impl Summand for bf16 {
    #[inline(always)]
    fn wide<'a>(values: &'a [bf16], room: &'a mut [f32]) -> &'a [f32] {
        let room = &mut room[..values.len()];
        widen_bf16(room, values);
        room
    }
}

impl Summand for f16 {
    #[inline(always)]
    fn wide<'a>(values: &'a [f16], room: &'a mut [f32]) -> &'a [f32] {
        let room = &mut room[..values.len()];
        widen_f16(room, values);
        room
    }
}

/// Writes the sum over `ranks` to `out`, with rooms for converted inputs.
fn add_up<'a, T: Summand>(
    out: &mut [f32],
    ranks: Range<usize>,
    read: &dyn Fn(usize) -> &'a [u8],
    rooms: &mut [[f32; TreeSum::BLOCK]; 4],
) {
    let (first, len) = (ranks.start, out.len());
    let values = |i: usize| &bytemuck::cast_slice::<u8, T>(read(first + i))[..len];
    match ranks.len() {
        0 => unreachable!("a sum has at least one rank"),
        1 => vectorized!(out.copy_from_slice(T::wide(values(0), &mut rooms[0]))),
        2 => vectorized!(add_two(out, [0, 1].map(values), rooms)),
        4 => vectorized!(add_four(out, [0, 1, 2, 3].map(values), rooms)),
        count => {
            let middle = first + count.next_power_of_two() / 2;
            add_up::<T>(out, first..middle, read, rooms);
            let right = &mut [0.0; TreeSum::BLOCK][..out.len()];
            add_up::<T>(right, middle..ranks.end, read, rooms);
            vectorized!(add(out, right));
        }
    }
}

/// `out = a + b`
#[inline(always)]
fn add_two<T: Summand>(out: &mut [f32], [a, b]: [&[T]; 2], rooms: &mut [[f32; TreeSum::BLOCK]; 4]) {
    let [room_a, room_b, ..] = rooms;
    for ((out, a), b) in out.iter_mut().zip(T::wide(a, room_a)).zip(T::wide(b, room_b)) {
        *out = a + b;
    }
}

/// `out = (a + b) + (c + d)`
#[inline(always)]
fn add_four<T: Summand>(out: &mut [f32], [a, b, c, d]: [&[T]; 4], rooms: &mut [[f32; TreeSum::BLOCK]; 4]) {
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
