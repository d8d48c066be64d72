//! Bytes between places.

use crate::counts::counts;
use events::Route;

counts! {
    /// The transfers of one rank between device, main memory and disk: payload bytes and calls, per
    /// route.
    Transfers per Route
}

impl Transfers {
    /// Counts one transfer of `bytes` bytes.
    pub fn count(&mut self, route: Route, bytes: u64) {
        self.count_all(route, bytes, 1);
    }

    /// Counts `times` transfers of `bytes` bytes each.
    pub(crate) fn count_all(&mut self, route: Route, bytes: u64, times: u64) {
        self.bytes[route.index()] += times * bytes;
        self.calls[route.index()] += times;
    }

    /// Subtracts `part`.
    pub(crate) fn remove(&mut self, part: &Transfers) {
        for i in 0..Route::ALL.len() {
            self.bytes[i] -= part.bytes[i];
            self.calls[i] -= part.calls[i];
        }
    }

    /// True if nothing moves.
    pub fn is_none(&self) -> bool {
        self.calls == [0; Route::ALL.len()]
    }
}
