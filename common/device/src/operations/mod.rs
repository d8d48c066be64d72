//! The operations that training needs, as values: the operands that each reads and writes, and
//! their shapes.
//!
//! An operation is generic over its operands. `R` (read) and `W` (written) are views of buffers
//! where it is requested, through [`Kernels`](crate::Kernels), and addresses on a GPU where it is
//! launched. Its declaration is the only place that states the requirements of each operand:
//! checks, the meter and the search for addresses visit the operands with them.
//!
//! Shapes are row-major. `=` means that an output is overwritten, `+=` that it is added to.

#[macro_use]
mod visit;

mod adamw;
mod attention;
mod matmul;
mod rows;

pub(crate) use adamw::Factors;
pub use adamw::{AdamW, AdamWUpdate};
pub use attention::{Attention, AttentionBackward, Rope};
pub use matmul::{Addend, Matmul, Rounding};
pub use rows::{
    CrossEntropy, Embedding, EmbeddingBackward, RmsNorm, RmsNormBackward, Swiglu, SwigluBackward,
};
pub(crate) use visit::{Elements, Length, Requirement, Visitor};

use crate::Result;

/// An operation with its operands.
#[derive(Clone, Copy, Debug)]
pub enum Operation<R, W> {
    /// See [`Matmul`].
    Matmul(Matmul<R, W>),
    /// See [`Attention`].
    Attention(Attention<R, W>),
    /// See [`AttentionBackward`].
    AttentionBackward(AttentionBackward<R, W>),
    /// Rotates the query and key heads of the packed projections `qkv` in place.
    Rope {
        /// Packed projections, as [`Attention::qkv`].
        qkv: W,
        /// Which heads of which rows.
        rope: Rope,
    },
    /// See [`RmsNorm`].
    RmsNorm(RmsNorm<R, W>),
    /// See [`RmsNormBackward`].
    RmsNormBackward(RmsNormBackward<R, W>),
    /// See [`Swiglu`].
    Swiglu(Swiglu<R, W>),
    /// See [`SwigluBackward`].
    SwigluBackward(SwigluBackward<R, W>),
    /// See [`Embedding`].
    Embedding(Embedding<R, W>),
    /// See [`EmbeddingBackward`].
    EmbeddingBackward(EmbeddingBackward<R, W>),
    /// See [`CrossEntropy`].
    CrossEntropy(CrossEntropy<R, W>),
    /// See [`AdamWUpdate`].
    AdamW(AdamWUpdate<R, W>),
    /// `out += x`, `len` floats.
    Add {
        /// Added to.
        out: W,
        /// Read.
        x: R,
        /// Elements of each.
        len: usize,
    },
    /// `out = x`, `len` elements of one type.
    Copy {
        /// Output.
        out: W,
        /// Read.
        x: R,
        /// Elements of each.
        len: usize,
    },
    /// `out = x`, `len` floats of two types.
    Convert {
        /// Output.
        out: W,
        /// Read.
        x: R,
        /// Elements of each.
        len: usize,
    },
    /// `out = value`, `len` floats.
    Fill {
        /// Output.
        out: W,
        /// The new value of every element.
        value: f32,
        /// Elements.
        len: usize,
    },
}

impl<R, W> Operation<R, W> {
    /// Returns the name in errors: that of the method of [`Kernels`](crate::Kernels) that requests
    /// the operation.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Operation::Matmul(_) => "matmul",
            Operation::Attention(_) => "attention",
            Operation::AttentionBackward(_) => "attention_backward",
            Operation::Rope { .. } => "rope",
            Operation::RmsNorm(_) => "rms_norm",
            Operation::RmsNormBackward(_) => "rms_norm_backward",
            Operation::Swiglu(_) => "swiglu",
            Operation::SwigluBackward(_) => "swiglu_backward",
            Operation::Embedding(_) => "embedding",
            Operation::EmbeddingBackward(_) => "embedding_backward",
            Operation::CrossEntropy(_) => "cross_entropy",
            Operation::AdamW(_) => "adamw",
            Operation::Add { .. } => "add",
            Operation::Copy { .. } | Operation::Convert { .. } => "copy",
            Operation::Fill { .. } => "fill",
        }
    }

    /// Returns the floating-point operations of products and attention; 0 for other kinds, whose
    /// time depends on their bytes.
    pub(crate) fn flops(&self) -> u64 {
        match self {
            Operation::Matmul(product) => product.flops(),
            Operation::Attention(forward) => forward.shape.flops(2),
            Operation::AttentionBackward(backward) => backward.shape.flops(5),
            _ => 0,
        }
    }

    /// Returns the same operation with each operand replaced by `v`'s result.
    ///
    /// # Errors
    /// The visitor's error.
    pub(crate) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<Operation<V::Read, V::Written>> {
        Ok(match self {
            Operation::Matmul(arguments) => Operation::Matmul(arguments.visit(v)?),
            Operation::Attention(arguments) => Operation::Attention(arguments.visit(v)?),
            Operation::AttentionBackward(arguments) => Operation::AttentionBackward(arguments.visit(v)?),
            Operation::Rope { qkv, rope } => Operation::Rope { qkv: rope.visit(v, qkv)?, rope },
            Operation::RmsNorm(arguments) => Operation::RmsNorm(arguments.visit(v)?),
            Operation::RmsNormBackward(arguments) => Operation::RmsNormBackward(arguments.visit(v)?),
            Operation::Swiglu(arguments) => Operation::Swiglu(arguments.visit(v)?),
            Operation::SwigluBackward(arguments) => Operation::SwigluBackward(arguments.visit(v)?),
            Operation::Embedding(arguments) => Operation::Embedding(arguments.visit(v)?),
            Operation::EmbeddingBackward(arguments) => Operation::EmbeddingBackward(arguments.visit(v)?),
            Operation::CrossEntropy(arguments) => Operation::CrossEntropy(arguments.visit(v)?),
            Operation::AdamW(arguments) => Operation::AdamW(arguments.visit(v)?),
            Operation::Add { out, x, len } => {
                let x = v.read(Requirement::floats("x", len), x)?;
                Operation::Add { out: v.write(Requirement::floats("out", len).updated(), out)?, x, len }
            }
            Operation::Copy { out, x, len } => {
                let x = v.read(Requirement::any("x", len), x)?;
                Operation::Copy { out: v.write(Requirement::any("out", len), out)?, x, len }
            }
            Operation::Convert { out, x, len } => {
                let x = v.read(Requirement::floats("x", len), x)?;
                Operation::Convert { out: v.write(Requirement::floats("out", len), out)?, x, len }
            }
            Operation::Fill { out, value, len } => {
                Operation::Fill { out: v.write(Requirement::floats("out", len), out)?, value, len }
            }
        })
    }
}
