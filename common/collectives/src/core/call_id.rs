//! The identity of a call.

use events::Operation;
use std::fmt;

/// Identifies a call within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    pub(crate) operation: Operation,
    pub(crate) sequence: u64,
}

impl CallId {
    /// Stands in where a failure is noticed outside any call.
    pub(crate) const NONE: CallId = CallId { operation: Operation::Barrier, sequence: 0 };
}

impl fmt::Display for CallId {
    /// Writes `all-reduce #7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.operation, self.sequence)
    }
}
