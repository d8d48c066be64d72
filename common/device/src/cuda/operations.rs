//! The GPU's kernels behind the trait: checks of shapes, then the launches of [`super::kernels`].
//!
//! Launches return at once; only what gives a number to the host waits. Buffers in main memory are computed on by the CPU's
//! kernels where an operation has them all there.

use super::kernels::{self, AttentionGradient, AttentionOutput, NormGradient, NormInputs, Operand, States};
use super::runtime::Runtime;
use super::transfer::same_len;
use crate::buffer::{View, ViewMut};
use crate::kernels::{AdamW, Attention, Kernels, Matrix, MatrixMut, Rope, RowShape, Write};
use crate::{DType, DeviceError, Result};

/// Checks the operands of the kernel that it names.
#[derive(Clone, Copy)]
struct Check(&'static str);

impl Check {
    /// `len` elements to read.
    fn read(self, operand: &'static str, view: &View<'_>, len: usize) -> Result<Operand> {
        same_len(self.0, operand, view.len(), len)?;
        Ok(Operand { pointer: view.address(self.0, operand)?, dtype: view.dtype() })
    }

    /// `len` elements to write.
    fn write(self, operand: &'static str, view: &ViewMut<'_>, len: usize) -> Result<Operand> {
        same_len(self.0, operand, view.len(), len)?;
        Ok(Operand { pointer: view.address(self.0, operand)?, dtype: view.dtype() })
    }

    /// The address of one that must be of type `dtype`.
    fn typed(self, name: &'static str, operand: Operand, dtype: DType) -> Result<u64> {
        if operand.dtype == dtype {
            return Ok(operand.pointer);
        }
        Err(DeviceError::Type { kernel: self.0, operand: name, got: operand.dtype })
    }

    /// The address of `len` indices below `bound`.
    fn indices(self, name: &'static str, view: &View<'_>, len: usize, bound: usize) -> Result<u64> {
        let address = self.typed(name, self.read(name, view, len)?, DType::U32)?;
        match view.largest_index().filter(|&largest| largest as usize >= bound) {
            Some(got) => Err(DeviceError::Index { kernel: self.0, operand: name, got, bound }),
            None => Ok(address),
        }
    }

    fn matrix(
        self,
        operand: &'static str,
        len: usize,
        (rows, columns): (usize, usize),
        stride: usize,
    ) -> Result<()> {
        let expected = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * stride.max(columns) + columns };
        if len < expected {
            return Err(DeviceError::Shape { kernel: self.0, operand, expected, got: len });
        }
        if stride < columns && rows > 1 {
            return Err(DeviceError::Shape { kernel: self.0, operand, expected: columns, got: stride });
        }
        Ok(())
    }
}

/// Rows and columns of what the product takes.
fn shape_of(matrix: &Matrix<'_>) -> (usize, usize) {
    if matrix.transposed { (matrix.columns, matrix.rows) } else { (matrix.rows, matrix.columns) }
}

impl Kernels for Runtime {
    fn matmul(&self, out: MatrixMut<'_>, a: Matrix<'_>, b: Matrix<'_>, write: Write) -> Result<()> {
        let check = Check("matmul");
        check.matrix("a", a.data.len(), (a.rows, a.columns), a.stride)?;
        check.matrix("b", b.data.len(), (b.rows, b.columns), b.stride)?;
        check.matrix("out", out.data.len(), (out.rows, out.columns), out.stride)?;
        let ((rows, depth), (b_rows, columns)) = (shape_of(&a), shape_of(&b));
        same_len(check.0, "rows of a", rows, out.rows)?;
        same_len(check.0, "columns of b", columns, out.columns)?;
        same_len(check.0, "rows of b", b_rows, depth)?;
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        if depth == 0 {
            return if write == Write::Replace { self.fill(out.data, 0.0) } else { Ok(()) };
        }
        self.gpu.context.enter()?;
        self.blas.multiply(&self.compute, out, &a, &b, write)
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
        let out = check.write("out", &out, len)?;
        let statistics = check.write("inverse_rms", &inverse_rms, shape.rows)?;
        let statistics = check.typed("inverse_rms", statistics, DType::F32)?;
        let (x, weight) = (check.read("x", &x, len)?, check.read("weight", &weight, shape.width)?);
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
        let statistics = check.read("inverse_rms", &inverse_rms, shape.rows)?;
        let gradient = NormGradient {
            dx: check.write("dx", &dx, len)?,
            dweight: check.write("dweight", &dweight, shape.width)?,
            write,
        };
        let inputs = NormInputs {
            dout: check.read("dout", &dout, len)?,
            x: check.read("x", &x, len)?,
            weight: check.read("weight", &weight, shape.width)?,
            inverse_rms: check.typed("inverse_rms", statistics, DType::F32)?,
        };
        kernels::rms_norm_backward(self, gradient, inputs, shape)
    }

