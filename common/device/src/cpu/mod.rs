//! The CPU: main memory, kernels on the rank's own threads.

mod adamw;
mod attention;
mod cross_entropy;
mod elementwise;
mod embedding;
mod grid;
mod math;
mod matmul;
mod non_temporal;
mod norm;
mod operand;
mod prefetch;
mod product;
mod reduction;
mod rope;
mod swiglu;
mod tile;
mod tree_sum;
mod workers;

pub(crate) use elementwise::round_into;
pub(crate) use operand::FloatsMut;
pub(crate) use product::multiply_add_rate;
pub use tree_sum::TreeSum;

use crate::Result;
use crate::kernels::Kernels;
use crate::ledger::Ledger;
use crate::operations::Operation;
use crate::pool::{Pool, Scratch};
use crate::view::{View, ViewMut};
use events::{Class, Place};
use rope::Rotations;
use std::sync::Arc;
use workers::Workers;

/// A rank's share of the CPU.
pub(crate) struct Cpu {
    pub(crate) pool: Arc<Pool>,
    workers: Workers,
    rotations: Rotations,
    /// The rank's ledger, for errors.
    ledger: Ledger,
}

impl Cpu {
    pub(crate) fn new(ledger: Ledger, threads: usize) -> Self {
        Cpu { pool: Arc::default(), workers: Workers::new(threads), rotations: Rotations::default(), ledger }
    }

    /// Returns `len` f32 of unspecified contents for use within a kernel.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::OutOfMemory) if the system gives no more.
    fn scratch(&self, len: usize) -> Result<Scratch> {
        let bytes = len.saturating_mul(size_of::<f32>());
        self.pool
            .scratch(len)
            .ok_or_else(|| self.ledger.exhausted(Place::Device, Class::Workspace, bytes).into())
    }

    /// Returns an empty vector with room for `len` elements, for use within a kernel.
    ///
    /// # Errors
    /// As [`Cpu::scratch`].
    fn vec_with_capacity<T>(&self, len: usize) -> Result<Vec<T>> {
        self.ledger.vec_with_capacity(Place::Device, len)
    }
}

/// One function per operation, in the module of its name.
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

    fn max_magnitude(&self, all: &[View<'_>]) -> Result<f32> {
        reduction::max_magnitude(self, all)
    }

    fn sum_of_squares(&self, all: &[View<'_>], exponent: i32) -> Result<u128> {
        reduction::sum_of_squares(self, all, exponent)
    }
}
