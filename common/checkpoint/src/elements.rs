//! Conversions between the element types of files and `f32` in memory.

use bytemuck::Pod;
use device::{DType, floats};
use half::{bf16, f16};
use safetensors::Dtype;
use std::io;

/// Elements converted per read of a 16-bit tensor: 64 KiB.
const CONVERTED_AT_ONCE: usize = 32 * 1024;

/// An element type of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElementType {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits: the range of f32, 8 bits of precision.
    Bf16,
    /// 16 bits: up to 65504, 11 bits of precision.
    F16,
}

// Named as in flags.
events::labels! { ElementType { F32 => "f32", Bf16 => "bf16", F16 => "f16" } }

impl ElementType {
    /// Returns the type's name in Transformers' `config.json`.
    pub(crate) const fn torch(self) -> &'static str {
        match self {
            ElementType::F32 => "float32",
            ElementType::Bf16 => "bfloat16",
            ElementType::F16 => "float16",
        }
    }

    /// Returns the type's name in the file format.
    pub(crate) const fn dtype(self) -> Dtype {
        match self {
            ElementType::F32 => Dtype::F32,
            ElementType::Bf16 => Dtype::BF16,
            ElementType::F16 => Dtype::F16,
        }
    }

    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> usize {
        self.dtype().bitsize() / 8
    }

    /// Returns the type that the file format calls `dtype`. `None` if this crate does not read it.
    pub(crate) fn new(dtype: Dtype) -> Option<Self> {
        ElementType::ALL.into_iter().find(|one| one.dtype() == dtype)
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
            ElementType::F32 => {
                read(bytemuck::cast_slice_mut(values), start * 4)?;
                in_file_order(bytemuck::cast_slice_mut(values), u32::swap_bytes);
                Ok(())
            }
            ElementType::Bf16 => decode_chunks(DType::Bf16, start, values, read),
            ElementType::F16 => decode_chunks(DType::F16, start, values, read),
        }
    }
}

fn decode_chunks(
    dtype: DType,
    start: u64,
    values: &mut [f32],
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut bits = vec![0u16; CONVERTED_AT_ONCE.min(values.len())];
    let mut offset = start * 2;
    for values in values.chunks_mut(CONVERTED_AT_ONCE) {
        let bits = &mut bits[..values.len()];
        read(bytemuck::cast_slice_mut(bits), offset)?;
        in_file_order(bits, u16::swap_bytes);
        floats::widen(values, bits, dtype);
        offset += values.len() as u64 * 2;
    }
    Ok(())
}

/// Passes the little-endian bytes of `values` to `write` piece by piece, each with its offset from
/// the first. Rounds to the nearest number of `element_type`, ties to even.
pub(crate) fn encode<E>(
    element_type: ElementType,
    values: &[f32],
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    match element_type {
        ElementType::F32 if cfg!(target_endian = "little") => write(0, bytemuck::cast_slice(values)),
        ElementType::F32 => encode_chunks(values, write, |bits, values| {
            bits.copy_from_slice(bytemuck::cast_slice(values));
            in_file_order(bits, u32::swap_bytes);
        }),
        ElementType::Bf16 => encode_chunks(values, write, narrow(DType::Bf16)),
        ElementType::F16 => encode_chunks(values, write, narrow(DType::F16)),
    }
}

fn narrow(dtype: DType) -> impl Fn(&mut [u16], &[f32]) {
    move |bits, values| {
        floats::narrow(bits, values, dtype);
        in_file_order(bits, u16::swap_bytes);
    }
}

fn encode_chunks<T: Pod, E>(
    values: &[f32],
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    convert: impl Fn(&mut [T], &[f32]),
) -> Result<(), E> {
    let mut bits = vec![T::zeroed(); CONVERTED_AT_ONCE.min(values.len())];
    let mut offset = 0;
    for values in values.chunks(CONVERTED_AT_ONCE) {
        let bits = &mut bits[..values.len()];
        convert(bits, values);
        write(offset, bytemuck::cast_slice(bits))?;
        offset += size_of_val(bits) as u64;
    }
    Ok(())
}