    fn rope(&self, qkv: ViewMut<'_>, rope: Rope) -> Result<()> {
        let shape = rope.attention;
        let qkv = Check("rope").write("qkv", &qkv, shape.rows() * shape.packed_width())?;
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
        let sums = check.write("log_sum", &log_sum, shape.rows() * shape.heads)?;
        let output = AttentionOutput {
            out: check.write("out", &out, shape.rows() * shape.width())?,
            log_sum: check.typed("log_sum", sums, DType::F32)?,
        };
        let qkv = check.read("qkv", &qkv, shape.rows() * shape.packed_width())?;
        kernels::attention(self, output, qkv, shape)
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
        let (packed, width) = (shape.rows() * shape.packed_width(), shape.rows() * shape.width());
        let sums = check.read("log_sum", &log_sum, shape.rows() * shape.heads)?;
        let output = AttentionOutput {
            out: check.read("out", &out, width)?,
            log_sum: check.typed("log_sum", sums, DType::F32)?,
        };
        let gradient = AttentionGradient {
            dqkv: check.write("dqkv", &dqkv, packed)?,
            dout: check.read("dout", &dout, width)?,
            output,
        };
        kernels::attention_backward(self, gradient, check.read("qkv", &qkv, packed)?, shape)
    }

    fn swiglu(&self, out: ViewMut<'_>, gate_up: View<'_>, shape: RowShape) -> Result<()> {
        let (check, len) = (Check("swiglu"), shape.rows * shape.width);
        kernels::swiglu(
            self,
            check.write("out", &out, len)?,
            check.read("gate_up", &gate_up, 2 * len)?,
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
        let dgate_up = check.write("dgate_up", &dgate_up, 2 * len)?;
        let (dout, gate_up) = (check.read("dout", &dout, len)?, check.read("gate_up", &gate_up, 2 * len)?);
        kernels::swiglu_backward(self, dgate_up, dout, gate_up, shape)
    }

    fn embedding(&self, out: ViewMut<'_>, table: View<'_>, ids: View<'_>, shape: RowShape) -> Result<()> {
        let check = Check("embedding");
        let vocabulary = table.len() / shape.width.max(1);
        let table = check.read("table", &table, vocabulary * shape.width)?;
        let ids = check.indices("ids", &ids, shape.rows, vocabulary)?;
        kernels::embedding(
            self,
            check.write("out", &out, shape.rows * shape.width)?,
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
        let dtable = check.write("dtable", &dtable, vocabulary * shape.width)?;
        let dout = check.read("dout", &dout, shape.rows * shape.width)?;
        let ids = check.indices("ids", &ids, shape.rows, vocabulary)?;
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
        let losses = check.write("losses", &losses, shape.rows)?;
        let losses = check.typed("losses", losses, DType::F32)?;
        let logits = check.write("logits", &logits, shape.rows * shape.width)?;
        let targets = check.indices("targets", &targets, shape.rows, shape.width)?;
        kernels::cross_entropy(self, losses, logits, targets, gradient_scale, shape)
    }

    fn add(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        if out.on_host() && x.on_host() {
            return self.host.add(out, x);
        }
        let (check, len) = (Check("add"), out.len());
        kernels::add(self, check.write("out", &out, len)?, check.read("x", &x, len)?, len)
    }

    fn copy(&self, out: ViewMut<'_>, x: View<'_>) -> Result<()> {
        let (check, len) = (Check("copy"), out.len());
        same_len(check.0, "x", x.len(), len)?;
        if out.dtype() == x.dtype() {
            return self.transfer(out, x);
        }
        if out.on_host() && x.on_host() {
            return self.host.copy(out, x);
        }
        kernels::convert(self, check.write("out", &out, len)?, check.read("x", &x, len)?, len)
    }

    fn fill(&self, out: ViewMut<'_>, value: f32) -> Result<()> {
        if out.on_host() {
            return self.host.fill(out, value);
        }
        let len = out.len();
        kernels::fill(self, Check("fill").write("out", &out, len)?, value, len)
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
        let gradients = Check("adamw").read("gradients", &gradients, len)?;
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
        let parameters = check.write("parameters", &parameters, len)?;
        let gradients = check.read("gradients", &gradients, len)?;
        kernels::adamw(self, Some(parameters), states, gradients, update, len)
    }

    fn max_magnitude(&self, x: View<'_>) -> Result<f32> {
        if x.on_host() {
            return self.host.max_magnitude(x);
        }
        let len = x.len();
        kernels::max_magnitude(self, self.result, Check("max_magnitude").read("x", &x, len)?, len)?;
        let mut bits = [0; 4];
        self.download(self.result, &mut bits)?;
        Ok(f32::from_le_bytes(bits))
    }

    fn sum_of_squares(&self, x: View<'_>, exponent: i32) -> Result<u128> {
        if x.on_host() {
            return self.host.sum_of_squares(x, exponent);
        }
        let len = x.len();
        kernels::sum_of_squares(
            self,
            self.result,
            Check("sum_of_squares").read("x", &x, len)?,
            exponent,
            len,
        )?;
        let mut sum = [0; 16];
        self.download(self.result, &mut sum)?;
        Ok(u128::from_le_bytes(sum))
    }
}

fn states(master: &ViewMut<'_>, momentum: &ViewMut<'_>, variance: &ViewMut<'_>) -> Result<States> {
    let (check, len) = (Check("adamw"), master.len());
    let f32s = |name, view| check.typed(name, check.write(name, view, len)?, DType::F32);
    Ok(States {
        master: f32s("master", master)?,
        momentum: f32s("momentum", momentum)?,
        variance: f32s("variance", variance)?,
    })
}
