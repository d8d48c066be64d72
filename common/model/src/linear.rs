//! Projections: one input times several adjacent weight matrices, with one packed output.

use crate::Gradients;
use crate::context::Context;
use crate::tensors::{gradient, weight};
use device::{Addend, Buffer, Matrix, Result, View, ViewMut, Write};
use std::ops::Range;

/// `out = x · Wᵀ`, where W stacks the rows of the tensors from `first` on. `x` is `[R, inputs]`;
/// `out` is `[R, sum of outputs]`: a row holds the first tensor's outputs, then the second's, and
/// so on.
///
/// Tensors that are adjacent in memory form one matrix and, on the CPU, one product. Other tensors
/// (views of separate parameters) are multiplied one by one, using their columns of the packed
/// matrix. The bits are the same either way. On the CPU an element of the output or of a weight's
/// gradient is one sum that does not depend on its neighbours, and the input's gradient, a sum over
/// the tensors, is always accumulated tensor by tensor.
///
/// On a GPU the library splits an element's sum depending on the whole product's shape and its
/// operands' alignment. So there tensors are always multiplied one by one, and their
/// [grain](Matrix::with_grain) is the model's: all tensors' lengths, and so their places, are
/// multiples of the grain.
pub(crate) struct Projection<const TENSORS: usize> {
    pub(crate) first: usize,
    pub(crate) inputs: usize,
    /// Rows of each tensor.
    pub(crate) outputs: [usize; TENSORS],
}

/// Adjacent tensors of a projection, and their columns of the packed output.
struct TensorGroup {
    tensors: Range<usize>,
    columns: Range<usize>,
}

impl<const TENSORS: usize> Projection<TENSORS> {
    fn whole(&self) -> TensorGroup {
        TensorGroup { tensors: self.first..self.first + TENSORS, columns: 0..self.width() }
    }

    /// Returns the tensors one by one.
    fn single(&self) -> impl Iterator<Item = TensorGroup> {
        let ends = self.outputs.iter().scan(0, |end, outputs| {
            *end += outputs;
            Some(*end - outputs..*end)
        });
        (self.first..).zip(ends).map(|(tensor, columns)| TensorGroup { tensors: tensor..tensor + 1, columns })
    }

    /// Returns `data`, the weights or gradients of tensors with `rows` rows in total, as a matrix.
    fn matrix<T>(&self, cx: &Context<'_>, data: T, rows: usize) -> Matrix<T> {
        Matrix::new(data, rows, self.inputs).with_grain(cx.config.grain())
    }

    /// Returns the number of columns of the packed output.
    pub(crate) fn width(&self) -> usize {
        self.outputs.iter().sum()
    }

    /// Returns the matrices that hold the weights: as few as the device may multiply at once.
    fn weights<'w>(&self, cx: &Context<'w>) -> Vec<(View<'w>, TensorGroup)> {
        let whole = self.whole();
        match joined(cx).then(|| cx.weights.weights(whole.tensors.clone())).flatten() {
            Some(view) => vec![(view, whole)],
            None => {
                let view = |part: &TensorGroup| weight(cx.weights, part.tensors.start);
                self.single().map(|part| (view(&part), part)).collect()
            }
        }
    }

    /// Computes `out = x · Wᵀ`.
    pub(crate) fn forward(&self, cx: &Context<'_>, out: &mut Buffer, x: &Buffer) -> Result<()> {
        let rows = cx.batch.rows();
        for (weight, part) in self.weights(cx) {
            let x = Matrix::new(x.view(), rows, self.inputs);
            let weight = self.matrix(cx, weight, part.columns.len());
            let out = columns_mut(out, rows, self.width(), part.columns);
            cx.multiply(out, x, weight.t(), Addend::Zero)?;
        }
        Ok(())
    }

    /// Computes `dx = dout · W`, adding up tensor by tensor.
    pub(crate) fn backward_input(&self, cx: &Context<'_>, dx: &mut Buffer, dout: &Buffer) -> Result<()> {
        let rows = cx.batch.rows();
        let mut write = Write::Replace;
        for part in self.single() {
            let weight = self.matrix(cx, weight(cx.weights, part.tensors.start), part.columns.len());
            let dout = columns(dout, rows, self.width(), part.columns);
            let dx = Matrix::new(dx.view_mut(), rows, self.inputs);
            cx.multiply(dx, dout, weight, write.into())?;
            write = Write::Accumulate;
        }
        Ok(())
    }

    /// Computes `dW = doutᵀ · x` and overwrites or accumulates, as the gradients' places require.
    pub(crate) fn backward_weights(
        &self,
        cx: &Context<'_>,
        gradients: &mut dyn Gradients,
        dout: &Buffer,
        x: &Buffer,
    ) -> Result<()> {
        let whole = self.whole();
        if let Some(place) = joined(cx).then(|| gradients.gradients(whole.tensors.clone())).flatten() {
            return self.backward_part(cx, place, whole, dout, x);
        }
        for part in self.single() {
            self.backward_part(cx, gradient(gradients, part.tensors.start), part, dout, x)?;
        }
        Ok(())
    }

    fn backward_part(
        &self,
        cx: &Context<'_>,
        (dweight, write): (ViewMut<'_>, Write),
        part: TensorGroup,
        dout: &Buffer,
        x: &Buffer,
    ) -> Result<()> {
        let rows = cx.batch.rows();
        let dweight = self.matrix(cx, dweight, part.columns.len());
        let dout = columns(dout, rows, self.width(), part.columns);
        let x = Matrix::new(x.view(), rows, self.inputs);
        cx.multiply(dweight, dout.t(), x, write.into())
    }
}

impl Projection<1> {
    /// Computes `out = base + x · Wᵀ`, by which half a block adds its result to the residual
    /// stream.
    pub(crate) fn forward_onto(
        &self,
        cx: &Context<'_>,
        out: &mut Buffer,
        base: &Buffer,
        x: &Buffer,
    ) -> Result<()> {
        let (rows, [outputs]) = (cx.batch.rows(), self.outputs);
        let weight = self.matrix(cx, weight(cx.weights, self.first), outputs);
        let (out, x) = (Matrix::new(out.view_mut(), rows, outputs), Matrix::new(x.view(), rows, self.inputs));
        cx.multiply(out, x, weight.t(), Addend::Base(base.view()))
    }
}

/// True if adjacent tensors are multiplied as one matrix; see [`Projection`].
fn joined(cx: &Context<'_>) -> bool {
    cx.device.gpu().is_none()
}

/// Returns the elements that `columns` of a packed `rows × stride` matrix span, from first to last.
pub(crate) fn span(rows: usize, stride: usize, columns: &Range<usize>) -> Range<usize> {
    columns.start..(rows - 1) * stride + columns.end
}

/// Returns a view of `columns` of a packed `rows × stride` matrix.
pub(crate) fn columns(data: &Buffer, rows: usize, stride: usize, columns: Range<usize>) -> Matrix<View<'_>> {
    Matrix::new(data.slice(span(rows, stride, &columns)), rows, columns.len()).with_stride(stride)
}

/// Returns a mutable view of `columns` of a packed `rows × stride` matrix.
pub(crate) fn columns_mut(
    data: &mut Buffer,
    rows: usize,
    stride: usize,
    columns: Range<usize>,
) -> Matrix<ViewMut<'_>> {
    Matrix::new(data.slice_mut(span(rows, stride, &columns)), rows, columns.len()).with_stride(stride)
}
