//! Every kernel, timed, with what it computes and moves.

use super::{Job, Kind, Meter};
use crate::kernels::{AdamW, Attention, Kernels, Matrix, MatrixMut, Rope, RowShape, Write};
use crate::view::{View, ViewMut};
use crate::{DType, Result};

fn bytes(view: &View<'_>) -> usize {
    view.len() * view.dtype().size()
}

fn bytes_mut(view: &ViewMut<'_>) -> usize {
    view.len() * view.dtype().size()
}

/// Bytes of what is written, and read first if it is added to.
fn written(bytes: usize, write: Write) -> usize {
    if write == Write::Accumulate { 2 * bytes } else { bytes }
}

fn job(kind: Kind, bytes: usize) -> Job {
    Job { kind, flops: 0, bytes }
}

/// Operations of `products` products of queries with keys, or of probabilities with values, under the causal mask.
fn attention_flops(shape: Attention, products: u64) -> u64 {
    let pairs = (shape.tokens * (shape.tokens + 1) / 2) as u64;
    products * 2 * pairs * (shape.batch * shape.width()) as u64
}

fn rows(shape: RowShape, dtype: DType) -> usize {
    shape.rows * shape.width * dtype.size()
}

fn product(out: &MatrixMut<'_>, a: &Matrix<'_>, b: &Matrix<'_>, write: Write) -> Job {
    let depth = if a.transposed { a.rows } else { a.columns };
    let size = |rows: usize, columns: usize, dtype: DType| rows * columns * dtype.size();
    let inputs = size(a.rows, a.columns, a.data.dtype()) + size(b.rows, b.columns, b.data.dtype());
    let output = size(out.rows, out.columns, out.data.dtype());
    let flops = 2 * (out.rows * out.columns * depth) as u64;
    Job { kind: Kind::Matmul, flops, bytes: inputs + written(output, write) }
}

impl Kernels for Meter {
    fn matmul(&self, out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, write: Write) -> Result<()> {
        let job = product(&out, &a, &b, write);
        self.time(job, |kernels| kernels.matmul(out, a, b, write))
    }

    fn matmul_onto(&self, out: MatrixMut<'_>, base: View<'_>, a: Matrix<'_>, b: Matrix<'_>) -> Result<()> {
        let job = product(&out, &a, &b, Write::Accumulate);
        self.time(job, |kernels| kernels.matmul_onto(out, base, a, b))
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
        let moved = bytes_mut(&out) + bytes_mut(&inverse_rms) + bytes(&x) + bytes(&weight);
        self.time(job(Kind::Norm, moved), |kernels| kernels.rms_norm(out, inverse_rms, x, weight, shape, eps))
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
        let read = [&dout, &x, &weight, &inverse_rms].map(bytes).iter().sum::<usize>();
        let moved = 2 * bytes_mut(&dx) + written(bytes_mut(&dweight), write) + read;
        self.time(job(Kind::Norm, moved), |kernels| {
            kernels.rms_norm_backward(dx, dweight, write, dout, x, weight, inverse_rms, shape)
        })
    }

    fn rope(&self, qkv: ViewMut<'_>, rope: Rope) -> Result<()> {
        let Attention { heads, kv_heads, head_dim, .. } = rope.attention;
        let rotated = rope.attention.rows() * (heads + kv_heads) * head_dim * qkv.dtype().size();
        self.time(job(Kind::Rope, 2 * rotated), |kernels| kernels.rope(qkv, rope))
    }

    fn attention(
        &self,
        out: ViewMut<'_>,
        log_sum: ViewMut<'_>,
        qkv: View<'_>,
        shape: Attention,
    ) -> Result<()> {
        let moved = bytes_mut(&out) + bytes_mut(&log_sum) + bytes(&qkv);
        let job = Job { kind: Kind::Attention, flops: attention_flops(shape, 2), bytes: moved };
        self.time(job, |kernels| kernels.attention(out, log_sum, qkv, shape))
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
        let moved = bytes_mut(&dqkv) + [&dout, &qkv, &out, &log_sum].map(bytes).iter().sum::<usize>();
        let job = Job { kind: Kind::Attention, flops: attention_flops(shape, 5), bytes: moved };
        self.time(job, |kernels| kernels.attention_backward(dqkv, dout, qkv, out, log_sum, shape))
    }

    fn swiglu(&self, out: ViewMut<'_>, gate_up: View<'_>, shape: RowShape) -> Result<()> {
        let moved = bytes_mut(&out) + bytes(&gate_up);
        self.time(job(Kind::Swiglu, moved), |kernels| kernels.swiglu(out, gate_up, shape))
    }

