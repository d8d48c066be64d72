//! The kernels that training needs, as one trait.
//!
//! Arithmetic is f32 whatever the storage; a 16-bit result is rounded once, to nearest even. A
//! kernel gives the same bits on every run, and element-wise kernels give an element the same bits
//! wherever a buffer is cut.

use crate::Result;
use crate::check::check;
use crate::operations::{
    AdamWUpdate, Attention, AttentionBackward, CrossEntropy, Embedding, EmbeddingBackward, Matmul, Operation,
    RmsNorm, RmsNormBackward, Rope, Rounding, Swiglu, SwigluBackward,
};
use crate::shapes::{Matrix, Write};
use crate::view::{View, ViewMut};

/// The kernels of a device. Weights, activations and gradients are f32, bf16 or f16; statistics are
/// f32.
///
/// A device implements [`Kernels::compute`] and the two reductions. Every other method asks for one
/// operation, whose operands are checked before the device sees it: they fail if shapes or types do
/// not fit, or if the device fails.
pub trait Kernels: Send + Sync {
    /// Computes an operation whose operands have been checked.
    ///
    /// # Errors
    /// The device's error.
    fn compute(&self, operation: Operation<View<'_>, ViewMut<'_>>) -> Result<()>;

    /// The largest magnitude in tensors, wherever they lie; NaN if any element is NaN, 0 if there
    /// are none. On a GPU the host waits once for all.
    fn max_magnitude_of(&self, all: &[View<'_>]) -> Result<f32>;

    /// `Σ round((x · 2^−exponent)² · 2^48)` over tensors, wherever they lie; exact and so
    /// independent of how a tensor is cut. `exponent` must make every `|x · 2^−exponent| < 2`.
    /// On a GPU the host waits once for all.
    fn sum_of_squares_of(&self, all: &[View<'_>], exponent: i32) -> Result<u128>;

    /// Checks an operation, then computes it.
    fn run(&self, operation: Operation<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.compute(check(operation)?)
    }

    /// See [`Matmul`].
    fn product(&self, arguments: Matmul<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::Matmul(arguments))
    }

    /// `out = a · b` or `out += a · b`, of elements as they are stored, after the transposes that
    /// `a` and `b` ask for. Sums in f32.
    fn matmul(
        &self,
        out: Matrix<ViewMut<'_>>,
        a: Matrix<View<'_>>,
        b: Matrix<View<'_>>,
        write: Write,
    ) -> Result<()> {
        self.product(Matmul { out, a, b, addend: write.into(), rounding: Rounding::None })
    }

    /// See [`RmsNorm`].
    fn rms_norm(&self, arguments: RmsNorm<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::RmsNorm(arguments))
    }

    /// See [`RmsNormBackward`].
    fn rms_norm_backward(&self, arguments: RmsNormBackward<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::RmsNormBackward(arguments))
    }

    /// Rotates the query and key heads of packed projections in place.
    fn rope(&self, qkv: ViewMut<'_>, rope: Rope) -> Result<()> {
        self.run(Operation::Rope { qkv, rope })
    }

    /// See [`Attention`].
    fn attention(&self, arguments: Attention<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::Attention(arguments))
    }

    /// See [`AttentionBackward`].
    fn attention_backward(&self, arguments: AttentionBackward<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::AttentionBackward(arguments))
    }

    /// See [`Swiglu`].
    fn swiglu(&self, arguments: Swiglu<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::Swiglu(arguments))
    }

    /// See [`SwigluBackward`].
    fn swiglu_backward(&self, arguments: SwigluBackward<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::SwigluBackward(arguments))
    }

    /// See [`Embedding`].
    fn embedding(&self, arguments: Embedding<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::Embedding(arguments))
    }

    /// See [`EmbeddingBackward`].
    fn embedding_backward(&self, arguments: EmbeddingBackward<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::EmbeddingBackward(arguments))
    }

    /// See [`CrossEntropy`].
    fn cross_entropy(&self, arguments: CrossEntropy<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::CrossEntropy(arguments))
    }

    /// See [`AdamWUpdate`].
    fn adamw(&self, arguments: AdamWUpdate<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.run(Operation::AdamW(arguments))
    }

    /// `out += x`.
    fn add(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        let len = out.len();
        self.run(Operation::Add { out, x, len })
    }

    /// `out = x`, converting between element types.
    fn copy(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        let len = out.len();
        self.run(match out.dtype() == x.dtype() {
            true => Operation::Copy { out, x, len },
            false => Operation::Convert { out, x, len },
        })
    }

    /// `out = value`.
    fn fill(&self, out: ViewMut<'_>, value: f32) -> Result<()> {
        let len = out.len();
        self.run(Operation::Fill { out, value, len })
    }

    /// [`Kernels::max_magnitude_of`] one tensor.
    fn max_magnitude(&self, x: View<'_>) -> Result<f32> {
        self.max_magnitude_of(&[x])
    }

    /// [`Kernels::sum_of_squares_of`] one tensor.
    fn sum_of_squares(&self, x: View<'_>, exponent: i32) -> Result<u128> {
        self.sum_of_squares_of(&[x], exponent)
    }
}

/// The larger of two numbers, or NaN if one is.
pub fn max_or_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }
}
