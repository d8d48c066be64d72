//! The CPU's kernels behind the trait: one function per operation, in the module of its name.

use super::{
    Cpu, adamw, attention, cross_entropy, elementwise, embedding, matmul, norm, reduction, rope, swiglu,
};
use crate::Result;
use crate::kernels::Kernels;
use crate::operations::Operation;
use crate::view::{View, ViewMut};

impl Kernels for Cpu {
    fn compute(&self, operation: Operation<View<'_>, ViewMut<'_>>) -> Result<()> {
        match operation {
            Operation::Matmul(arguments) => matmul::matmul(self, arguments),
            Operation::Attention(arguments) => attention::attention(self, arguments),
            Operation::AttentionBackward(arguments) => attention::attention_backward(self, arguments),
            Operation::Rope { qkv, rope } => rope::rope(self, qkv, rope),
            Operation::RmsNorm(arguments) => norm::rms_norm(self, arguments),
            Operation::RmsNormBackward(arguments) => norm::rms_norm_backward(self, arguments),
            Operation::Swiglu(arguments) => swiglu::swiglu(self, arguments),
            Operation::SwigluBackward(arguments) => swiglu::swiglu_backward(self, arguments),
            Operation::Embedding(arguments) => embedding::embedding(self, arguments),
            Operation::EmbeddingBackward(arguments) => embedding::embedding_backward(self, arguments),
            Operation::CrossEntropy(arguments) => cross_entropy::cross_entropy(self, arguments),
            Operation::AdamW(arguments) => adamw::adamw(self, arguments),
            Operation::Add { out, x, .. } => elementwise::add(self, out, x),
            Operation::Copy { out, x, .. } | Operation::Convert { out, x, .. } => {
                elementwise::copy_or_convert(self, out, x)
            }
            Operation::Fill { out, value, .. } => elementwise::fill(self, out, value),
        }
    }

    fn max_magnitude_of(&self, all: &[View<'_>]) -> Result<f32> {
        reduction::max_magnitude(self, all)
    }

    fn sum_of_squares_of(&self, all: &[View<'_>], exponent: i32) -> Result<u128> {
        reduction::sum_of_squares(self, all, exponent)
    }
}
