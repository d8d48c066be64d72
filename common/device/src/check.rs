//! What every device refuses before it computes.

use crate::kernels::{Attention, Matrix, MatrixMut};
use crate::{DType, DeviceError, Result};

/// Checks the operands of the kernel that it names.
#[derive(Clone, Copy)]
pub(crate) struct Check(pub(crate) &'static str);

/// Sizes of a product: `[rows, depth] · [depth, columns]`.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
}

impl Check {
    /// Refuses an operand that has `got` instead of `expected` elements.
    pub(crate) fn len(self, operand: &'static str, got: usize, expected: usize) -> Result<()> {
        if got == expected {
            return Ok(());
        }
        Err(DeviceError::Shape { kernel: self.0, operand, expected, got })
    }

    /// The error that the kernel does not take an operand of type `got`.
    pub(crate) fn refuse<T>(self, operand: &'static str, got: DType) -> Result<T> {
        Err(DeviceError::Type { kernel: self.0, operand, got })
    }

    /// Refuses indices the largest of which is no row of a table of `bound`.
    pub(crate) fn bound(self, operand: &'static str, largest: Option<u32>, bound: usize) -> Result<()> {
        match largest.filter(|&largest| largest as usize >= bound) {
            Some(got) => Err(DeviceError::Index { kernel: self.0, operand, got, bound }),
            None => Ok(()),
        }
    }

    /// Refuses matrices that do not lie within their buffers, or that cannot be multiplied.
    pub(crate) fn product(self, out: &MatrixMut<'_>, a: &Matrix<'_>, b: &Matrix<'_>) -> Result<Product> {
        self.matrix("a", a.data.len(), (a.rows, a.columns), a.stride)?;
        self.matrix("b", b.data.len(), (b.rows, b.columns), b.stride)?;
        self.matrix("out", out.data.len(), (out.rows, out.columns), out.stride)?;
        let ((rows, depth), (b_rows, columns)) = (a.shape(), b.shape());
        self.len("rows of a", rows, out.rows)?;
        self.len("columns of b", columns, out.columns)?;
        self.len("rows of b", b_rows, depth)?;
        Ok(Product { rows, columns, depth })
    }

    /// Refuses query heads that do not share key/value heads evenly.
    pub(crate) fn heads(self, shape: Attention) -> Result<()> {
        let kv_heads = shape.kv_heads.max(1);
        self.len("kv_heads", shape.kv_heads, kv_heads)?;
        self.len("heads", shape.heads, shape.heads.next_multiple_of(kv_heads))
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
