//! Element types under their names in flags and reports.

use checkpoint::ElementType;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use device::{DType, Rounding};

/// A value of `--precision`: the type in which parameters and activations are kept, and the type in
/// which projections multiply.
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
    /// Returns the type in which parameters and activations are kept.
    pub const fn stored(self) -> DType {
        match self {
            PrecisionName::Fp32 | PrecisionName::Autocast => DType::F32,
            PrecisionName::Bf16 => DType::Bf16,
            PrecisionName::Fp16 => DType::F16,
        }
    }

    /// Returns the type to which projections round before they multiply.
    pub const fn rounding(self) -> Rounding {
        match self {
            PrecisionName::Autocast => Rounding::Bf16,
            _ => Rounding::None,
        }
    }

    /// Returns the precision that keeps elements of `dtype`, a float, and multiplies them
    /// unrounded.
    pub const fn of(dtype: DType) -> Self {
        match dtype {
            DType::Bf16 => PrecisionName::Bf16,
            DType::F16 => PrecisionName::Fp16,
            _ => PrecisionName::Fp32,
        }
    }
}

events::labels! {
    PrecisionName { Fp32 => "fp32", Bf16 => "bf16", Fp16 => "fp16", Autocast => "autocast" }
}

/// Returns the type of files for elements of `dtype`, which is a float.
pub fn stored(dtype: DType) -> ElementType {
    match dtype {
        DType::Bf16 => ElementType::Bf16,
        DType::F16 => ElementType::F16,
        _ => ElementType::F32,
    }
}

/// Returns the element type with this name in flags and reports; `None` if there is none.
pub fn dtype(name: &str) -> Option<DType> {
    let precision = name.parse().ok().filter(|precision| *precision != PrecisionName::Autocast);
    precision.map(PrecisionName::stored)
}

/// Reads the name of an element type.
pub(crate) fn parser() -> impl TypedValueParser<Value = DType> {
    let names = PrecisionName::ALL.into_iter().filter(|name| *name != PrecisionName::Autocast);
    let words = PossibleValuesParser::new(names.filter_map(|name| name.to_possible_value()));
    words.try_map(|word| dtype(&word).ok_or("no element type has this name"))
}

/// Returns the name of an element type in flags and reports.
pub fn name(dtype: DType) -> &'static str {
    PrecisionName::of(dtype).label()
}
