//! The GPU's kernels behind the trait: checks of shapes, then the launches of [`super::kernels`].
//!
//! Launches return at once; only what gives a number to the host waits. Buffers in main memory are computed on by the CPU's
//! kernels where an operation has them all there.

use super::kernels::{
    self, AttentionGradient, AttentionOutput, Multiplier, NormGradient, NormInputs, States,
};
use super::matmul::Onto;
use super::runtime::Runtime;
use crate::check::{Check, Product};
use crate::kernels::{AdamW, Attention, Kernels, Matrix, MatrixMut, Rope, RowShape, Write};
use crate::view::{View, ViewMut};
use crate::{DType, Result};

impl Kernels for Runtime {
    fn matmul(&self, out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, write: Write) -> Result<()> {
        let check = Check("matmul");
        let Product { rows, columns, depth } = check.product(&out, &a, &b)?;
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        if depth == 0 {
            return if write == Write::Replace { self.fill(out.data, 0.0) } else { Ok(()) };
        }
        let out = check.matrix_operand_mut("out", &out)?;
        self.multiply(out, check.matrix_operand("a", &a)?, check.matrix_operand("b", &b)?, write)
    }

    /// The library reads `base` where it would read `out`, so that nothing is copied.
    fn matmul_onto(
        &self,
        mut out: MatrixMut<'_>,
        base: View<'_>,
        a: Matrix<'_>,
        b: Matrix<'_>,
    ) -> Result<()> {
        let check = Check("matmul");
        let Product { rows, columns, depth } = check.product(&out, &a, &b)?;
        let packed = out.stride == columns && base.dtype() == out.data.dtype();
        if rows * columns * depth == 0 || !packed || base.on_host() {
            self.copy(out.data.reborrow(), base)?;
            return self.matmul(out, a, b, Write::Accumulate);
        }
        let base = check.operand("base", &base, rows * columns)?.pointer;
        let out = check.matrix_operand_mut("out", &out)?;
        let (a, b) = (check.matrix_operand("a", &a)?, check.matrix_operand("b", &b)?);
        self.gpu.context.enter()?;
        self.blas.multiply(&self.compute, Onto { out, base: Some(base) }, a, b)
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
        let (check, len) = (Check("rms_norm"), shape.rows * shape.width);
        let out = check.operand_mut("out", &out, len)?;
        let statistics = check.operand_mut("inverse_rms", &inverse_rms, shape.rows)?;
        let statistics = check.typed("inverse_rms", statistics, DType::F32)?;
        let (x, weight) = (check.operand("x", &x, len)?, check.operand("weight", &weight, shape.width)?);
        kernels::rms_norm(self, out, statistics, x, weight, shape, eps)
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
        let (check, len) = (Check("rms_norm_backward"), shape.rows * shape.width);
        let statistics = check.operand("inverse_rms", &inverse_rms, shape.rows)?;
        let gradient = NormGradient {
            dx: check.operand_mut("dx", &dx, len)?,
            dweight: check.operand_mut("dweight", &dweight, shape.width)?,
            write,
        };
        let inputs = NormInputs {
            dout: check.operand("dout", &dout, len)?,
            x: check.operand("x", &x, len)?,
            weight: check.operand("weight", &weight, shape.width)?,
            inverse_rms: check.typed("inverse_rms", statistics, DType::F32)?,
        };
        kernels::rms_norm_backward(self, gradient, inputs, shape)
    }

    fn rope(&self, qkv: ViewMut<'_>, rope: Rope) -> Result<()> {
        let shape = rope.attention;
        let qkv = Check("rope").operand_mut("qkv", &qkv, shape.rows() * shape.packed_width())?;
        let table = self.rotations.table(self, &rope)?;
        kernels::rope(self, qkv, table, rope)
    }

    fn attention(
        &self,
        out: ViewMut<'_>,
        log_sum: ViewMut<'_>,
        qkv: View<'_>,
        shape: Attention,
    ) -> Result<()> {
        let check = Check("attention");
        check.heads(shape)?;
        let sums = check.operand_mut("log_sum", &log_sum, shape.rows() * shape.heads)?;
        let output = AttentionOutput {
            out: check.operand_mut("out", &out, shape.rows() * shape.width())?,
            log_sum: check.typed("log_sum", sums, DType::F32)?,
        };
        let qkv = check.operand("qkv", &qkv, shape.rows() * shape.packed_width())?;
        match self.attention_by_products {
            true => kernels::attention_by_products(self, output, qkv, shape),
            false => kernels::attention(self, output, qkv, shape),
        }
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
        let check = Check("attention_backward");
        check.heads(shape)?;
        let (packed, width) = (shape.rows() * shape.packed_width(), shape.rows() * shape.width());
        let sums = check.operand("log_sum", &log_sum, shape.rows() * shape.heads)?;
        let output = AttentionOutput {
            out: check.operand("out", &out, width)?,
            log_sum: check.typed("log_sum", sums, DType::F32)?,
        };
        let gradient = AttentionGradient {
            dqkv: check.operand_mut("dqkv", &dqkv, packed)?,
            dout: check.operand("dout", &dout, width)?,
            output,
        };
        let qkv = check.operand("qkv", &qkv, packed)?;
        match self.attention_by_products {
            true => kernels::attention_backward_by_products(self, gradient, qkv, shape),
            false => kernels::attention_backward(self, gradient, qkv, shape),
        }
    }

