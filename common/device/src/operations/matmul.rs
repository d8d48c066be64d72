//! Products of matrices.

use super::visit::{Length, Requirement, Visitor};
use crate::Result;
use crate::shapes::{Matrix, Write};

/// `out = addend + a · b`, after the transposes that `a` and `b` ask for. Sums in f32.
#[derive(Clone, Copy, Debug)]
pub struct Matmul<R, W> {
    /// Output `[rows, columns]`.
    pub out: Matrix<W>,
    /// `[rows, depth]`.
    pub a: Matrix<R>,
    /// `[depth, columns]`.
    pub b: Matrix<R>,
    /// The addend of the product.
    pub addend: Addend<R>,
    /// The type to which elements of `a` and `b` are rounded before they are multiplied.
    pub rounding: Rounding,
}

/// The type to which elements are rounded before they are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// None: elements are multiplied as they are stored.
    #[default]
    None,
    /// bf16, to nearest even.
    Bf16,
}

/// The addend of a product.
#[derive(Clone, Copy, Debug)]
pub enum Addend<R> {
    /// Nothing: `out = a · b`.
    Zero,
    /// The output: `out += a · b`.
    Out,
    /// Another matrix of `out`'s shape, both packed: `out = base + a · b`.
    Base(R),
}

impl<R> Addend<R> {
    /// Applies `f` to the other matrix, if there is one.
    pub(crate) fn map<S>(self, f: impl FnOnce(R) -> S) -> Addend<S> {
        match self {
            Addend::Zero => Addend::Zero,
            Addend::Out => Addend::Out,
            Addend::Base(base) => Addend::Base(f(base)),
        }
    }
}

impl<R> From<Write> for Addend<R> {
    fn from(write: Write) -> Self {
        match write {
            Write::Replace => Addend::Zero,
            Write::Accumulate => Addend::Out,
        }
    }
}

impl<R, W> Matmul<R, W> {
    /// Returns the number of columns of `a`, which is that of rows of `b`.
    pub(crate) fn depth(&self) -> usize {
        self.a.shape().1
    }

    /// Returns the floating-point operations: multiplications and additions.
    pub(super) fn flops(&self) -> u64 {
        2 * (self.out.rows * self.out.columns * self.depth()) as u64
    }

    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<Matmul<V::Read, V::Written>> {
        let Matmul { out, a, b, addend, rounding } = self;
        let ((rows, depth), (b_rows, columns)) = (a.shape(), b.shape());
        let (a_operand, b_operand) = (operand(v, "a", &a)?, operand(v, "b", &b)?);
        let a = a.try_map(|data| v.read(a_operand, data))?;
        let b = b.try_map(|data| v.read(b_operand, data))?;
        let mut out_operand = operand(v, "out", &out)?;
        let addend = match addend {
            Addend::Zero => Addend::Zero,
            Addend::Out => {
                out_operand = out_operand.updated();
                Addend::Out
            }
            Addend::Base(base) => {
                v.size("stride of out", out.stride, out.columns)?;
                out_operand.len = Length::Exactly(out.rows * out.columns);
                Addend::Base(v.read(Requirement::floats("base", out.rows * out.columns), base)?)
            }
        };
        let out = out.try_map(|data| v.write(out_operand, data))?;
        v.size("rows of a", rows, out.rows)?;
        v.size("columns of b", columns, out.columns)?;
        v.size("rows of b", b_rows, depth)?;
        Ok(Matmul { out, a, b, addend, rounding })
    }
}

/// Visits a matrix, and checks that it lies within its data and that its rows do not overlap.
fn operand<R, W, T>(
    v: &mut impl Visitor<R, W>,
    name: &'static str,
    matrix: &Matrix<T>,
) -> Result<Requirement> {
    let Matrix { rows, columns, stride, .. } = *matrix;
    if rows > 1 {
        v.size(name, stride, stride.max(columns))?;
    }
    let len = Length::AtLeast(matrix.extent());
    Ok(Requirement { len, ..Requirement::floats(name, 0) }.moving(rows * columns))
}
