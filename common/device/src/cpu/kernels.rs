//! The CPU's kernels.

use super::Cpu;
use crate::Result;
use crate::buffer::{View, ViewMut};
use crate::kernels::{AdamW, Attention, Kernels, Matrix, MatrixMut, Rope, RowShape, Write};

#[allow(unused_variables, clippy::too_many_arguments)]
impl Kernels for Cpu {
    fn matmul(&self, out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, write: Write) -> Result<()> {
        todo!()
    }

    fn rms_norm(
        &self,
        out: ViewMut<'_>,
        inverse_rms: ViewMut<'_>,
        x: View<'_>,
        weight: View<'_>,
        shape: RowShape,
        eps: f32,
    ) -> Result<()> {
        todo!()
    }

    fn rms_norm_backward(
        &self,
        dx: ViewMut<'_>,
        dweight: ViewMut<'_>,
        write: Write,
        dout: View<'_>,
        x: View<'_>,
        weight: View<'_>,
        inverse_rms: View<'_>,
        shape: RowShape,
    ) -> Result<()> {
        todo!()
    }

    fn rope(&self, qkv: ViewMut<'_>, rope: Rope) -> Result<()> {
        todo!()
    }

    fn attention(
        &self,
        out: ViewMut<'_>,
        log_sum: ViewMut<'_>,
        qkv: View<'_>,
        shape: Attention,
    ) -> Result<()> {
        todo!()
    }

    fn attention_backward(
        &self,
        dqkv: ViewMut<'_>,
        dout: View<'_>,
        qkv: View<'_>,
        out: View<'_>,
        log_sum: View<'_>,
        shape: Attention,
    ) -> Result<()> {
        todo!()
    }

    fn swiglu(&self, out: ViewMut<'_>, gate_up: View<'_>, shape: RowShape) -> Result<()> {
        todo!()
    }

    fn swiglu_backward(
        &self,
        dgate_up: ViewMut<'_>,
        dout: View<'_>,
        gate_up: View<'_>,
        shape: RowShape,
    ) -> Result<()> {
        todo!()
    }

    fn embedding(&self, out: ViewMut<'_>, table: View<'_>, ids: View<'_>, shape: RowShape) -> Result<()> {
        todo!()
    }

    fn embedding_backward(
        &self,
        dtable: ViewMut<'_>,
        write: Write,
        dout: View<'_>,
        ids: View<'_>,
        shape: RowShape,
    ) -> Result<()> {
        todo!()
    }

    fn cross_entropy(
        &self,
        losses: ViewMut<'_>,
        logits: ViewMut<'_>,
        targets: View<'_>,
        gradient_scale: f32,
        shape: RowShape,
    ) -> Result<()> {
        todo!()
    }

    fn add(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        todo!()
    }

    fn copy(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        todo!()
    }

    fn fill(&self, out: ViewMut<'_>, value: f32) -> Result<()> {
        todo!()
    }

    fn adamw(
        &self,
        master: ViewMut<'_>,
        momentum: ViewMut<'_>,
        variance: ViewMut<'_>,
        gradients: View<'_>,
        update: AdamW,
    ) -> Result<()> {
        todo!()
    }

    fn max_magnitude(&self, x: View<'_>) -> Result<f32> {
        todo!()
    }

    fn sum_of_squares(&self, x: View<'_>, exponent: i32) -> Result<u128> {
        todo!()
    }
}