    fn swiglu(&self, out: ViewMut<'_>, gate_up: View<'_>, shape: RowShape) -> Result<()> {
        let (check, len) = (Check("swiglu"), shape.rows * shape.width);
        kernels::swiglu(
            self,
            check.operand_mut("out", &out, len)?,
            check.operand("gate_up", &gate_up, 2 * len)?,
            shape,
        )
    }

    fn swiglu_backward(
        &self,
        dgate_up: ViewMut<'_>,
        dout: View<'_>,
        gate_up: View<'_>,
        shape: RowShape,
    ) -> Result<()> {
        let (check, len) = (Check("swiglu_backward"), shape.rows * shape.width);
        let dgate_up = check.operand_mut("dgate_up", &dgate_up, 2 * len)?;
        let (dout, gate_up) =
            (check.operand("dout", &dout, len)?, check.operand("gate_up", &gate_up, 2 * len)?);
        kernels::swiglu_backward(self, dgate_up, dout, gate_up, shape)
    }

    fn embedding(&self, out: ViewMut<'_>, table: View<'_>, ids: View<'_>, shape: RowShape) -> Result<()> {
        let check = Check("embedding");
        let vocabulary = table.len() / shape.width.max(1);
        let table = check.operand("table", &table, vocabulary * shape.width)?;
        let ids = check.index_address("ids", &ids, shape.rows, vocabulary)?;
        kernels::embedding(
            self,
            check.operand_mut("out", &out, shape.rows * shape.width)?,
            table,
            ids,
            vocabulary,
            shape,
        )
    }

    fn embedding_backward(
        &self,
        dtable: ViewMut<'_>,
        write: Write,
        dout: View<'_>,
        ids: View<'_>,
        shape: RowShape,
    ) -> Result<()> {
        let check = Check("embedding_backward");
        let vocabulary = dtable.len() / shape.width.max(1);
        let dtable = check.operand_mut("dtable", &dtable, vocabulary * shape.width)?;
        let dout = check.operand("dout", &dout, shape.rows * shape.width)?;
        let ids = check.index_address("ids", &ids, shape.rows, vocabulary)?;
        kernels::embedding_backward(self, dtable, write, dout, ids, vocabulary, shape)
    }

    fn cross_entropy(
        &self,
        losses: ViewMut<'_>,
        logits: ViewMut<'_>,
        targets: View<'_>,
        gradient_scale: f32,
        shape: RowShape,
    ) -> Result<()> {
        let check = Check("cross_entropy");
        let losses = check.operand_mut("losses", &losses, shape.rows)?;
        let losses = check.typed("losses", losses, DType::F32)?;
        let logits = check.operand_mut("logits", &logits, shape.rows * shape.width)?;
        let targets = check.index_address("targets", &targets, shape.rows, shape.width)?;
        kernels::cross_entropy(self, losses, logits, targets, gradient_scale, shape)
    }

    fn add(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        if out.on_host() && x.on_host() {
            return self.host.add(out, x);
        }
        let (check, len) = (Check("add"), out.len());
        kernels::add(self, check.operand_mut("out", &out, len)?, check.operand("x", &x, len)?, len)
    }

    fn copy(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        let (check, len) = (Check("copy"), out.len());
        check.len("x", x.len(), len)?;
        if out.dtype() == x.dtype() {
            return self.transfer(out, x);
        }
        if out.on_host() && x.on_host() {
            return self.host.copy(out, x);
        }
        kernels::convert(self, check.operand_mut("out", &out, len)?, check.operand("x", &x, len)?, len)
    }

    fn fill(&self, out: ViewMut<'_>, value: f32) -> Result<()> {
        if out.on_host() {
            return self.host.fill(out, value);
        }
        let len = out.len();
        kernels::fill(self, Check("fill").operand_mut("out", &out, len)?, value, len)
    }

    fn adamw(
        &self,
        master: ViewMut<'_>,
        momentum: ViewMut<'_>,
        variance: ViewMut<'_>,
        gradients: View<'_>,
        update: AdamW,
    ) -> Result<()> {
        if master.on_host() {
            return self.host.adamw(master, momentum, variance, gradients, update);
        }
        let len = master.len();
        let states = states(&master, &momentum, &variance)?;
        let gradients = Check("adamw").operand("gradients", &gradients, len)?;
        kernels::adamw(self, None, states, gradients, update, len)
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
        if master.on_host() {
            return self.host.adamw_rounding(parameters, master, momentum, variance, gradients, update);
        }
        let (check, len) = (Check("adamw"), master.len());
        let states = states(&master, &momentum, &variance)?;
        let parameters = check.operand_mut("parameters", &parameters, len)?;
        let gradients = check.operand("gradients", &gradients, len)?;
        kernels::adamw(self, Some(parameters), states, gradients, update, len)
    }

    fn max_magnitude(&self, x: View<'_>) -> Result<f32> {
        if x.on_host() {
            return self.host.max_magnitude(x);
        }
        self.largest_of(&[x])
    }

    fn sum_of_squares(&self, x: View<'_>, exponent: i32) -> Result<u128> {
        if x.on_host() {
            return self.host.sum_of_squares(x, exponent);
        }
        self.squares_of(&[x], exponent)
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

fn states(master: &ViewMut<'_>, momentum: &ViewMut<'_>, variance: &ViewMut<'_>) -> Result<States> {
    let (check, len) = (Check("adamw"), master.len());
    let f32s = |name, view| check.typed(name, check.operand_mut(name, view, len)?, DType::F32);
    Ok(States {
        master: f32s("master", master)?,
        momentum: f32s("momentum", momentum)?,
        variance: f32s("variance", variance)?,
    })
}
