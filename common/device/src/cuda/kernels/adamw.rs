//! Launches of `adamw.cu`: a thread handles 4 elements.

use super::table::{ADAMW, ADAMW_ROUNDING, of_type, of_types};
use super::{Argument, Launcher, Operand, launch_each};
use crate::Result;
use crate::operations::{AdamWUpdate, Factors};

/// Elements of a thread: 16 bytes of f32.
const OWN: usize = 4;

/// See [`AdamWUpdate`]. The CPU's bits.
///
/// # Errors
/// If an operand holds no floats; the launcher's.
pub fn adamw(l: &impl Launcher, arguments: AdamWUpdate<Operand, Operand>) -> Result<()> {
    let AdamWUpdate { parameters, master, momentum, variance, gradients, len, settings } = arguments;
    let gradient = ("gradients", gradients.dtype);
    let kernel = match parameters {
        Some(parameters) => of_types(&ADAMW_ROUNDING, ("parameters", parameters.dtype), gradient)?,
        None => of_type(&ADAMW, gradient.0, gradient.1)?,
    };
    let mut arguments: Vec<_> = parameters.map(Argument::from).into_iter().collect();
    arguments.extend([master, momentum, variance, gradients].map(Argument::from));
    let factors = bytemuck::cast(Factors::new(settings));
    arguments.extend([Argument::Factors(&factors), Argument::U64(len as u64)]);
    launch_each(l, kernel, len.div_ceil(OWN), &arguments)
}
