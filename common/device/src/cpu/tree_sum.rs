//! Sums over ranks on the CPU. `tree_sum.cu` computes the same on a GPU.

use super::elementwise::add_slice;
use super::operand::{Floats, FloatsMut};
use crate::DType;
use crate::dispatch::vectorized;
use std::ops::Range;

/// Partial sums and inputs of a block.
type Block = [f32; TreeSum::BLOCK];

/// Computes sums over ranks in f32 over a balanced binary tree, a block of at most
/// [`TreeSum::BLOCK`] elements at a time.
///
/// Ranks split at the largest power of two below their count, so (0+1)+2 for three, ((0+1)+(2+3))+4
/// for five: aligned power-of-two groups are subtrees. Each element is summed by itself, so the
/// result does not depend on how buffers are cut.
pub struct TreeSum {
    dtype: DType,
    inputs: [Block; 4],
    total: Block,
    rounded: [u16; TreeSum::BLOCK],
}

impl TreeSum {
    /// Maximum number of elements of a block: inputs and partial sums of a few ranks stay in the
    /// nearest cache.
    pub const BLOCK: usize = 1024;

    /// Returns the room for sums of floats of `dtype`.
    pub fn new(dtype: DType) -> Self {
        let zeros = [0.0; TreeSum::BLOCK];
        TreeSum { dtype, inputs: [zeros; 4], total: zeros, rounded: [0; TreeSum::BLOCK] }
    }

    /// Returns the sums over `ranks` ranks, before they are rounded. `read` returns the bytes of a
    /// rank's `len` floats.
    ///
    /// # Panics
    /// If `ranks` is 0, `len` exceeds [`TreeSum::BLOCK`], the type is not a float's, or `read`
    /// returns fewer than `len` elements or bytes that are not aligned to them.
    pub fn exact<'a>(&mut self, len: usize, ranks: usize, read: &dyn Fn(usize) -> &'a [u8]) -> &[f32] {
        let dtype = self.dtype;
        let read = |rank: usize| Floats::from_bytes(dtype, read(rank));
        add_up(&mut self.total[..len], 0..ranks, &read, &mut self.inputs);
        &self.total[..len]
    }

    /// Returns the bytes of the sums, rounded to nearest, ties to even.
    ///
    /// # Panics
    /// As [`TreeSum::exact`].
    pub fn rounded<'a>(&mut self, len: usize, ranks: usize, read: &dyn Fn(usize) -> &'a [u8]) -> &[u8] {
        self.exact(len, ranks, read);
        let (total, rounded) = (&self.total[..len], &mut self.rounded[..len]);
        let mut to = match self.dtype {
            DType::Bf16 => FloatsMut::Bf16(bytemuck::cast_slice_mut(rounded)),
            DType::F16 => FloatsMut::F16(bytemuck::cast_slice_mut(rounded)),
            _ => return bytemuck::cast_slice(total),
        };
        vectorized!(to.store(0..len, total));
        bytemuck::cast_slice(rounded)
    }
}

/// Writes the sum over `ranks` to `out`, with scratch memory for widened inputs.
fn add_up<'a>(
    out: &mut [f32],
    ranks: Range<usize>,
    read: &impl Fn(usize) -> Floats<'a>,
    rooms: &mut [Block; 4],
) {
    let (first, all) = (ranks.start, 0..out.len());
    let inputs = |i: usize| read(first + i);
    match ranks.len() {
        0 => unreachable!("a sum has at least one rank"),
        1 => vectorized!(out.copy_from_slice(inputs(0).read(all, &mut rooms[0]))),
        2 => vectorized!(add_two(out, [0, 1].map(inputs), rooms)),
        4 => vectorized!(add_four(out, [0, 1, 2, 3].map(inputs), rooms)),
        count => {
            let middle = first + count.next_power_of_two() / 2;
            add_up(out, first..middle, read, rooms);
            let right = &mut [0.0; TreeSum::BLOCK][all];
            add_up(right, middle..ranks.end, read, rooms);
            vectorized!(add_slice(out, right));
        }
    }
}

/// `out = a + b`
#[inline(always)]
fn add_two(out: &mut [f32], [a, b]: [Floats<'_>; 2], rooms: &mut [Block; 4]) {
    let all = || 0..out.len();
    let [room_a, room_b, ..] = rooms;
    let (a, b) = (a.read(all(), room_a), b.read(all(), room_b));
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

/// `out = (a + b) + (c + d)`
#[inline(always)]
fn add_four(out: &mut [f32], [a, b, c, d]: [Floats<'_>; 4], rooms: &mut [Block; 4]) {
    let all = || 0..out.len();
    let [room_a, room_b, room_c, room_d] = rooms;
    let left = a.read(all(), room_a).iter().zip(b.read(all(), room_b));
    let right = c.read(all(), room_c).iter().zip(d.read(all(), room_d));
    for ((out, (a, b)), (c, d)) in out.iter_mut().zip(left).zip(right) {
        *out = (a + b) + (c + d);
    }
}
