//! How an operation's operands are visited: once to check them, once to count their bytes, once to
//! find their addresses.

use crate::Result;
use crate::shapes::Write;

/// What an operand must be, and how much of it an operation moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    /// Name in errors: that of the field.
    pub(crate) name: &'static str,
    /// Number of elements.
    pub(crate) len: Length,
    /// Element type.
    pub(crate) elements: Elements,
    /// Elements read plus elements written.
    pub(crate) moved: usize,
}

/// A number of elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    Exactly(usize),
    AtLeast(usize),
}

/// An element type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Elements {
    /// f32, bf16 or f16.
    Floats,
    /// f32.
    F32,
    /// u32, each below `bound`.
    Indices { bound: usize },
    /// Any type.
    Any,
}

impl Operand {
    /// `len` elements of any type, each read or written once.
    pub(crate) fn any(name: &'static str, len: usize) -> Self {
        Operand { name, len: Length::Exactly(len), elements: Elements::Any, moved: len }
    }

    /// `len` floats, each read or written once.
    pub(crate) fn floats(name: &'static str, len: usize) -> Self {
        Operand { elements: Elements::Floats, ..Operand::any(name, len) }
    }

    /// `len` f32, each read or written once.
    pub(crate) fn f32(name: &'static str, len: usize) -> Self {
        Operand { elements: Elements::F32, ..Operand::any(name, len) }
    }

    /// `len` indices below `bound`.
    pub(crate) fn indices(name: &'static str, len: usize, bound: usize) -> Self {
        Operand { elements: Elements::Indices { bound }, ..Operand::any(name, len) }
    }

    /// Each element is written, and read before if `write` says so.
    pub(crate) fn written(self, write: Write) -> Self {
        if write == Write::Accumulate { self.updated() } else { self }
    }

    /// Each element is read and written.
    pub(crate) fn updated(self) -> Self {
        Operand { moved: 2 * self.moved, ..self }
    }

    /// The operation moves `moved` elements.
    pub(crate) fn moving(self, moved: usize) -> Self {
        Operand { moved, ..self }
    }
}

/// Sees every operand of an operation, in the order of its fields, and makes something of it. `R`
/// is what is read, `W` what is written.
pub(crate) trait Visitor<R, W> {
    /// What becomes of an operand that is read.
    type Read;
    /// What becomes of an operand that is written.
    type Written;

    /// Sees an operand that is read.
    fn read(&mut self, operand: Operand, data: R) -> Result<Self::Read>;

    /// Sees an operand that is written.
    fn write(&mut self, operand: Operand, data: W) -> Result<Self::Written>;

    /// Sees that the size `name` is `got` and has to be `expected`.
    fn size(&mut self, _name: &'static str, _got: usize, _expected: usize) -> Result<()> {
        Ok(())
    }
}
