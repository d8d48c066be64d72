//! Operands as a GPU's kernels take them: addresses and types.

use crate::Result;
use crate::cuda::kernels;
use crate::operations::{Operand, Visitor};
use crate::view::{View, ViewMut};

/// Finds the addresses of the operands of one kernel; refuses those that lie in main memory.
pub(super) struct Addresses {
    pub(super) kernel: &'static str,
}

impl<'r, 'w> Visitor<View<'r>, ViewMut<'w>> for Addresses {
    type Read = kernels::Operand;
    type Written = kernels::Operand;

    fn read(&mut self, operand: Operand, data: View<'r>) -> Result<kernels::Operand> {
        Ok(kernels::Operand { pointer: data.address(self.kernel, operand.name)?, dtype: data.dtype() })
    }

    fn write(&mut self, operand: Operand, data: ViewMut<'w>) -> Result<kernels::Operand> {
        Ok(kernels::Operand { pointer: data.address(self.kernel, operand.name)?, dtype: data.dtype() })
    }
}
