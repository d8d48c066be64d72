//! Copies of an operand in the order in which the innermost loop reads it.
//!
//! The same code copies both operands: as a matrix `[lanes, depth]` (lanes are rows of the left
//! operand, columns of the right one) that is stored along the depth or across it.

use super::unit::Unit;
use crate::convert::{rounded_bits, widen_f16};
use crate::cpu::operand::Floats;
use crate::cpu::prefetch::{LINE, prefetch_near};
use crate::cpu::tile::Tile;
use crate::cpu::workers::blocks;
use crate::dispatch::vectorized;
use half::{bf16, f16};
use std::array::from_fn;
use std::ops::Range;
use std::ptr::copy_nonoverlapping;

/// Units between two groups or rows of a copy, a cache line, so that they do not compete for the
/// same lines.
const GAP: usize = 16;

/// Neighbouring lanes that are copied step by step: `[group][step][slot]`.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    lanes: usize,
    /// Number of groups.
    count: usize,
    /// Number of lanes of a group; the last group has the rest.
    pub(super) size: usize,
    /// Units from a step to the next.
    pub(super) slot: usize,
    /// Units from a group to the next.
    pub(super) stride: usize,
}

impl Groups {
    /// Makes groups of rows of the left operand.
    pub(super) fn rows(rows: usize, size: usize, steps: usize) -> Self {
        Groups::new(rows, size, size.next_power_of_two(), steps)
    }

    /// Makes groups of columns of the right operand.
    pub(super) fn columns(columns: usize, size: usize, steps: usize) -> Self {
        Groups::new(columns, size, size, steps)
    }

    fn new(lanes: usize, size: usize, slot: usize, steps: usize) -> Self {
        Groups { lanes, count: lanes.div_ceil(size), size, slot, stride: steps * slot + GAP }
    }

    /// Returns the units of all groups.
    pub(super) fn len(&self) -> usize {
        self.count * self.stride
    }

    /// Returns the number of groups.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the lanes of a group.
    #[inline(always)]
    pub(super) fn lanes(&self, group: usize) -> Range<usize> {
        group * self.size..((group + 1) * self.size).min(self.lanes)
    }

    /// Returns the lanes of each group.
    pub(super) fn iter(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).map(move |group| self.lanes(group))
    }
}

/// Maximum number of lanes of a slot.
const MOST: usize = 32;

/// Copies `from` `[lanes, depth]` to `groups` of at most 32 lanes. The memory between a group's
/// lanes and the end of its slot is unspecified.
///
/// # Panics
/// If slots are not of 8, 16 or 32 lanes.
pub(super) fn pack(to: &mut [u32], from: Tile<'_>, unit: Unit, groups: Groups) {
    let to = &mut to[..groups.len()];
    let steps = unit.steps(from.shape().1);
    if !from.is_transposed() {
        return turn(to, from, unit, groups, steps);
    }
    match groups.slot {
        8 => across::<8>(to, from, unit, groups, steps),
        16 => across::<16>(to, from, unit, groups, steps),
        MOST => across::<MOST>(to, from, unit, groups, steps),
        slot => unreachable!("slots of {slot} lanes"),
    }
}

/// Returns the units from a row of [`pack_rows`] to the next.
pub(in crate::cpu) fn packed_row(steps: usize) -> usize {
    steps.next_multiple_of(GAP) + GAP
}

/// Copies `from` `[lanes, depth]`, which is stored along the depth, row by row, [`packed_row`]
/// apart.
pub(super) fn pack_rows(to: &mut [u32], from: Tile<'_>, unit: Unit) {
    let (lanes, depth) = from.shape();
    let steps = unit.steps(depth);
    for (lane, to) in to.chunks_mut(packed_row(steps)).enumerate().take(lanes) {
        read_along(&mut to[..steps], from, unit, lane, 0);
    }
}

/// Number of lanes of a step that are converted at a time.
const LANES: usize = 512;

