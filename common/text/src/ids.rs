//! Token ids as files hold them. A run goes through a gigabyte of them before it begins, and this
//! crate is optimised in development builds, too.

/// How a token is stored: as an unsigned little-endian number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Width {
    /// A byte.
    U8 = 1,
    /// Two bytes.
    U16 = 2,
    /// Four bytes.
    U32 = 4,
}

impl Width {
    /// Returns the bytes of a token.
    pub fn size(self) -> usize {
        self as usize
    }

    /// Returns the largest id.
    pub fn largest(self) -> usize {
        (1 << (8 * self.size())) - 1
    }

    /// Returns what `--data-format` calls it.
    pub fn word(self) -> &'static str {
        match self {
            Width::U8 => "bytes",
            Width::U16 => "u16",
            Width::U32 => "u32",
        }
    }

    /// Returns the tokens that `bytes` hold. A part of a token at the end is left out.
    pub fn decode(self, bytes: &[u8]) -> Vec<u32> {
        match self {
            Width::U8 => bytes.iter().copied().map(u32::from).collect(),
            Width::U16 => bytes.as_chunks().0.iter().map(|id| u16::from_le_bytes(*id).into()).collect(),
            Width::U32 => bytes.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect(),
        }
    }
}

/// Returns the position of the first token that is outside a model's `vocabulary`, but for the bits
/// that `mask` clears.
pub fn first_outside(tokens: &[u32], mask: u32, vocabulary: usize) -> Option<usize> {
    tokens.iter().position(|&token| (token & mask) as usize >= vocabulary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_little_endian_and_whole() {
        let bytes = [1, 2, 0, 0, 255, 1, 7];
        assert_eq!(Width::U8.decode(&bytes), [1, 2, 0, 0, 255, 1, 7]);
        assert_eq!(Width::U16.decode(&bytes), [0x201, 0, 0x1FF]);
        assert_eq!(Width::U32.decode(&bytes), [0x201]);
        assert_eq!([Width::U8, Width::U16, Width::U32].map(Width::largest), [255, 65_535, 0xFFFF_FFFF]);
    }

    #[test]
    fn the_first_unknown_token_is_found_behind_its_mask() {
        let tokens = [3, 1 << 31 | 2, 1 << 31 | 4, 9];
        assert_eq!(first_outside(&tokens, !(1 << 31), 4), Some(2));
        assert_eq!(first_outside(&tokens, u32::MAX, 4), Some(1));
        assert_eq!(first_outside(&tokens, !(1 << 31), 10), None);
    }
}
