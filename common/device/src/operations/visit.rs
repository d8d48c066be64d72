//! Visits an operation's operands: once to check them, once to count their bytes, once to find
//! their addresses.

use crate::Result;
use crate::shapes::{GroupedRows, Write};

/// Declares the arguments of an operation, and the method that visits its operands in their order.
///
/// The operands come first. One of type `R` is read, one of type `W` written; in an `Option` it may
/// be missing. Its requirement follows: a constructor of [`Requirement`] without the name, and
/// changes to it. It may depend on the sizes and settings, which come next; a function may check
/// one of them.
macro_rules! operation {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $(
                $(#[$operand_doc:meta])*
                $operand:ident: $type:ident$(<$of:ident>)? =
                    $kind:ident($($argument:expr),*)$(.$change:ident($($by:expr)?))*,
            )+
        } with {
            $($(#[$size_doc:meta])* $size:ident: $size_type:ty,)+
        }
        $(checked by $check:ident($checked:ident))?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<R, W> {
            $($(#[$operand_doc])* pub $operand: $type$(<$of>)?,)+
            $($(#[$size_doc])* pub $size: $size_type,)+
        }

        impl<R, W> $name<R, W> {
            pub(super) fn visit<V: $crate::operations::Visitor<R, W>>(
                self,
                v: &mut V,
            ) -> $crate::Result<$name<V::Read, V::Written>> {
                use $crate::operations::Requirement;
                let $name { $($operand,)+ $($size,)+ } = self;
                $($check(v, $checked)?;)?
                $(
                    let operand = Requirement::$kind(stringify!($operand), $($argument),*)$(.$change($($by)?))*;
                    let $operand = visit_operand!($type$(<$of>)?, v, operand, $operand);
                )+
                Ok($name { $($operand,)+ $($size,)+ })
            }
        }
    };
}

/// The visitor's result for an operand of the type given first.
macro_rules! visit_operand {
    (R, $v:ident, $operand:ident, $data:ident) => {
        $v.read($operand, $data)?
    };
    (W, $v:ident, $operand:ident, $data:ident) => {
        $v.write($operand, $data)?
    };
    (Option<$of:ident>, $v:ident, $operand:ident, $data:ident) => {
        match $data {
            Some(data) => Some(visit_operand!($of, $v, $operand, data)),
            None => None,
        }
    };
}

/// The requirements of an operand, and the number of elements that an operation moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirement {
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

impl Requirement {
    /// `len` elements of any type, each read or written once.
    pub(crate) fn any(name: &'static str, len: usize) -> Self {
        Requirement { name, len: Length::Exactly(len), elements: Elements::Any, moved: len }
    }

    /// `len` floats, each read or written once.
    pub(crate) fn floats(name: &'static str, len: usize) -> Self {
        Requirement { elements: Elements::Floats, ..Requirement::any(name, len) }
    }

    /// Floats with the rows of `shape`, each read or written once.
    pub(crate) fn rows(name: &'static str, shape: GroupedRows) -> Self {
        Requirement::floats(name, shape.extent()).moving(shape.elements())
    }

    /// `len` f32, each read or written once.
    pub(crate) fn f32(name: &'static str, len: usize) -> Self {
        Requirement { elements: Elements::F32, ..Requirement::any(name, len) }
    }

    /// `len` indices below `bound`.
    pub(crate) fn indices(name: &'static str, len: usize, bound: usize) -> Self {
        Requirement { elements: Elements::Indices { bound }, ..Requirement::any(name, len) }
    }

    /// Returns the requirement of an operand whose elements are written, and read before if `write`
    /// says so.
    pub(crate) fn written(self, write: Write) -> Self {
        if write == Write::Accumulate { self.updated() } else { self }
    }

    /// Returns the requirement of an operand whose elements are read and written.
    pub(crate) fn updated(self) -> Self {
        Requirement { moved: 2 * self.moved, ..self }
    }

    /// Returns the requirement with `moved` elements moved.
    pub(crate) fn moving(self, moved: usize) -> Self {
        Requirement { moved, ..self }
    }
}

/// Visits every operand of an operation, in the order of its fields, and maps it. `R` is the type
/// of operands that are read, `W` of those that are written.
pub(crate) trait Visitor<R, W> {
    /// The result for an operand that is read.
    type Read;
    /// The result for an operand that is written.
    type Written;

    /// Visits an operand that is read.
    fn read(&mut self, operand: Requirement, data: R) -> Result<Self::Read>;

    /// Visits an operand that is written.
    fn write(&mut self, operand: Requirement, data: W) -> Result<Self::Written>;

    /// Checks the size `name`, which is `got` and must be `expected`.
    fn size(&mut self, _name: &'static str, _got: usize, _expected: usize) -> Result<()> {
        Ok(())
    }
}