/// Copies a tile that is stored across the depth: every step's lanes are neighbours.
fn across<const SLOT: usize>(to: &mut [u32], from: Tile<'_>, unit: Unit, groups: Groups, steps: usize) {
    if let ((Floats::F32(x), stride), Unit::Single) = (from.stored(), unit) {
        vectorized!(for step in 0..steps {
            copy_slots::<SLOT>(to, bytemuck::cast_slice(&x[step * stride..]), AHEAD * stride, groups, step);
        });
        return;
    }
    let mut line = [0; LANES + MOST];
    for part in blocks(0..groups.count, LANES / groups.size) {
        let lanes = part.start * groups.size..groups.lanes.min(part.end * groups.size);
        let to = &mut to[part.start * groups.stride..];
        let groups = Groups { lanes: lanes.len(), count: part.len(), ..groups };
        let from = from.at(lanes, 0..from.shape().1);
        vectorized!(for step in 0..steps {
            read_across(&mut line[..groups.lanes], from, unit, step);
            copy_slots::<SLOT>(to, &line, 0, groups, step);
        });
    }
}

/// Copies a step's lanes, which are neighbours, to the slots of their groups. Those that are copied
/// later lie `ahead` units after them.
#[inline(always)]
fn copy_slots<const SLOT: usize>(to: &mut [u32], lanes: &[u32], ahead: usize, groups: Groups, step: usize) {
    let Groups { count, size, stride, .. } = groups;
    assert!(groups.len() <= to.len() && (step + 1) * SLOT <= stride, "a slot for each step of each group");
    if lanes.len() + size < count * size + SLOT {
        // Part of the last slot is beyond the operand.
        for group in 0..count {
            let lanes: [u32; SLOT] = chunk(lanes, group * size);
            to[group * stride + step * SLOT..][..SLOT].copy_from_slice(&lanes);
        }
        return;
    }
    let (mut lanes, mut slot) = (lanes.as_ptr(), to[step * SLOT..].as_mut_ptr());
    for _ in 0..count {
        prefetch_near(lanes.wrapping_add(ahead).cast());
        prefetch_near(slot.wrapping_add(AHEAD * SLOT).cast());
        // SAFETY: `SLOT` lanes start at each group's first one, as just checked; the copy has a
        // slot for each group and step, as asserted, and is borrowed mutably.
        unsafe { copy_nonoverlapping(lanes, slot, SLOT) };
        lanes = lanes.wrapping_add(size);
        slot = slot.wrapping_add(stride);
    }
}

/// Reads a step's units of a tile that is stored across the depth. Zeros follow the last step.
fn read_across(to: &mut [u32], from: Tile<'_>, unit: Unit, step: usize) {
    let ((source, stride), lanes) = (from.stored(), to.len());
    vectorized!(match (source, unit) {
        (Floats::F16(x), Unit::Single) => {
            prefetch_step(x, (step + AHEAD) * stride, lanes);
            widen_f16(bytemuck::cast_slice_mut(to), &x[step * stride..][..lanes]);
        }
        (Floats::F32(x), _) => read_bf16_across(to, x, from, unit, step),
        (Floats::F16(x), _) => read_bf16_across(to, x, from, unit, step),
        (Floats::Bf16(x), _) => read_bf16_across(to, x, from, unit, step),
    });
}

