//! Token ids in their storage formats. Before training, a run examines up to a gigabyte of ids and
//! encodes whole texts. These loops are here because development builds optimise this crate but not
//! `settings`.

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
    /// Returns the size of a token in bytes.
    pub fn size(self) -> usize {
        self as usize
    }

    /// Returns the largest id.
    pub fn largest(self) -> usize {
        (1 << (8 * self.size())) - 1
    }

    /// Returns the tokens stored in `bytes`. Ignores an incomplete token at the end.
    pub fn decode(self, bytes: &[u8]) -> Vec<u32> {
        match self {
            Width::U8 => bytes.iter().copied().map(u32::from).collect(),
            Width::U16 => bytes.as_chunks().0.iter().map(|id| u16::from_le_bytes(*id).into()).collect(),
            Width::U32 => bytes.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect(),
        }
    }
}

/// Returns the bytes of `tokens`, four each.
pub fn to_bytes(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

/// Returns the position of the first token that is outside a model's `vocabulary` after the bits of
/// `mark` are cleared.
pub fn first_outside(tokens: &[u32], mark: u32, vocabulary: usize) -> Option<usize> {
    tokens.iter().position(|&token| (token & !mark) as usize >= vocabulary)
}

/// Returns how many tokens have no bit of `mark`.
pub fn unmarked(tokens: &[u32], mark: u32) -> usize {
    tokens.iter().filter(|&token| token & mark == 0).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MARK;

    #[test]
    fn ids_are_little_endian_and_whole() {
        let bytes = [1, 2, 0, 0, 255, 1, 7];
        assert_eq!(Width::U8.decode(&bytes), [1, 2, 0, 0, 255, 1, 7]);
        assert_eq!(Width::U16.decode(&bytes), [0x201, 0, 0x1FF]);
        assert_eq!(Width::U32.decode(&bytes), [0x201]);
        assert_eq!([Width::U8, Width::U16, Width::U32].map(Width::largest), [255, 65_535, 0xFFFF_FFFF]);
    }

    #[test]
    fn bytes_become_the_tokens_that_they_were() {
        let tokens = [0, 1, 0x0102_0304, u32::MAX];
        assert_eq!(to_bytes(&tokens)[8..12], [4, 3, 2, 1]);
        assert_eq!(Width::U32.decode(&to_bytes(&tokens)), tokens);
    }

    #[test]
    fn marked_tokens_are_counted_and_known_without_their_mark() {
        let tokens = [3, 2 | MARK, 4 | MARK, 9];
        assert_eq!(
            [4, 5, 10].map(|vocabulary| first_outside(&tokens, MARK, vocabulary)),
            [Some(2), Some(3), None]
        );
        assert_eq!(first_outside(&tokens, 0, 4), Some(1));
        assert_eq!([MARK, 0, 1].map(|mark| unmarked(&tokens, mark)), [2, 4, 2]);
    }
}
