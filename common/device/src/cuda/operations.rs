//! The GPU's kernels behind the trait: the launches of [`super::kernels`].
//!
//! Launches return at once; only a number for the host is waited for. The CPU's kernels compute element-wise operations
//! whose operands lie in main memory.

use super::kernels::{self, Operand};
use super::matmul::Onto;
use super::operand::Addresses;
use super::runtime::Runtime;
use crate::Result;
use crate::kernels::Kernels;
use crate::operations::{Addend, Matmul, Operation};
use crate::view::{View, ViewMut};

impl Kernels for Runtime {
    fn compute(&self, operation: Operation<View<'_>, ViewMut<'_>>) -> Result<()> {
        match operation {
            Operation::Matmul(product) => self.product(product),
            Operation::Copy { out, x, .. } => self.transfer(out, x),
            operation if is_on_host(&operation) => self.host.compute(operation),
            operation => {
                let kernel = operation.name();
                self.launch_operation(operation.visit(&mut Addresses { kernel })?)
            }
        }
    }

    fn max_magnitude_of(&self, all: &[View<'_>]) -> Result<f32> {
        if all.iter().any(View::on_host) {
            return self.host.max_magnitude_of(all);
        }
        self.largest_of(all)
    }

    fn sum_of_squares_of(&self, all: &[View<'_>], exponent: i32) -> Result<u128> {
        if all.iter().any(View::on_host) {
            return self.host.sum_of_squares_of(all, exponent);
        }
        self.squares_of(all, exponent)
    }
}

/// True for an element-wise operation whose operands lie in main memory.
fn is_on_host(operation: &Operation<View<'_>, ViewMut<'_>>) -> bool {
    match operation {
        Operation::Add { out, x, .. } | Operation::Convert { out, x, .. } => out.on_host() && x.on_host(),
        Operation::Fill { out, .. } => out.on_host(),
        Operation::AdamW(update) => update.master.on_host(),
        _ => false,
    }
}

impl Runtime {
    /// The library reads a base where it would read the output, so that nothing is copied.
    fn product(&self, product: Matmul<View<'_>, ViewMut<'_>>) -> Result<()> {
        let (depth, Matmul { mut out, a, b, mut addend }) = (product.depth(), product);
        if let Addend::Base(base) = &addend
            && (depth == 0 || base.on_host() || base.dtype() != out.data.dtype())
        {
            self.copy(out.data.reborrow(), base.clone())?;
            addend = Addend::Out;
        }
        if out.rows == 0 || out.columns == 0 {
            return Ok(());
        }
        if depth == 0 {
            return if matches!(addend, Addend::Zero) { self.fill(out.data, 0.0) } else { Ok(()) };
        }
        let operation = Operation::Matmul(Matmul { out, a, b, addend });
        self.launch_operation(operation.visit(&mut Addresses { kernel: "matmul" })?)
    }

    fn launch_operation(&self, operation: Operation<Operand, Operand>) -> Result<()> {
        match operation {
            Operation::Matmul(Matmul { out, a, b, addend }) => {
                let base = match addend {
                    Addend::Zero => None,
                    Addend::Out => Some(out.data.pointer),
                    Addend::Base(base) => Some(base.pointer),
                };
                self.gpu.context.enter()?;
                self.blas.multiply(&self.compute, Onto { out, base }, a, b)
            }
            Operation::Attention(arguments) => match self.attention_by_products {
                true => kernels::attention_by_products(self, arguments),
                false => kernels::attention(self, arguments),
            },
            Operation::AttentionBackward(arguments) => match self.attention_by_products {
                true => kernels::attention_backward_by_products(self, arguments),
                false => kernels::attention_backward(self, arguments),
            },
            Operation::Rope { qkv, rope } => {
                kernels::rope(self, qkv, self.rotations.table(self, &rope)?, rope)
            }
            Operation::RmsNorm(arguments) => kernels::rms_norm(self, arguments),
            Operation::RmsNormBackward(arguments) => kernels::rms_norm_backward(self, arguments),
            Operation::Swiglu(arguments) => kernels::swiglu(self, arguments),
            Operation::SwigluBackward(arguments) => kernels::swiglu_backward(self, arguments),
            Operation::Embedding(arguments) => kernels::embedding(self, arguments),
            Operation::EmbeddingBackward(arguments) => kernels::embedding_backward(self, arguments),
            Operation::CrossEntropy(arguments) => kernels::cross_entropy(self, arguments),
            Operation::AdamW(arguments) => kernels::adamw(self, arguments),
            Operation::Add { out, x, len } => kernels::add(self, out, x, len),
            Operation::Copy { out, x, len } | Operation::Convert { out, x, len } => {
                kernels::convert(self, out, x, len)
            }
            Operation::Fill { out, value, len } => kernels::fill(self, out, value, len),
        }
    }
}
