//! Checks of an operation's operands, before any device computes it.

use crate::operations::{Elements, Length, Operation, Requirement, Visitor};
use crate::view::{View, ViewMut};
use crate::{DType, DeviceError, Result};

/// Returns `operation` if its operands have the lengths and types that it requires, and its sizes
/// are compatible with each other.
pub(crate) fn check<'r, 'w>(
    operation: Operation<View<'r>, ViewMut<'w>>,
) -> Result<Operation<View<'r>, ViewMut<'w>>> {
    let kernel = operation.name();
    operation.visit(&mut Check { kernel })
}

/// Checks the operands of one kernel, and returns them unchanged.
struct Check {
    kernel: &'static str,
}

impl Check {
    fn operand(&self, operand: Requirement, len: usize, dtype: DType) -> Result<()> {
        let Requirement { name, .. } = operand;
        let (expected, fits) = match operand.len {
            Length::Exactly(expected) => (expected, len == expected),
            Length::AtLeast(expected) => (expected, len >= expected),
        };
        if !fits {
            return Err(DeviceError::Shape { kernel: self.kernel, operand: name, expected, got: len });
        }
        let takes = match operand.elements {
            Elements::Any => true,
            Elements::Floats => dtype != DType::U32,
            Elements::F32 => dtype == DType::F32,
            Elements::Indices { .. } => dtype == DType::U32,
        };
        if takes {
            return Ok(());
        }
        Err(DeviceError::Type { kernel: self.kernel, operand: name, got: dtype })
    }

    /// Refuses indices of which one is not a row of a table of `bound` rows. In main memory all
    /// indices are checked; in a GPU's memory only the largest, if the host knows it.
    fn indices(&self, operand: &'static str, view: &View<'_>, bound: usize) -> Result<()> {
        let is_beyond = |index: &u32| *index as usize >= bound;
        let beyond = if view.on_host() {
            view.as_slice::<u32>().iter().copied().find(is_beyond)
        } else {
            view.largest_index().filter(is_beyond)
        };
        match beyond {
            Some(got) => Err(DeviceError::Index { kernel: self.kernel, operand, got, bound }),
            None => Ok(()),
        }
    }
}

impl<'r, 'w> Visitor<View<'r>, ViewMut<'w>> for Check {
    type Read = View<'r>;
    type Written = ViewMut<'w>;

    fn read(&mut self, operand: Requirement, data: View<'r>) -> Result<View<'r>> {
        self.operand(operand, data.len(), data.dtype())?;
        if let Elements::Indices { bound } = operand.elements {
            self.indices(operand.name, &data, bound)?;
        }
        Ok(data)
    }

    fn write(&mut self, operand: Requirement, data: ViewMut<'w>) -> Result<ViewMut<'w>> {
        self.operand(operand, data.len(), data.dtype())?;
        Ok(data)
    }

    fn size(&mut self, operand: &'static str, got: usize, expected: usize) -> Result<()> {
        if got == expected {
            Ok(())
        } else {
            Err(DeviceError::Shape { kernel: self.kernel, operand, expected, got })
        }
    }
}

/// Refuses tensors to be reduced that do not hold floats.
pub(crate) fn check_floats(kernel: &'static str, all: &[View<'_>]) -> Result<()> {
    match all.iter().map(View::dtype).find(|dtype| *dtype == DType::U32) {
        Some(got) => Err(DeviceError::Type { kernel, operand: "x", got }),
        None => Ok(()),
    }
}