/// Reads like [`read_across`], rounded to bf16. `x` are the elements of `from`.
#[inline(always)]
fn read_bf16_across<T: AsBf16>(to: &mut [u32], x: &[T], from: Tile<'_>, unit: Unit, step: usize) {
    let ((lanes, depth), (_, stride)) = (from.shape(), from.stored());
    let ahead = if unit == Unit::Pair { 2 * AHEAD } else { AHEAD };
    let row = |row: usize| {
        prefetch_step(x, (row + ahead) * stride, lanes);
        if row < depth { &x[row * stride..][..lanes] } else { &[] }
    };
    let (upper, lower) = match unit {
        Unit::Single => (row(step), None),
        Unit::Swapped => (row(step ^ 1), None),
        Unit::Pair => (row(2 * step + 1), Some(row(2 * step))),
    };
    for (to, x) in to.iter_mut().zip(upper) {
        *to = x.high_half();
    }
    to[upper.len()..].fill(0);
    for (to, x) in to.iter_mut().zip(lower.unwrap_or_default()) {
        *to |= x.high_half() >> 16;
    }
}

/// A float that is rounded to bf16.
trait AsBf16: Copy + Default {
    /// Returns the bf16 in the high half, zeros in the low one: the bits of the same f32.
    fn high_half(self) -> u32;
}

impl AsBf16 for bf16 {
    #[inline(always)]
    fn high_half(self) -> u32 {
        u32::from(self.to_bits()) << 16
    }
}

impl AsBf16 for f32 {
    #[inline(always)]
    fn high_half(self) -> u32 {
        rounded_bits(self) & 0xffff_0000
    }
}

impl AsBf16 for f16 {
    #[inline(always)]
    fn high_half(self) -> u32 {
        f32::from(self).high_half()
    }
}

/// Number of steps by which prefetching runs ahead of copying: a core does not prefetch short rows,
/// nor slots that lie a group apart, by itself.
const AHEAD: usize = 8;

/// Prefetches the `lanes` elements from `first` on, which need not be there.
#[inline(always)]
fn prefetch_step<T>(x: &[T], first: usize, lanes: usize) {
    let first = x.as_ptr().wrapping_add(first).cast::<u8>();
    for at in (0..lanes * size_of::<T>()).step_by(LINE) {
        prefetch_near(first.wrapping_add(at));
    }
}

/// Returns the elements from `at` on, and zeros after the last one.
#[inline(always)]
fn chunk<const LEN: usize>(x: &[u32], at: usize) -> [u32; LEN] {
    let rest = x.get(at..).unwrap_or_default();
    let mut chunk = [0; LEN];
    let there = rest.len().min(LEN);
    chunk[..there].copy_from_slice(&rest[..there]);
    chunk
}

/// Reads one lane's units, from unit `first` on, of a tile that is stored along the depth.
fn read_along(to: &mut [u32], from: Tile<'_>, unit: Unit, lane: usize, first: usize) {
    let depth = from.shape().1;
    let (source, stride) = from.stored();
    let row = lane * stride..lane * stride + depth;
    vectorized!(match (source, unit) {
        (Floats::F32(x), Unit::Single) => {
            for (to, x) in to.iter_mut().zip(&x[row][first..]) {
                *to = x.to_bits();
            }
        }
        (Floats::F16(x), Unit::Single) => {
            let x = &x[row][first..];
            for (to, x) in to.chunks_mut(GAP).zip(x.chunks(GAP)) {
                let mut wide = [0.0; GAP];
                widen_f16(&mut wide[..to.len()], &x[..to.len()]);
                for (to, x) in to.iter_mut().zip(wide) {
                    *to = x.to_bits();
                }
            }
        }
        (Floats::F32(x), _) => read_bf16_along(to, &x[row], unit, first),
        (Floats::F16(x), _) => read_bf16_along(to, &x[row], unit, first),
        (Floats::Bf16(x), _) => read_bf16_along(to, &x[row], unit, first),
    });
}

