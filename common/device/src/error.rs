//! What can go wrong on a device.

use crate::dtype::DType;
use events::{Class, Place};

/// An allocation did not fit. Says what is live; what would help is for those who know the stage to add.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rank {rank} is out of memory: {requested} bytes for {class} on the {place}, but {live_total} of {capacity} bytes are live"
)]
pub struct OutOfMemory {
    /// The rank that ran out.
    pub rank: u32,
    /// Where.
    pub place: Place,
    /// What the bytes were for.
    pub class: Class,
    /// Bytes asked for.
    pub requested: u64,
    /// The place's capacity in bytes.
    pub capacity: u64,
    /// Bytes live in all classes.
    pub live_total: u64,
    /// Bytes live per class, in [`Class::ALL`]'s order.
    pub live: Vec<u64>,
}

/// A device operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// See [`OutOfMemory`].
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// A kernel was given buffers of the wrong shape: a bug in the caller, reported rather than computed.
    #[error("{kernel}: {operand} has {got} elements, expected {expected}")]
    Shape {
        /// The kernel.
        kernel: &'static str,
        /// Which of its operands.
        operand: &'static str,
        /// Elements needed.
        expected: usize,
        /// Elements given.
        got: usize,
    },
    /// A kernel does not take this element type.
    #[error("{kernel}: {operand} is {got}, which this kernel does not take")]
    Type {
        /// The kernel.
        kernel: &'static str,
        /// Which of its operands.
        operand: &'static str,
        /// Its element type.
        got: DType,
    },
    /// An index points behind the end of its table: a token that is not in the vocabulary.
    #[error("{kernel}: {operand} contains {got}, but there are only {bound}")]
    Index {
        /// The kernel.
        kernel: &'static str,
        /// Which of its operands.
        operand: &'static str,
        /// The index.
        got: u32,
        /// What it must lie below.
        bound: usize,
    },
    /// A kernel was given memory that it cannot reach.
    #[error("{kernel}: {operand} lies in main memory, where a GPU's kernel cannot go")]
    Elsewhere {
        /// The kernel.
        kernel: &'static str,
        /// Which of its operands.
        operand: &'static str,
    },
    /// A library is nowhere on this machine.
    #[error("{library} was not found: {remedy}")]
    Missing {
        /// Its file's name, without an ending.
        library: &'static str,
        /// Where it comes from.
        remedy: &'static str,
    },
    /// A call of NVIDIA's driver or libraries failed.
    #[error("{call}: {reason}")]
    Cuda {
        /// The call.
        call: &'static str,
        /// What the library says.
        reason: String,
    },
}
