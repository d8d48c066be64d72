//! Bytes between places.

use crate::parts::Figure;
use events::Route;
use serde::ser::{Serialize, Serializer};
use std::collections::BTreeMap;

const ROUTES: usize = Route::ALL.len();

/// What one rank moves between device, main memory and disk: payload bytes and transfers, per
/// route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    bytes: [u64; ROUTES],
    calls: [u64; ROUTES],
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

    /// Takes away `part` of them.
    pub(crate) fn remove(&mut self, part: &Transfers) {
        for i in 0..ROUTES {
            self.bytes[i] -= part.bytes[i];
            self.calls[i] -= part.calls[i];
        }
    }

    /// Returns the payload bytes on `route`.
    pub fn bytes(&self, route: Route) -> u64 {
        self.bytes[route.index()]
    }

    /// Returns the number of transfers on `route`.
    pub fn calls(&self, route: Route) -> u64 {
        self.calls[route.index()]
    }

    /// True if nothing moves.
    pub fn is_none(&self) -> bool {
        self.calls == [0; ROUTES]
    }

    /// Returns the payload bytes on all routes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

impl Figure for Transfers {
    fn add(&mut self, other: &Transfers, times: u64) {
        self.bytes.add(&other.bytes, times);
        self.calls.add(&other.calls, times);
    }
}

impl Serialize for Transfers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let used = Route::ALL.iter().filter(|route| self.calls(**route) > 0);
        serializer.collect_map(used.map(|&route| {
            (route, BTreeMap::from([("bytes", self.bytes(route)), ("calls", self.calls(route))]))
        }))
    }
}
