//! The sources of initial weights and resumed states.

use crate::partition::{Partition, TensorPart, UnitId};
use crate::{Error, Result};
use device::{DType, Device, ViewMut};
use model::TensorId;
use std::ops::Range;

/// A source of initial weights, or of another state that a run resumes from: a seed or a file. It
/// returns any slice of any tensor, so that every rank reads only the elements that it holds.
pub trait WeightSource: Send + Sync {
    /// Writes elements `range` of `tensor` to `into`.
    ///
    /// # Errors
    /// A message that names the file or tensor that could not be read.
    fn read(
        &self,
        tensor: TensorId,
        range: Range<usize>,
        into: &mut [f32],
    ) -> std::result::Result<(), String>;
}

/// Number of elements that are rounded at a time. The next ones reuse the memory.
const ROUNDED_AT_ONCE: usize = 1 << 22;

/// Writes elements `slice` of `unit` to `out`, rounded to its type; padding is zero.
///
/// # Errors
/// If the source fails, or `device` has no room in main memory.
pub fn write(
    device: &Device,
    partition: &Partition,
    unit: UnitId,
    slice: Range<usize>,
    source: &dyn WeightSource,
    mut out: ViewMut<'_>,
) -> Result<()> {
    if out.on_host() && out.dtype() == DType::F32 {
        return read(partition, unit, slice, source, out.as_mut_slice());
    }
    let mut values = device.vec_with_capacity(slice.len().min(ROUNDED_AT_ONCE))?;
    for start in slice.clone().step_by(ROUNDED_AT_ONCE) {
        let piece = start..(start + ROUNDED_AT_ONCE).min(slice.end);
        values.resize(piece.len(), 0f32);
        read(partition, unit, piece.clone(), source, &mut values)?;
        device.write_rounded(out.slice_mut(start - slice.start..piece.end - slice.start), &values)?;
    }
    Ok(())
}

/// Writes elements `slice` of `unit` to `out`.
fn read(
    partition: &Partition,
    unit: UnitId,
    slice: Range<usize>,
    source: &dyn WeightSource,
    out: &mut [f32],
) -> Result<()> {
    let mut end = 0;
    for TensorPart { tensor, elements, within, .. } in partition.parts(unit, &slice) {
        out[end..within.start].fill(0.0);
        end = within.end;
        source.read(tensor, elements, &mut out[within]).map_err(Error::Weights)?;
    }
    out[end..].fill(0.0);
    Ok(())
}
