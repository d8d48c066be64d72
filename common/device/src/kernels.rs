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

/// Defines methods that each ask for one operation.
macro_rules! methods {
    ($($name:ident($arguments:ident) asks for $operation:ident;)+) => {
        $(
            #[doc = concat!("See [`", stringify!($arguments), "`].")]
            fn $name(&self, arguments: $arguments<View<'_>, ViewMut<'_>>) -> Result<()> {
                self.run(Operation::$operation(arguments))
            }
        )+
    };
}

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

    /// Returns the largest magnitude in tensors, wherever they lie; NaN if any element is NaN, 0 if
    /// there are none. On a GPU the host waits once for each 4,096 of them.
    fn max_magnitude(&self, all: &[View<'_>]) -> Result<f32>;

    /// `Σ round((x · 2^−exponent)² · 2^48)` over tensors, wherever they lie; exact and so
    /// independent of how a tensor is cut. `exponent` must make every `|x · 2^−exponent| < 2`.
    /// On a GPU the host waits once for each 4,096 of them.
    fn sum_of_squares(&self, all: &[View<'_>], exponent: i32) -> Result<u128>;

    /// Checks an operation, then computes it.
    fn run(&self, operation: Operation<View<'_>, ViewMut<'_>>) -> Result<()> {
        self.compute(check(operation)?)
    }

    methods! {
        product(Matmul) asks for Matmul;
        rms_norm(RmsNorm) asks for RmsNorm;
        rms_norm_backward(RmsNormBackward) asks for RmsNormBackward;
        attention(Attention) asks for Attention;
        attention_backward(AttentionBackward) asks for AttentionBackward;
        swiglu(Swiglu) asks for Swiglu;
        swiglu_backward(SwigluBackward) asks for SwigluBackward;
        embedding(Embedding) asks for Embedding;
        embedding_backward(EmbeddingBackward) asks for EmbeddingBackward;
        cross_entropy(CrossEntropy) asks for CrossEntropy;
        adamw(AdamWUpdate) asks for AdamW;
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

    /// Rotates the query and key heads of packed projections in place.
    fn rope(&self, qkv: ViewMut<'_>, rope: Rope) -> Result<()> {
        self.run(Operation::Rope { qkv, rope })
    }

    /// `out += x`.
    fn add(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        let len = out.len();
        self.run(Operation::Add { out, x, len })
    }

    /// `out = x`, converting between element types.
    fn copy(&self, mut out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        let len = out.len();
        out.note_largest(x.largest_index());
        self.run(if out.dtype() == x.dtype() {
            Operation::Copy { out, x, len }
        } else {
            Operation::Convert { out, x, len }
        })
    }

    /// `out = value`.
    fn fill(&self, out: ViewMut<'_>, value: f32) -> Result<()> {
        let len = out.len();
        self.run(Operation::Fill { out, value, len })
    }
}

/// Returns the larger of two numbers, or NaN if one is.
pub fn max_or_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }
}
