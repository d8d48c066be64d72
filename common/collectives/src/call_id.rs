//! The identity of a call.

use events::Operation;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Identifies a call within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallId {
    /// The operation.
    pub operation: Operation,
    /// Its number, counted from 0.
    pub sequence: u64,
}

impl fmt::Display for CallId {
    /// Writes `all-reduce #7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.operation, self.sequence)
    }
}
