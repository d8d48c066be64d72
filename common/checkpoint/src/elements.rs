//! Conversions between the element types of files and `f32` in memory.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use safetensors::Dtype;
use std::io;

/// Elements converted per read of a 16-bit tensor: 64 KiB.
const CHUNK: usize = 32 * 1024;

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
                from_little_endian(values);
                Ok(())
            }
            ElementType::Bf16 => decode_chunks(start, values, read, |bits, values| {
                bytemuck::cast_slice::<u16, bf16>(bits).convert_to_f32_slice(values);
            }),
            ElementType::F16 => decode_chunks(start, values, read, |bits, values| {
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

/// Passes the little-endian bytes of `values` to `write` piece by piece, each with its offset from
/// the first. Rounds to the nearest number of `element_type`, ties to even.
pub(crate) fn encode<E>(
    element_type: ElementType,
    values: &[f32],
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if element_type == ElementType::F32 && cfg!(target_endian = "little") {
        return write(0, bytemuck::cast_slice(values));
    }
    let mut bytes = Vec::with_capacity(CHUNK.min(values.len()) * element_type.bytes());
    let mut offset = 0;
    for values in values.chunks(CHUNK) {
        bytes.clear();
        match element_type {
            ElementType::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            ElementType::Bf16 => {
                bytes.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()));
            }
            ElementType::F16 => {
                bytes.extend(values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()));
            }
        }
        write(offset, &bytes)?;
        offset += bytes.len() as u64;
    }
    Ok(())
}

/// Returns the first finite value that becomes infinite as `element_type`, and the type's maximum.
pub(crate) fn out_of_range(element_type: ElementType, values: &[f32]) -> Option<(f32, f32)> {
    let (most, rounds_away): (f32, fn(f32) -> bool) = match element_type {
        ElementType::F32 => return None,
        ElementType::Bf16 => (bf16::MAX.into(), |value| bf16::from_f32(value).is_infinite()),
        ElementType::F16 => (f16::MAX.into(), |value| f16::from_f32(value).is_infinite()),
    };
    let beyond = |value: &&f32| value.abs() > most && value.is_finite() && rounds_away(**value);
    values.iter().find(beyond).map(|&value| (value, most))
}

/// Returns the index of the first value that is infinite or NaN.
pub fn not_finite(values: &[f32]) -> Option<usize> {
    match are_finite(bytemuck::cast_slice(values)) {
        true => None,
        false => values.iter().position(|value| !value.is_finite()),
    }
}

/// True if none of the f32 values in `bytes` is infinite or NaN. Checks two values at a time: only
/// an exponent of all ones overflows into the sign bit.
pub(crate) fn are_finite(bytes: &[u8]) -> bool {
    const EXPONENTS: u64 = 0x7f80_0000_7f80_0000;
    const ONES: u64 = 0x0080_0000_0080_0000;
    const SIGNS: u64 = 0x8000_0000_8000_0000;
    let overflow = |pair| (u64::from_le_bytes(pair) & EXPONENTS) + ONES;
    let (pairs, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    // No early exit, so that the compiler vectorises the loop.
    let mut all = overflow(last);
    for pair in pairs {
        all |= overflow(*pair);
    }
    all & SIGNS == 0
}

/// Converts floats that were read as little-endian bytes to this machine's byte order.
pub(crate) fn from_little_endian(values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value = f32::from_bits(u32::from_le(value.to_bits())));
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
        let values: Vec<f32> = (0..2 * CHUNK + 7).map(|i| i as f32).collect();
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
    fn values_that_are_not_finite_are_found_anywhere() {
        let mut values = vec![1.5f32; 40_001];
        values[7] = f32::MIN_POSITIVE / 2.0;
        values[8] = f32::MAX;
        assert_eq!(not_finite(&values), None);
        for at in [0, 16_383, 16_384, 40_000] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut changed = values.clone();
                changed[at] = bad;
                assert_eq!(not_finite(&changed), Some(at), "{bad}");
            }
        }
    }
}
