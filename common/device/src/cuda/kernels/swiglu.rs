//! Launches of `swiglu.cu`: a thread handles up to 8 elements of a row.

use super::table::{SWIGLU, SWIGLU_BACKWARD, of_type, same_type};
use super::{Argument, Launcher, Operand, launch_each, row_arguments, row_chunks};
use crate::Result;
use crate::operations::{Swiglu, SwigluBackward};

/// See [`Swiglu`]; operands have one type. The CPU's bits.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn swiglu(l: &impl Launcher, arguments: Swiglu<Operand, Operand>) -> Result<()> {
    let Swiglu { out, gate_up, shape } = arguments;
    let kernel = of_type(&SWIGLU, "gate_up", gate_up.dtype)?;
    same_type(kernel.name, gate_up, [("out", out)])?;
    let pointers = [out, gate_up].map(Argument::from);
    launch_each(l, kernel, row_chunks(shape), &[pointers, row_arguments(shape)].concat())
}

/// See [`SwigluBackward`]; operands have one type. The CPU's bits.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn swiglu_backward(l: &impl Launcher, arguments: SwigluBackward<Operand, Operand>) -> Result<()> {
    let SwigluBackward { dgate_up, dout, gate_up, shape } = arguments;
    let kernel = of_type(&SWIGLU_BACKWARD, "gate_up", gate_up.dtype)?;
    same_type(kernel.name, gate_up, [("dgate_up", dgate_up), ("dout", dout)])?;
    let pointers = [dgate_up, dout, gate_up].map(Argument::from);
    launch_each(l, kernel, row_chunks(shape), &[pointers.as_slice(), &row_arguments(shape)].concat())
}
