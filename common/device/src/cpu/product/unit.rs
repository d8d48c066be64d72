//! What the innermost loop multiplies in a step.

use super::registers::Instructions;

/// The 32 bits of an operand that a step multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// An f32.
    Single,
    /// Two bf16 that follow each other along the depth, the first in the low half, for a
    /// processor's dot product.
    Pair,
    /// One bf16, widened, of two that follow each other along the depth, the second one first: the
    /// order in which the dot product adds them.
    Swapped,
}

impl Unit {
    /// The fastest way to multiply bf16 and bf16, or others, and what its steps multiply.
    pub(super) fn fastest(bf16: bool) -> (Instructions, Self) {
        match (bf16, Instructions::pairs()) {
            (false, _) => (Instructions::widest(), Unit::Single),
            (true, Some(pairs)) => (pairs, Unit::Pair),
            (true, None) => (Instructions::widest(), Unit::Swapped),
        }
    }

    /// Steps of a product.
    pub(super) fn steps(self, depth: usize) -> usize {
        match self {
            Unit::Single => depth,
            Unit::Pair => depth.div_ceil(2),
            Unit::Swapped => depth.next_multiple_of(2),
        }
    }
}
