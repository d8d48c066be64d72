//! The counters of one rank's transfers.

use events::Route;
use serde::{Deserialize, Serialize};

pub(super) const ROUTES: usize = Route::ALL.len();

/// The bytes that one rank has moved on each route, and how long it waited for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransferCounters {
    /// Payload bytes, in [`Route::ALL`]'s order.
    pub bytes: [u64; ROUTES],
    /// Transfers.
    pub calls: [u64; ROUTES],
    /// Seconds in which the rank waited for them.
    pub waited: [f64; ROUTES],
}

events::counters! { TransferCounters [bytes, calls, waited] }
