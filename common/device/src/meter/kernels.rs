//! Times every kernel, and counts the operations and bytes of each.

use super::{Job, Kind, Meter};
use crate::Result;
use crate::kernels::Kernels;
use crate::operations::{Operation, Requirement, Visitor};
use crate::view::{View, ViewMut};

impl Kernels for Meter {
    fn compute(&self, operation: Operation<View<'_>, ViewMut<'_>>) -> Result<()> {
        let (kind, flops) = (kind(&operation), operation.flops());
        let mut moved = Moved { bytes: 0 };
        let operation = operation.visit(&mut moved)?;
        self.time(Job { kind, flops, bytes: moved.bytes }, |kernels| kernels.compute(operation))
    }

    fn max_magnitude(&self, all: &[View<'_>]) -> Result<f32> {
        self.time(reduction(all), |kernels| kernels.max_magnitude(all))
    }

    fn sum_of_squares(&self, all: &[View<'_>], exponent: i32) -> Result<u128> {
        self.time(reduction(all), |kernels| kernels.sum_of_squares(all, exponent))
    }
}

fn kind<R, W>(operation: &Operation<R, W>) -> Kind {
    match operation {
        Operation::Matmul(_) => Kind::Matmul,
        Operation::Attention(_) | Operation::AttentionBackward(_) => Kind::Attention,
        Operation::Rope { .. } => Kind::Rope,
        Operation::RmsNorm(_) | Operation::RmsNormBackward(_) => Kind::Norm,
        Operation::Swiglu(_) | Operation::SwigluBackward(_) => Kind::Swiglu,
        Operation::Embedding(_) | Operation::EmbeddingBackward(_) => Kind::Embedding,
        Operation::CrossEntropy(_) => Kind::CrossEntropy,
        Operation::AdamW(_) => Kind::AdamW,
        Operation::Add { .. }
        | Operation::Copy { .. }
        | Operation::Convert { .. }
        | Operation::Fill { .. } => Kind::Copies,
    }
}

fn reduction(all: &[View<'_>]) -> Job {
    let bytes = all.iter().map(|view| view.len() * view.dtype().size()).sum();
    Job { kind: Kind::GradientNorm, flops: 0, bytes }
}

/// Adds up the bytes that operands move, and returns the operands unchanged.
struct Moved {
    bytes: usize,
}

impl<'r, 'w> Visitor<View<'r>, ViewMut<'w>> for Moved {
    type Read = View<'r>;
    type Written = ViewMut<'w>;

    fn read(&mut self, operand: Requirement, data: View<'r>) -> Result<View<'r>> {
        self.bytes += operand.moved * data.dtype().size();
        Ok(data)
    }

    fn write(&mut self, operand: Requirement, data: ViewMut<'w>) -> Result<ViewMut<'w>> {
        self.bytes += operand.moved * data.dtype().size();
        Ok(data)
    }
}
