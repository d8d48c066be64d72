//! What one rank has moved so far.

use events::Route;
use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

pub(super) const ROUTES: usize = Route::ALL.len();

/// What one rank has moved on each route, and how long it was idle for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// Payload bytes, in [`Route::ALL`]'s order.
    pub bytes: [u64; ROUTES],
    /// Transfers.
    pub calls: [u64; ROUTES],
    /// Seconds in which the rank waited for them.
    pub waited: [f64; ROUTES],
}

impl Add for Moved {
    type Output = Moved;

    fn add(self, other: Moved) -> Moved {
        Moved {
            bytes: std::array::from_fn(|i| self.bytes[i] + other.bytes[i]),
            calls: std::array::from_fn(|i| self.calls[i] + other.calls[i]),
            waited: std::array::from_fn(|i| self.waited[i] + other.waited[i]),
        }
    }
}

impl Sub for Moved {
    type Output = Moved;

    fn sub(self, earlier: Moved) -> Moved {
        Moved {
            bytes: std::array::from_fn(|i| self.bytes[i] - earlier.bytes[i]),
            calls: std::array::from_fn(|i| self.calls[i] - earlier.calls[i]),
            waited: std::array::from_fn(|i| self.waited[i] - earlier.waited[i]),
        }
    }
}
