//! Element types of a run: mixed precision (Micikevicius et al., 2018).

use device::{DType, Rounding};

/// The types in which a run stores, multiplies and moves numbers. Sums and optimizer states are f32
/// whatever these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Parameters and activations.
    pub parameters: DType,
    /// Gradients, from backward to the update.
    pub gradients: DType,
    /// Gradients while they are reduced: what travels, and what their sum is rounded to. A sum over
    /// one of several copies of the model states is not rounded: it travels in f32 to be summed
    /// over copies.
    pub reduce: DType,
    /// The rounding of projections before they multiply.
    pub rounding: Rounding,
}

impl Precision {
    /// f32 throughout.
    pub const FP32: Precision = Precision::uniform(DType::F32);

    /// Returns the precision that uses `dtype` for all numbers.
    pub const fn uniform(dtype: DType) -> Self {
        Precision { parameters: dtype, gradients: dtype, reduce: dtype, rounding: Rounding::None }
    }

    /// True if the optimizer keeps f32 master weights next to the parameters; otherwise the
    /// parameters are the master weights.
    pub fn has_masters(&self) -> bool {
        self.parameters != DType::F32
    }

    /// True if gradients are converted before they are reduced.
    pub fn converts_gradients(&self) -> bool {
        self.gradients != self.reduce
    }

    /// True if any numbers are stored, multiplied or moved in bf16.
    pub fn has_bf16(&self) -> bool {
        self.rounding == Rounding::Bf16
            || [self.parameters, self.gradients, self.reduce].contains(&DType::Bf16)
    }

    /// True if projections multiply numbers of 16 bits.
    pub fn multiplies_16_bits(&self) -> bool {
        self.multiplies_bf16() || self.parameters == DType::F16
    }

    /// True if projections multiply in bf16.
    pub fn multiplies_bf16(&self) -> bool {
        self.rounding == Rounding::Bf16 || self.parameters == DType::Bf16
    }

    /// True if the loss must be scaled: f16 cannot represent small gradients.
    pub fn scales_loss(&self) -> bool {
        [self.parameters, self.gradients, self.reduce].contains(&DType::F16)
    }
}
