//! The CPU's kernels behind the trait: one function each, in the module of its name.

use super::{
    Cpu, adamw, attention, cross_entropy, elementwise, embedding, matmul, norm, reduction, rope, swiglu,
};
use crate::Result;
use crate::kernels::{AdamW, Attention, Kernels, Matrix, MatrixMut, Rope, RowShape, Write};
use crate::view::{View, ViewMut};

impl Kernels for Cpu {
    fn matmul(&self, out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, write: Write) -> Result<()> {
        matmul::matmul(self, out, a, b, write)
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
        norm::rms_norm(self, out, inverse_rms, x, weight, shape, eps)
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
        norm::rms_norm_backward(self, dx, dweight, write, dout, x, weight, inverse_rms, shape)
    }

    fn rope(&self, qkv: ViewMut<'_>, rope: Rope) -> Result<()> {
        rope::rope(self, qkv, rope)
    }

    fn attention(
        &self,
        out: ViewMut<'_>,
        log_sum: ViewMut<'_>,
        qkv: View<'_>,
        shape: Attention,
    ) -> Result<()> {
        attention::attention(self, out, log_sum, qkv, shape)
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
        attention::attention_backward(self, dqkv, dout, qkv, out, log_sum, shape)
    }

    fn swiglu(&self, out: ViewMut<'_>, gate_up: View<'_>, shape: RowShape) -> Result<()> {
        swiglu::swiglu(self, out, gate_up, shape)
    }

    fn swiglu_backward(
        &self,
        dgate_up: ViewMut<'_>,
        dout: View<'_>,
        gate_up: View<'_>,
        shape: RowShape,
    ) -> Result<()> {
        swiglu::swiglu_backward(self, dgate_up, dout, gate_up, shape)
    }

    fn embedding(&self, out: ViewMut<'_>, table: View<'_>, ids: View<'_>, shape: RowShape) -> Result<()> {
        embedding::embedding(self, out, table, ids, shape)
    }

    fn embedding_backward(
        &self,
        dtable: ViewMut<'_>,
        write: Write,
        dout: View<'_>,
        ids: View<'_>,
        shape: RowShape,
    ) -> Result<()> {
        embedding::embedding_backward(self, dtable, write, dout, ids, shape)
    }

    fn cross_entropy(
        &self,
        losses: ViewMut<'_>,
        logits: ViewMut<'_>,
        targets: View<'_>,
        gradient_scale: f32,
        shape: RowShape,
    ) -> Result<()> {
        cross_entropy::cross_entropy(self, losses, logits, targets, gradient_scale, shape)
    }

    fn add(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        elementwise::add(self, out, x)
    }

    fn copy(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        elementwise::copy(self, out, x)
    }

    fn fill(&self, out: ViewMut<'_>, value: f32) -> Result<()> {
        elementwise::fill(out, value)
    }

    fn adamw(
        &self,
        master: ViewMut<'_>,
        momentum: ViewMut<'_>,
        variance: ViewMut<'_>,
        gradients: View<'_>,
        update: AdamW,
    ) -> Result<()> {
        adamw::adamw(self, master, momentum, variance, gradients, update)
    }

    fn adamw_rounding(
        &self,
        parameters: ViewMut<'_>,
        master: ViewMut<'_>,
        momentum: ViewMut<'_>,
        variance: ViewMut<'_>,
        gradients: View<'_>,
        update: AdamW,
    ) -> Result<()> {
        adamw::adamw_rounding(self, parameters, master, momentum, variance, gradients, update)
    }

    fn max_magnitude(&self, x: View<'_>) -> Result<f32> {
        reduction::max_magnitude(self, x)
    }

    fn sum_of_squares(&self, x: View<'_>, exponent: i32) -> Result<u128> {
        reduction::sum_of_squares(self, x, exponent)
    }
}
