//! Element types under their names in flags and reports.

use checkpoint::ElementType;
use clap::ValueEnum;
use device::{DType, Rounding};

/// A floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FloatType {
    /// 32 bits.
    Fp32,
    /// 16 bits: the range of fp32, 8 bits of precision.
    Bf16,
    /// 16 bits: 6e-8 to 65504, 11 bits of precision; the loss is scaled to use that range.
    Fp16,
}

impl FloatType {
    /// Returns the element type.
    pub const fn dtype(self) -> DType {
        match self {
            FloatType::Fp32 => DType::F32,
            FloatType::Bf16 => DType::Bf16,
            FloatType::Fp16 => DType::F16,
        }
    }
}

/// What `--precision` names: how parameters and activations are kept, and what projections
/// multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrecisionName {
    /// 32 bits.
    Fp32,
    /// 16 bits: the range of fp32, 8 bits of precision.
    Bf16,
    /// 16 bits: 6e-8 to 65504, 11 bits of precision; the loss is scaled to use that range.
    Fp16,
    /// 32 bits, rounded to bf16 where projections multiply (PyTorch's autocast).
    Autocast,
}

impl PrecisionName {
    /// Returns the one that is called `label`.
    pub fn named(label: &str) -> Option<Self> {
        PrecisionName::from_str(label, false).ok()
    }

    /// Returns the type in which parameters and activations are kept.
    pub const fn stored(self) -> FloatType {
        match self {
            PrecisionName::Fp32 | PrecisionName::Autocast => FloatType::Fp32,
            PrecisionName::Bf16 => FloatType::Bf16,
            PrecisionName::Fp16 => FloatType::Fp16,
        }
    }

    /// Returns what projections round to before they multiply.
    pub const fn rounding(self) -> Rounding {
        match self {
            PrecisionName::Autocast => Rounding::Bf16,
            _ => Rounding::None,
        }
    }

    /// Returns the name in flags and reports.
    pub fn label(self) -> &'static str {
        match self {
            PrecisionName::Autocast => "autocast",
            _ => name(self.stored().dtype()),
        }
    }
}

/// Returns the type of files for elements of `dtype`, which is a float.
pub fn stored(dtype: DType) -> ElementType {
    match dtype {
        DType::Bf16 => ElementType::Bf16,
        DType::F16 => ElementType::F16,
        _ => ElementType::F32,
    }
}

/// Returns the element type that is called `name` in flags and reports.
pub fn dtype(name: &str) -> Option<DType> {
    FloatType::from_str(name, false).ok().map(FloatType::dtype)
}

/// Returns the name of an element type in flags and reports.
pub fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bf16 => "bf16",
        DType::F16 => "fp16",
        _ => "fp32",
    }
}
