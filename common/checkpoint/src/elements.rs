//! Conversions between the element types of files and `f32` in memory.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use safetensors::Dtype;
use std::borrow::Cow;
use std::io;

/// Elements converted per read of a 16-bit tensor: 64 KiB.
const CHUNK: usize = 32 * 1024;

/// An element type that this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    F32,
    Bf16,
    F16,
}

impl Stored {
    /// Returns the type with the format's name `dtype`, if this crate reads it.
    pub(crate) fn new(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Stored::F32),
            Dtype::BF16 => Some(Stored::Bf16),
            Dtype::F16 => Some(Stored::F16),
            _ => None,
        }
    }

    /// Fills `values` with the elements from element `start` on. `read` fills a slice from a byte
    /// offset.
    pub(crate) fn decode(
        self,
        start: u64,
        values: &mut [f32],
        read: impl Fn(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            Stored::F32 => {
                read(bytemuck::cast_slice_mut(values), start * 4)?;
                values.iter_mut().for_each(|value| *value = f32::from_bits(u32::from_le(value.to_bits())));
                Ok(())
            }
            Stored::Bf16 => decode_chunks(start, values, read, |bits, values| {
                bytemuck::cast_slice::<u16, bf16>(bits).convert_to_f32_slice(values);
            }),
            Stored::F16 => decode_chunks(start, values, read, |bits, values| {
                bytemuck::cast_slice::<u16, f16>(bits).convert_to_f32_slice(values);
            }),
        }
    }
}

fn decode_chunks(
    start: u64,
    values: &mut [f32],
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
    widen: impl Fn(&[u16], &mut [f32]),
) -> io::Result<()> {
    let mut bits = vec![0u16; CHUNK.min(values.len())];
    let mut offset = start * 2;
    for values in values.chunks_mut(CHUNK) {
        let bits = &mut bits[..values.len()];
        read(bytemuck::cast_slice_mut(bits), offset)?;
        bits.iter_mut().for_each(|bits| *bits = u16::from_le(*bits));
        widen(bits, values);
        offset += values.len() as u64 * 2;
    }
    Ok(())
}

/// Returns the bytes of `values` in a file: F32, little-endian.
pub(crate) fn encode(values: &[f32]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        Cow::Borrowed(bytemuck::cast_slice(values))
    } else {
        Cow::Owned(values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }
}
