//! Operands as a GPU's kernels take them: addresses and types, checked against the buffers that they lie in.

use super::kernels::{MatrixOperand, Operand};
use crate::check::Check;
use crate::kernels::{Matrix, MatrixMut};
use crate::view::{View, ViewMut};
use crate::{DType, Result};

impl Check {
    /// `len` elements to read.
    pub(super) fn operand(self, name: &'static str, view: &View<'_>, len: usize) -> Result<Operand> {
        self.len(name, view.len(), len)?;
        Ok(Operand { pointer: view.address(self.0, name)?, dtype: view.dtype() })
    }

    /// `len` elements to write.
    pub(super) fn operand_mut(self, name: &'static str, view: &ViewMut<'_>, len: usize) -> Result<Operand> {
        self.len(name, view.len(), len)?;
        Ok(Operand { pointer: view.address(self.0, name)?, dtype: view.dtype() })
    }

    /// The address of one that must be of type `dtype`.
    pub(super) fn typed(self, name: &'static str, operand: Operand, dtype: DType) -> Result<u64> {
        if operand.dtype == dtype { Ok(operand.pointer) } else { self.refuse(name, operand.dtype) }
    }

    /// A matrix to read, which lies within its buffer.
    pub(super) fn matrix_operand(self, name: &'static str, matrix: &Matrix<'_>) -> Result<MatrixOperand> {
        let Matrix { ref data, rows, columns, stride, transposed, grain } = *matrix;
        let data = self.operand(name, data, data.len())?;
        Ok(MatrixOperand { data, rows, columns, stride, transposed, grain })
    }

    /// A matrix to write, which lies within its buffer.
    pub(super) fn matrix_operand_mut(
        self,
        name: &'static str,
        matrix: &MatrixMut<'_>,
    ) -> Result<MatrixOperand> {
        let MatrixMut { ref data, rows, columns, stride, grain } = *matrix;
        let data = self.operand_mut(name, data, data.len())?;
        Ok(MatrixOperand { data, rows, columns, stride, transposed: false, grain })
    }

    /// The address of `len` indices below `bound`.
    pub(super) fn index_address(
        self,
        name: &'static str,
        view: &View<'_>,
        len: usize,
        bound: usize,
    ) -> Result<u64> {
        let address = self.typed(name, self.operand(name, view, len)?, DType::U32)?;
        self.bound(name, view.largest_index(), bound)?;
        Ok(address)
    }
}
