//! Errors of a device.

use crate::dtype::DType;
use events::{Class, Place};

/// An allocation did not fit. Reports the live bytes; crates that know the stage add remedies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rank {rank} is out of memory: {requested} bytes for {class} on the {place}, but {live_total} of {capacity} bytes are live"
)]
pub struct OutOfMemory {
    /// The rank that ran out.
    pub rank: u32,
    /// The place that is full.
    pub place: Place,
    /// The class of the requested bytes.
    pub class: Class,
    /// Bytes asked for.
    pub requested: u64,
    /// The place's capacity in bytes.
    pub capacity: u64,
    /// Bytes live in all classes.
    pub live_total: u64,
    /// Bytes live per class, in [`Class::ALL`]'s order.
    pub live: Vec<u64>,
    /// True if the place has no capacity that is exceeded: the system gave no more main memory.
    pub by_system: bool,
}

/// A device operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// See [`OutOfMemory`].
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// A kernel was given buffers of the wrong shape: a bug in the caller, reported rather than
    /// computed.
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
    /// An index is past the end of its table: a token that is not in the vocabulary.
    #[error("{kernel}: {operand} contains {got}, but there are only {bound}")]
    Index {
        /// The kernel.
        kernel: &'static str,
        /// Which of its operands.
        operand: &'static str,
        /// The index.
        got: u32,
        /// The number of rows of the table.
        bound: usize,
    },
    /// A GPU's kernel was given main memory.
    #[error("{kernel}: {operand} is in main memory, which a GPU's kernel cannot reach")]
    Elsewhere {
        /// The kernel.
        kernel: &'static str,
        /// Which of its operands.
        operand: &'static str,
    },
    /// A library is missing on this machine.
    #[error("{library} was not found: {remedy}")]
    Missing {
        /// Its file's name, without an ending.
        library: &'static str,
        /// The advice where to get it.
        remedy: &'static str,
    },
    /// A call of NVIDIA's driver or libraries failed.
    #[error("{call}: {reason}")]
    Cuda {
        /// The call.
        call: &'static str,
        /// The library's message.
        reason: String,
    },
}
