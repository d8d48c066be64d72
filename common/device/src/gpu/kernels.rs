//! The GPU's kernels behind the trait: one launch or a few per operation.

use super::GpuKernels;
use super::transfer::transfer;
use crate::Result;
use crate::cuda::kernels::{self, Operand};
use crate::cuda::{RESULT, RESULTS};
use crate::kernels::{Kernels, max_or_nan};
use crate::operations::{AdamWUpdate, Addend, Matmul, Operation, Requirement, Visitor};
use crate::view::{View, ViewMut};

impl Kernels for GpuKernels {
    fn compute(&self, operation: Operation<View<'_>, ViewMut<'_>>) -> Result<()> {
        match operation {
            Operation::Matmul(product) => self.product(product),
            operation if is_on_host(&operation) => self.host.compute(operation),
            Operation::Copy { out, x, .. } => transfer(&self.runtime, out, x),
            operation => {
                let kernel = operation.name();
                self.launch(operation.visit(&mut Addresses { kernel })?)
            }
        }
    }

    fn max_magnitude(&self, all: &[View<'_>]) -> Result<f32> {
        let (here, there) = by_memory(all);
        Ok(max_or_nan(self.host.max_magnitude(&here)?, self.largest_of(&there)?))
    }

    fn sum_of_squares(&self, all: &[View<'_>], exponent: i32) -> Result<u128> {
        let (here, there) = by_memory(all);
        Ok(self.host.sum_of_squares(&here, exponent)? + self.squares_of(&there, exponent)?)
    }
}

/// Returns the tensors that lie in main memory, and those that lie on the GPU.
fn by_memory<'a>(all: &[View<'a>]) -> (Vec<View<'a>>, Vec<View<'a>>) {
    all.iter().cloned().partition(View::on_host)
}

/// True for an element-wise operation whose operands are in main memory.
fn is_on_host(operation: &Operation<View<'_>, ViewMut<'_>>) -> bool {
    match operation {
        Operation::Add { out, x, .. }
        | Operation::Copy { out, x, .. }
        | Operation::Convert { out, x, .. } => out.on_host() && x.on_host(),
        Operation::Fill { out, .. } => out.on_host(),
        Operation::AdamW(AdamWUpdate { parameters, master, momentum, variance, gradients, .. }) => {
            let states = [master, momentum, variance].into_iter().chain(parameters);
            gradients.on_host() && states.into_iter().all(|state| state.on_host())
        }
        _ => false,
    }
}

impl GpuKernels {
    /// Queues a product. The library reads a base in place of the output, so that nothing is
    /// copied.
    fn product(&self, product: Matmul<View<'_>, ViewMut<'_>>) -> Result<()> {
        let (depth, Matmul { mut out, a, b, mut addend, rounding }) = (product.depth(), product);
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
        let operation = Operation::Matmul(Matmul { out, a, b, addend, rounding });
        self.launch(operation.visit(&mut Addresses { kernel: "matmul" })?)
    }

    fn launch(&self, operation: Operation<Operand, Operand>) -> Result<()> {
        let runtime = &*self.runtime;
        match operation {
            Operation::Matmul(product) => runtime.product(product),
            Operation::Attention(arguments) => {
                if self.attention_by_products {
                    kernels::attention_by_products(runtime, arguments)
                } else {
                    kernels::attention(runtime, arguments)
                }
            }
            Operation::AttentionBackward(arguments) => {
                if self.attention_by_products {
                    kernels::attention_backward_by_products(runtime, arguments)
                } else {
                    kernels::attention_backward(runtime, arguments)
                }
            }
            Operation::Rope { qkv, rope } => {
                kernels::rope(runtime, qkv, self.rotations.table(runtime, &rope)?, rope)
            }
            Operation::RmsNorm(arguments) => kernels::rms_norm(runtime, arguments),
            Operation::RmsNormBackward(arguments) => kernels::rms_norm_backward(runtime, arguments),
            Operation::Swiglu(arguments) => kernels::swiglu(runtime, arguments),
            Operation::SwigluBackward(arguments) => kernels::swiglu_backward(runtime, arguments),
            Operation::Embedding(arguments) => kernels::embedding(runtime, arguments),
            Operation::EmbeddingBackward(arguments) => kernels::embedding_backward(runtime, arguments),
            Operation::CrossEntropy(arguments) => kernels::cross_entropy(runtime, arguments),
            Operation::AdamW(arguments) => kernels::adamw(runtime, arguments),
            Operation::Add { out, x, len } => kernels::add(runtime, out, x, len),
            Operation::Copy { out, x, len } | Operation::Convert { out, x, len } => {
                kernels::convert(runtime, out, x, len)
            }
            Operation::Fill { out, value, len } => kernels::fill(runtime, out, value, len),
        }
    }

    /// Returns the largest magnitude of all tensors, which lie on the GPU; NaN if any element is
    /// NaN, 0 if there are none.
    fn largest_of(&self, all: &[View<'_>]) -> Result<f32> {
        let launch = |result, x: Operand, len| kernels::max_magnitude(&*self.runtime, result, x, len);
        let results = self.reduce("max_magnitude", all, launch)?;
        let value = |[a, b, c, d, ..]: [u8; RESULT]| f32::from_le_bytes([a, b, c, d]);
        Ok(results.into_iter().map(value).fold(0.0, max_or_nan))
    }

    /// Returns the sum over all tensors, which lie on the GPU, of what
    /// [`crate::Kernels::sum_of_squares`] gives.
    fn squares_of(&self, all: &[View<'_>], exponent: i32) -> Result<u128> {
        let launch =
            |result, x: Operand, len| kernels::sum_of_squares(&*self.runtime, result, x, exponent, len);
        Ok(self.reduce("sum_of_squares", all, launch)?.into_iter().map(u128::from_le_bytes).sum())
    }

    /// Returns one result per tensor. Reductions are queued as long as there is room for results,
    /// which are then read together.
    fn reduce(
        &self,
        kernel: &'static str,
        all: &[View<'_>],
        launch: impl Fn(u64, Operand, usize) -> Result<()>,
    ) -> Result<Vec<[u8; RESULT]>> {
        let mut results = vec![[0; RESULT]; all.len()];
        for (views, results) in all.chunks(RESULTS).zip(results.chunks_mut(RESULTS)) {
            for (index, view) in views.iter().enumerate() {
                let place = self.runtime.result + (index * RESULT) as u64;
                let x = Operand { pointer: view.address(kernel, "x")?, dtype: view.dtype() };
                launch(place, x, view.len())?;
            }
            self.runtime.download(self.runtime.result, results.as_flattened_mut())?;
        }
        Ok(results)
    }
}

/// Finds the addresses of the operands of one kernel; refuses those that lie in main memory.
struct Addresses {
    kernel: &'static str,
}

impl<'r, 'w> Visitor<View<'r>, ViewMut<'w>> for Addresses {
    type Read = Operand;
    type Written = Operand;

    fn read(&mut self, operand: Requirement, data: View<'r>) -> Result<Operand> {
        Ok(Operand { pointer: data.address(self.kernel, operand.name)?, dtype: data.dtype() })
    }

    fn write(&mut self, operand: Requirement, data: ViewMut<'w>) -> Result<Operand> {
        Ok(Operand { pointer: data.address(self.kernel, operand.name)?, dtype: data.dtype() })
    }
}
