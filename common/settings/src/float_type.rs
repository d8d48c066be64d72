//! Element types by the names that flags and reports have for them.

use clap::ValueEnum;
use device::DType;

/// A type of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FloatType {
    /// 32 bits.
    Fp32,
    /// 16 bits: the range of fp32, 8 bits of precision.
    Bf16,
    /// 16 bits: 6e-8 to 65504, 11 bits of precision; the loss is scaled to make use of that range.
    Fp16,
}

impl FloatType {
    /// The element type.
    pub const fn dtype(self) -> DType {
        match self {
            FloatType::Fp32 => DType::F32,
            FloatType::Bf16 => DType::Bf16,
            FloatType::Fp16 => DType::F16,
        }
    }
}

/// The element type that flags and reports call `name`.
pub fn dtype(name: &str) -> Option<DType> {
    FloatType::from_str(name, false).ok().map(FloatType::dtype)
}

/// How flags and reports call an element type.
pub fn name(dtype: DType) -> &'static str {
    let all = [FloatType::Fp32, FloatType::Bf16, FloatType::Fp16];
    match all.into_iter().find(|float| float.dtype() == dtype) {
        Some(FloatType::Bf16) => "bf16",
        Some(FloatType::Fp16) => "fp16",
        _ => "fp32",
    }
}
