//! A rank's transfers between its device, main memory and disk.

use crate::amount::{self, bounded, make_room};
use crate::event::{Progress, Route, TransferEvent};
use serde::{Deserialize, Serialize};

const ROUTES: usize = Route::ALL.len();

/// A transfer that the rank has issued and not waited for yet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferFlight {
    /// Its latest event.
    pub event: TransferEvent,
    /// When the rank issued it, in nanoseconds of the run.
    #[serde(deserialize_with = "bounded")]
    pub issued: u64,
}

/// Bytes and waiting time of transfers, per route in [`Route::ALL`]'s order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Bytes.
    #[serde(deserialize_with = "bounded")]
    pub bytes: [u64; ROUTES],
    /// Nanoseconds during which the rank was idle because it waited for them.
    #[serde(deserialize_with = "bounded")]
    pub exposed: [u64; ROUTES],
}

impl Moved {
    /// Returns the transfers since `before`.
    fn since(&self, before: &Moved) -> Moved {
        let mut difference = *self;
        amount::subtract(&mut difference.bytes, &before.bytes);
        amount::subtract(&mut difference.exposed, &before.exposed);
        difference
    }

    /// Returns the sum over all routes, in bytes.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// All transfers of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// The transfers in flight, oldest first.
    pub flights: Vec<TransferFlight>,
    /// The transfer that finished last.
    pub last: Option<TransferFlight>,
    /// Transfers since the run started.
    pub moved: Moved,
    /// Transfers before the current step.
    before: Moved,
    /// Transfers in the latest finished step.
    pub last_step: Moved,
}

impl Transfers {
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.flights[..])
    }

    /// Returns the transfers since the current step began.
    pub fn this_step(&self) -> Moved {
        self.moved.since(&self.before)
    }

    /// True if the rank has issued a transfer on `route` since the run started.
    pub fn uses(&self, route: Route) -> bool {
        self.moved.bytes[route.index()] > 0 || self.flights.iter().any(|flight| flight.event.route == route)
    }

    pub(super) fn apply(&mut self, at: u64, event: TransferEvent) {
        let known = self.flights.iter().position(|flight| flight.event.sequence == event.sequence);
        if event.progress != Progress::Finished {
            if known.is_none() {
                make_room(&mut self.flights);
                self.flights.push(TransferFlight { event, issued: at });
            }
            return;
        }
        // The event that reported the issue may have been lost.
        let issued = known.map_or(at.saturating_sub(event.began), |known| self.flights.remove(known).issued);
        self.last = Some(TransferFlight { event, issued });
        let route = event.route.index();
        self.moved.bytes[route] = self.moved.bytes[route].max(event.moved);
        amount::count(&mut self.moved.exposed[route], event.exposed);
    }

    /// Begins a step. A transfer that was issued before the step that began at `previous` has
    /// finished, and its last event was lost.
    pub(super) fn start_step(&mut self, previous: u64) {
        self.before = self.moved;
        self.flights.retain(|flight| flight.issued >= previous);
    }

    pub(super) fn finish_step(&mut self) {
        self.last_step = self.this_step();
    }
}