    fn swiglu_backward(
        &self,
        dgate_up: ViewMut<'_>,
        dout: View<'_>,
        gate_up: View<'_>,
        shape: RowShape,
    ) -> Result<()> {
        let moved = bytes_mut(&dgate_up) + bytes(&dout) + bytes(&gate_up);
        self.time(job(Kind::Swiglu, moved), |kernels| kernels.swiglu_backward(dgate_up, dout, gate_up, shape))
    }

    fn embedding(&self, out: ViewMut<'_>, table: View<'_>, ids: View<'_>, shape: RowShape) -> Result<()> {
        let moved = bytes_mut(&out) + rows(shape, table.dtype()) + bytes(&ids);
        self.time(job(Kind::Embedding, moved), |kernels| kernels.embedding(out, table, ids, shape))
    }

    fn embedding_backward(
        &self,
        dtable: ViewMut<'_>,
        write: Write,
        dout: View<'_>,
        ids: View<'_>,
        shape: RowShape,
    ) -> Result<()> {
        // What is replaced is zeroed whole; rows that occur are read and written.
        let zeroed = if write == Write::Replace { bytes_mut(&dtable) } else { 0 };
        let moved = zeroed + 2 * rows(shape, dtable.dtype()) + bytes(&dout) + bytes(&ids);
        self.time(job(Kind::Embedding, moved), |kernels| {
            kernels.embedding_backward(dtable, write, dout, ids, shape)
        })
    }

    fn cross_entropy(
        &self,
        losses: ViewMut<'_>,
        logits: ViewMut<'_>,
        targets: View<'_>,
        gradient_scale: f32,
        shape: RowShape,
    ) -> Result<()> {
        let moved = bytes_mut(&losses) + 2 * bytes_mut(&logits) + bytes(&targets);
        self.time(job(Kind::CrossEntropy, moved), |kernels| {
            kernels.cross_entropy(losses, logits, targets, gradient_scale, shape)
        })
    }

    fn add(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        let moved = 2 * bytes_mut(&out) + bytes(&x);
        self.time(job(Kind::Copies, moved), |kernels| kernels.add(out, x))
    }

    fn copy(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        let moved = bytes_mut(&out) + bytes(&x);
        self.time(job(Kind::Copies, moved), |kernels| kernels.copy(out, x))
    }

    fn fill(&self, out: ViewMut<'_>, value: f32) -> Result<()> {
        let moved = bytes_mut(&out);
        self.time(job(Kind::Copies, moved), |kernels| kernels.fill(out, value))
    }

    fn adamw(
        &self,
        master: ViewMut<'_>,
        momentum: ViewMut<'_>,
        variance: ViewMut<'_>,
        gradients: View<'_>,
        update: AdamW,
    ) -> Result<()> {
        let moved =
            2 * [&master, &momentum, &variance].map(bytes_mut).iter().sum::<usize>() + bytes(&gradients);
        self.time(job(Kind::AdamW, moved), |kernels| {
            kernels.adamw(master, momentum, variance, gradients, update)
        })
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
        let states = 2 * [&master, &momentum, &variance].map(bytes_mut).iter().sum::<usize>();
        let moved = states + bytes_mut(&parameters) + bytes(&gradients);
        self.time(job(Kind::AdamW, moved), |kernels| {
            kernels.adamw_rounding(parameters, master, momentum, variance, gradients, update)
        })
    }

    fn max_magnitude(&self, x: View<'_>) -> Result<f32> {
        let moved = bytes(&x);
        self.time(job(Kind::GradientNorm, moved), |kernels| kernels.max_magnitude(x))
    }

    fn sum_of_squares(&self, x: View<'_>, exponent: i32) -> Result<u128> {
        let moved = bytes(&x);
        self.time(job(Kind::GradientNorm, moved), |kernels| kernels.sum_of_squares(x, exponent))
    }

    fn max_magnitude_of(&self, all: &[View<'_>]) -> Result<f32> {
        let moved = all.iter().map(bytes).sum();
        self.time(job(Kind::GradientNorm, moved), |kernels| kernels.max_magnitude_of(all))
    }

    fn sum_of_squares_of(&self, all: &[View<'_>], exponent: i32) -> Result<u128> {
        let moved = all.iter().map(bytes).sum();
        self.time(job(Kind::GradientNorm, moved), |kernels| kernels.sum_of_squares_of(all, exponent))
    }
}