/// Reads like [`read_along`], rounded to bf16.
#[inline(always)]
fn read_bf16_along<T: AsBf16>(to: &mut [u32], row: &[T], unit: Unit, first: usize) {
    let odd = |row: &[T]| row.chunks_exact(2).remainder().first().map_or(0, |last| last.high_half());
    match unit {
        Unit::Single => {
            for (to, x) in to.iter_mut().zip(&row[first..]) {
                *to = x.high_half();
            }
        }
        Unit::Pair => {
            let row = &row[2 * first..];
            for (to, pair) in to.iter_mut().zip(row.chunks_exact(2)) {
                *to = pair[0].high_half() >> 16 | pair[1].high_half();
            }
            if let Some(last) = to.get_mut(row.len() / 2) {
                *last = odd(row) >> 16;
            }
        }
        Unit::Swapped => {
            let row = &row[first..];
            for (to, pair) in to.chunks_exact_mut(2).zip(row.chunks_exact(2)) {
                (to[0], to[1]) = (pair[1].high_half(), pair[0].high_half());
            }
            if let Some([second, first]) = to.get_mut(row.len() & !1..).and_then(|to| to.first_chunk_mut()) {
                (*second, *first) = (0, odd(row));
            }
        }
    }
}

/// Side of the squares that are transposed in registers.
const SIDE: usize = 4;

/// Steps that are copied at a time, so that a group's part of the copy stays in the nearest cache.
const UNITS: usize = 64;

/// Copies a tile that is stored along the depth: every step's lanes are a column of it.
fn turn(to: &mut [u32], from: Tile<'_>, unit: Unit, groups: Groups, steps: usize) {
    let ((source, stride), slot) = (from.stored(), groups.slot);
    let mut lines = [[0; UNITS]; SIDE];
    vectorized!(for (lanes, to) in groups.iter().zip(to.chunks_mut(groups.stride)) {
        for left in (0..steps).step_by(UNITS) {
            let units = UNITS.min(steps - left);
            for top in (0..lanes.len()).step_by(SIDE) {
                // What follows a group's lanes in a slot is unspecified: the last lane again.
                let four = from_fn(|i| (lanes.start + top + i).min(lanes.end - 1));
                let rows = match (source, unit) {
                    (Floats::F32(x), Unit::Single) => {
                        four.map(|lane| bytemuck::cast_slice(&x[lane * stride + left..][..units]))
                    }
                    _ => {
                        for (line, lane) in lines.iter_mut().zip(four) {
                            read_along(&mut line[..units], from, unit, lane, left);
                        }
                        lines.each_ref().map(|line| &line[..units])
                    }
                };
                turn_rows(&mut to[left * slot + top..], slot, rows);
            }
        }
    });
}

/// Writes `to[unit · slot + i] = rows[i][unit]`.
#[inline(always)]
fn turn_rows(to: &mut [u32], slot: usize, rows: [&[u32]; SIDE]) {
    let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] = rows.map(|row| row.as_chunks::<SIDE>());
    let squares = a.iter().zip(b).zip(c).zip(d);
    for (to, (((a, b), c), d)) in to.chunks_mut(SIDE * slot).zip(squares) {
        let to = &mut to[..(SIDE - 1) * slot + SIDE];
        for (unit, column) in turn_square([*a, *b, *c, *d]).iter().enumerate() {
            to[unit * slot..][..SIDE].copy_from_slice(column);
        }
    }
    for unit in 0..a_rest.len() {
        let column = [a_rest, b_rest, c_rest, d_rest].map(|row| row[unit]);
        to[(a.len() * SIDE + unit) * slot..][..SIDE].copy_from_slice(&column);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn turn_square(square: [[u32; SIDE]; SIDE]) -> [[u32; SIDE]; SIDE] {
    use std::arch::x86_64::{__m128, _MM_TRANSPOSE4_PS};
    let [mut a, mut b, mut c, mut d]: [__m128; SIDE] = bytemuck::cast(square);
    // SAFETY: every x86-64 has these instructions, and the function touches only its arguments.
    unsafe { _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d) };
    bytemuck::cast([a, b, c, d])
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn turn_square(square: [[u32; SIDE]; SIDE]) -> [[u32; SIDE]; SIDE] {
    from_fn(|j| from_fn(|i| square[i][j]))
}
