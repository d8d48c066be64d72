//! The operands that the innermost loop multiplies in a step.

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
    /// Returns the fastest instructions for two operands of bf16, or of other types, and the unit
    /// that their steps multiply.
    pub(super) fn fastest(bf16: bool) -> (Instructions, Self) {
        if !bf16 {
            return (Instructions::widest(), Unit::Single);
        }
        let widened = (Instructions::widest(), Unit::Swapped);
        Instructions::pairs().map_or(widened, |pairs| (pairs, Unit::Pair))
    }

    /// Returns the steps of a product of this depth.
    pub(super) fn steps(self, depth: usize) -> usize {
        match self {
            Unit::Single => depth,
            Unit::Pair => depth.div_ceil(2),
            Unit::Swapped => depth.next_multiple_of(2),
        }
    }
}
