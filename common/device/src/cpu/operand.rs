//! Operands of the CPU's kernels: floats of any width, read and written as f32.
//!
//! An f32 operand is used in place. A 16-bit one is widened into scratch memory, exactly, and
//! narrowed from it, to nearest even. So each kernel is written once, in f32.

use super::prefetch::prefetch;
use super::workers::Split;
use crate::DType;
use crate::convert::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
use crate::view::{View, ViewMut};
use half::{bf16, f16};
use std::ops::Range;

/// Evaluates an expression with the data of a `Floats`, a `FloatsMut` or a `TileMut` of any width.
/// After `as` stands the type that the results become.
macro_rules! each_width {
    ($data:expr, $of:ident($x:ident) => $work:expr) => {
        match $data {
            $of::F32($x) => $work,
            $of::Bf16($x) => $work,
            $of::F16($x) => $work,
        }
    };
    ($data:expr, $of:ident($x:ident) as $to:ident => $work:expr) => {
        match $data {
            $of::F32($x) => $to::F32($work),
            $of::Bf16($x) => $to::Bf16($work),
            $of::F16($x) => $to::F16($work),
        }
    };
}
pub(super) use each_width;

/// Floats to read.
#[derive(Clone, Copy)]
pub(super) enum Floats<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    F16(&'a [f16]),
}

impl<'a> Floats<'a> {
    /// Returns the elements `range` as f32; `scratch` holds at least as many.
    #[inline(always)]
    pub(super) fn read<'s>(&self, range: Range<usize>, scratch: &'s mut [f32]) -> &'s [f32]
    where
        'a: 's,
    {
        let len = range.len();
        match self {
            Floats::F32(x) => return &x[range],
            Floats::Bf16(x) => widen_bf16(&mut scratch[..len], &x[range]),
            Floats::F16(x) => widen_f16(&mut scratch[..len], &x[range]),
        }
        &scratch[..len]
    }

    /// Returns the floats of `dtype` that `bytes` are.
    ///
    /// # Panics
    /// If the type is not a float's, or the bytes are not aligned to its elements.
    pub(super) fn from_bytes(dtype: DType, bytes: &'a [u8]) -> Self {
        match dtype {
            DType::F32 => Floats::F32(bytemuck::cast_slice(bytes)),
            DType::Bf16 => Floats::Bf16(bytemuck::cast_slice(bytes)),
            DType::F16 => Floats::F16(bytemuck::cast_slice(bytes)),
            DType::U32 => unreachable!("{FLOATS}"),
        }
    }

    /// Prefetches elements `range`, which need not be there.
    #[inline(always)]
    pub(super) fn prefetch(&self, range: Range<usize>) {
        let first = self.bytes().as_ptr().wrapping_add(range.start * self.size());
        prefetch(first, range.len() * self.size());
    }

    /// Returns the elements from `start` on; none if there are no more.
    #[inline(always)]
    pub(super) fn starting_at(self, start: usize) -> Self {
        each_width!(self, Floats(x) as Floats => x.get(start..).unwrap_or_default())
    }

    /// Returns the elements' bytes.
    pub(super) fn bytes(self) -> &'a [u8] {
        each_width!(self, Floats(x) => bytemuck::cast_slice(x))
    }

    /// Returns the size of an element in bytes.
    pub(super) fn size(self) -> usize {
        match self {
            Floats::F32(_) => size_of::<f32>(),
            Floats::Bf16(_) | Floats::F16(_) => size_of::<bf16>(),
        }
    }
}

/// Floats to write.
pub(crate) enum FloatsMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [bf16]),
    F16(&'a mut [f16]),
}

impl<'a> FloatsMut<'a> {
    /// Passes elements `range` to `f`, which overwrites all of them; `scratch` holds at least as
    /// many.
    #[inline(always)]
    pub(super) fn write(&mut self, range: Range<usize>, scratch: &mut [f32], f: impl FnOnce(&mut [f32])) {
        let scratch = match self {
            FloatsMut::F32(x) => return f(&mut x[range]),
            _ => &mut scratch[..range.len()],
        };
        f(scratch);
        self.store(range, scratch);
    }

    /// Passes elements `range` to `f`, which may change them; `scratch` holds at least as many.
    #[inline(always)]
    pub(super) fn update(&mut self, range: Range<usize>, scratch: &mut [f32], f: impl FnOnce(&mut [f32])) {
        let scratch = match self {
            FloatsMut::F32(x) => return f(&mut x[range]),
            _ => &mut scratch[..range.len()],
        };
        self.as_floats().read(range.clone(), scratch);
        f(scratch);
        self.store(range, scratch);
    }

    /// Returns the elements, to read.
    pub(super) fn as_floats(&self) -> Floats<'_> {
        each_width!(self, FloatsMut(x) as Floats => x)
    }

    /// Zeroes every element.
    pub(super) fn zero(&mut self) {
        each_width!(self, FloatsMut(x) => x.fill(Default::default()));
    }

    /// Elements `range` become `from`, rounded.
    #[inline(always)]
    pub(super) fn store(&mut self, range: Range<usize>, from: &[f32]) {
        match self {
            FloatsMut::F32(x) => x[range].copy_from_slice(from),
            FloatsMut::Bf16(x) => narrow_bf16(&mut x[range], from),
            FloatsMut::F16(x) => narrow_f16(&mut x[range], from),
        }
    }
}

impl Split for FloatsMut<'_> {
    fn cut(self, len: usize) -> (Self, Self) {
        match self {
            FloatsMut::F32(x) => both(x.cut(len), FloatsMut::F32),
            FloatsMut::Bf16(x) => both(x.cut(len), FloatsMut::Bf16),
            FloatsMut::F16(x) => both(x.cut(len), FloatsMut::F16),
        }
    }
}

/// Wraps two parts of data of one type.
pub(super) fn both<T, U>((a, b): (T, T), wrap: impl Fn(T) -> U) -> (U, U) {
    (wrap(a), wrap(b))
}

/// The panic of a view of indices where floats are needed, which the operation's check excludes.
const FLOATS: &str = "floats, as the operation's check demands";

impl<'a> From<View<'a>> for Floats<'a> {
    fn from(view: View<'a>) -> Self {
        Floats::from_bytes(view.dtype(), view.bytes())
    }
}

impl<'a> From<ViewMut<'a>> for FloatsMut<'a> {
    fn from(view: ViewMut<'a>) -> Self {
        match view.dtype() {
            DType::F32 => FloatsMut::F32(view.into_mut_slice()),
            DType::Bf16 => FloatsMut::Bf16(view.into_mut_slice()),
            DType::F16 => FloatsMut::F16(view.into_mut_slice()),
            DType::U32 => unreachable!("{FLOATS}"),
        }
    }
}