/// Returns a finite value that becomes infinite as `element_type`, and the type's maximum.
pub(crate) fn out_of_range(element_type: ElementType, values: &[f32]) -> Option<(f32, f32)> {
    let round: fn(f32) -> (f32, f32) = match element_type {
        ElementType::F32 => return None,
        ElementType::Bf16 => |value| (bf16::from_f32(value).into(), bf16::MAX.into()),
        ElementType::F16 => |value| (f16::from_f32(value).into(), f16::MAX.into()),
    };
    let largest = floats::largest_finite(values);
    let (rounded, most) = round(largest);
    let beyond = || values.iter().find(|value| value.abs() == largest);
    rounded.is_infinite().then(beyond).flatten().map(|&value| (value, most))
}

/// Returns the index of the first value that is infinite or NaN.
pub fn not_finite(values: &[f32]) -> Option<usize> {
    if floats::are_finite(bytemuck::cast_slice(values)) {
        return None;
    }
    values.iter().position(|value| !value.is_finite())
}

/// Converts numbers between this machine's byte order and that of files, which is little-endian.
pub(crate) fn in_file_order<T: Copy>(numbers: &mut [T], swapped: impl Fn(T) -> T) {
    if cfg!(target_endian = "big") {
        numbers.iter_mut().for_each(|number| *number = swapped(*number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(element_type: ElementType, values: &[f32]) -> Vec<u16> {
        let mut bytes = Vec::new();
        let all = encode(element_type, values, |offset, piece| {
            assert_eq!(offset, bytes.len() as u64);
            bytes.extend_from_slice(piece);
            Ok::<_, ()>(())
        });
        all.unwrap();
        bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    #[test]
    fn ties_go_to_the_even_neighbour() {
        // 1 + 2⁻⁸ is halfway between 1 and 1 + 2⁻⁷, the next bf16 number. 1 + 3 · 2⁻⁸ is halfway
        // between two numbers of which the upper is even. For f16 the same holds with 2⁻¹¹.
        let ties = |half: f32| [1.0 + half, 1.0 + 3.0 * half, 1.0 + half * 1.001, -1.0 - half];
        assert_eq!(encoded(ElementType::Bf16, &ties(2f32.powi(-8))), [0x3f80, 0x3f82, 0x3f81, 0xbf80]);
        assert_eq!(encoded(ElementType::F16, &ties(2f32.powi(-11))), [0x3c00, 0x3c02, 0x3c01, 0xbc00]);
    }

    #[test]
    fn pieces_are_all_of_the_values() {
        let values: Vec<f32> = (0..2 * CONVERTED_AT_ONCE + 7).map(|i| i as f32).collect();
        let expected: Vec<u16> = values.iter().map(|&value| bf16::from_f32(value).to_bits()).collect();
        assert_eq!(encoded(ElementType::Bf16, &values), expected);
    }

    #[test]
    fn values_beyond_a_type_are_found_and_infinities_are_not() {
        let found = |element_type, value| out_of_range(element_type, &[0.0, f32::INFINITY, f32::NAN, value]);
        assert_eq!(found(ElementType::F16, 65519.0), None, "it rounds to the largest");
        assert_eq!(found(ElementType::F16, -65520.0), Some((-65520.0, 65504.0)));
        assert_eq!(found(ElementType::Bf16, f32::MAX).map(|(value, _)| value), Some(f32::MAX));
        assert_eq!(found(ElementType::F32, f32::MAX), None);
    }

    #[test]
    fn the_first_value_that_is_not_finite_is_found() {
        let mut values = vec![1.5f32; 40_001];
        assert_eq!(not_finite(&values), None);
        values[40_000] = f32::NAN;
        assert_eq!(not_finite(&values), Some(40_000));
        values[16_384] = f32::INFINITY;
        assert_eq!(not_finite(&values), Some(16_384));
    }
}
