//! Where initial weights and resumed states come from.

use crate::partition::{Partition, TensorPart, UnitId};
use crate::{Error, Result};
use device::Device;
use model::TensorId;
use std::ops::Range;

/// A source of initial weights, or of another state that a run resumes from: a seed or a file. It
/// serves any slice of any tensor, so that every rank reads only the elements that it will hold.
pub trait WeightSource: Send + Sync {
    /// Writes elements `range` of `tensor` to `into`.
    ///
    /// # Errors
    /// A sentence that names what could not be read.
    fn read(
        &self,
        tensor: TensorId,
        range: Range<usize>,
        into: &mut [f32],
    ) -> std::result::Result<(), String>;
}

/// Elements `slice` of `unit`, f32; padding is zero.
///
/// # Errors
/// If the source fails, or `device` has no room in main memory.
pub fn read(
    device: &Device,
    partition: &Partition,
    unit: UnitId,
    slice: Range<usize>,
    source: &dyn WeightSource,
) -> Result<Vec<f32>> {
    let mut values = device.room(slice.len())?;
    values.resize(slice.len(), 0f32);
    for TensorPart { tensor, elements, within, .. } in partition.parts(unit, &slice) {
        source.read(tensor, elements, &mut values[within]).map_err(Error::Weights)?;
    }
    Ok(values)
}
