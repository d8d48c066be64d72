//! What one rank has moved so far.

use events::Route;
use serde::{Deserialize, Serialize};

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

events::counters! { Moved [bytes, calls, waited] }
