//! Element types.

use half::{bf16, f16};

/// The element type of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// bfloat16: 8 exponent bits, 7 mantissa bits.
    Bf16,
    /// IEEE half: 5 exponent bits, 10 mantissa bits.
    F16,
    /// Unsigned 32-bit integer: token ids.
    U32,
}

impl DType {
    /// Returns the number of bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::F32 | DType::U32 => 4,
            DType::Bf16 | DType::F16 => 2,
        }
    }
}

events::labels! {
    DType { F32 => "f32", Bf16 => "bf16", F16 => "f16", U32 => "u32" }
}

/// A Rust type that a buffer can hold.
pub trait Element: bytemuck::Pod {
    /// The matching [`DType`].
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
}
impl Element for f16 {
    const DTYPE: DType = DType::F16;
}
impl Element for u32 {
    const DTYPE: DType = DType::U32;
}
