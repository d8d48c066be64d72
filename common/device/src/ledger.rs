//! Accounting of a rank's memory: live bytes per place and class, their peaks, and the capacity.

use crate::Result;
use crate::error::OutOfMemory;
use events::lock;
use events::{Class, Emitter, Place, What};
use std::sync::{Arc, Mutex};

const CLASSES: usize = Class::ALL.len();
const PLACES: usize = Place::ALL.len();

#[derive(Clone, Copy, Default)]
struct Account {
    live: [u64; CLASSES],
    peak: [u64; CLASSES],
    live_total: u64,
    peak_total: u64,
}

impl Account {
    /// Adds `bytes` and returns the live bytes of the class. `None`, with nothing changed, if the
    /// total would exceed `capacity` or overflow.
    fn take(&mut self, class: Class, bytes: u64, capacity: Option<u64>) -> Option<u64> {
        let total = self.live_total.checked_add(bytes)?;
        if capacity.is_some_and(|capacity| total > capacity) {
            return None;
        }
        let (live, peak) = (&mut self.live[class.index()], &mut self.peak[class.index()]);
        // No class exceeds the total, which did not overflow.
        *live += bytes;
        *peak = (*live).max(*peak);
        self.live_total = total;
        self.peak_total = total.max(self.peak_total);
        Some(*live)
    }

    /// Subtracts `bytes` and returns the live bytes of the class.
    ///
    /// # Panics
    /// If less was live: a ledger that does not balance proves nothing about memory.
    fn release(&mut self, class: Class, bytes: u64) -> u64 {
        let balance = |live: u64| live.checked_sub(bytes).expect("no lease gives back more than it took");
        let live = &mut self.live[class.index()];
        self.live_total = balance(self.live_total);
        *live = balance(*live);
        *live
    }
}

struct Accounts {
    by_place: [Account; PLACES],
    capacity: [Option<u64>; PLACES],
    /// Number of leases requested.
    asked: u64,
    /// The number, from 1, of the lease that a test wants refused; `None` for none.
    refused: Option<u64>,
}

/// A rank's ledger. Clones share the same counts.
#[derive(Clone)]
pub struct Ledger {
    emitter: Emitter,
    accounts: Arc<Mutex<Accounts>>,
}

impl Ledger {
    /// Returns an empty ledger for the rank of `emitter`, with a capacity in bytes for
    /// [`Place::Device`] if given.
    pub fn new(emitter: Emitter, capacity: Option<u64>) -> Self {
        let accounts =
            Accounts { by_place: Default::default(), capacity: [None; PLACES], asked: 0, refused: None };
        let ledger = Ledger { emitter, accounts: Arc::new(Mutex::new(accounts)) };
        ledger.limited(Place::Device, capacity)
    }

    /// Returns this ledger with a capacity in bytes for `place`; `None` for no limit.
    pub fn limited(self, place: Place, capacity: Option<u64>) -> Self {
        lock(&self.accounts).capacity[place.index()] = capacity;
        self
    }

    /// Returns this ledger, which refuses the lease with this number, counted from 1, as if the
    /// system had no more memory: a fault for tests.
    pub fn refusing(self, number: Option<u64>) -> Self {
        lock(&self.accounts).refused = number;
        self
    }

    /// Receives an event per lease.
    pub(crate) fn emitter(&self) -> &Emitter {
        &self.emitter
    }

    /// Counts `bytes` as live until the lease is dropped.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the place's capacity would be exceeded, or a fault refuses the lease. In
    /// that case nothing is counted.
    pub(crate) fn lease(
        &self,
        place: Place,
        class: Class,
        bytes: u64,
    ) -> std::result::Result<Lease, OutOfMemory> {
        let (account, capacity, live, by_system) = {
            let mut accounts = lock(&self.accounts);
            accounts.asked += 1;
            let is_refused = accounts.refused == Some(accounts.asked);
            let capacity = accounts.capacity[place.index()];
            let account = &mut accounts.by_place[place.index()];
            let live = if is_refused { None } else { account.take(class, bytes, capacity) };
            (*account, capacity.unwrap_or(u64::MAX), live, is_refused)
        };
        let Some(live) = live else {
            let error = self.out_of_memory(place, class, bytes, capacity, account);
            return Err(OutOfMemory { by_system, ..error });
        };
        self.emitter.emit(What::Memory { place, class, delta: bytes as i64, live });
        Ok(Lease { ledger: self.clone(), place, class, bytes })
    }

    /// Returns the error for a place with only `free` bytes left that has no room for `bytes` more.
    pub(crate) fn refusal(&self, place: Place, class: Class, bytes: u64, free: u64) -> OutOfMemory {
        let account = lock(&self.accounts).by_place[place.index()];
        self.out_of_memory(place, class, bytes, account.live_total.saturating_add(free), account)
    }

    /// Returns the error for a place in main memory, for which the system gives no `bytes` bytes
    /// more.
    pub(crate) fn exhausted(&self, place: Place, class: Class, bytes: usize) -> OutOfMemory {
        OutOfMemory { by_system: true, ..self.refusal(place, class, bytes as u64, 0) }
    }

    /// Returns an empty vector with room for `len` elements that the ledger does not count.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the system gives no more.
    pub(crate) fn vec_with_capacity<T>(&self, place: Place, len: usize) -> Result<Vec<T>> {
        let mut room = Vec::new();
        let bytes = len.saturating_mul(size_of::<T>());
        match room.try_reserve_exact(len) {
            Ok(()) => Ok(room),
            Err(_) => Err(self.exhausted(place, Class::Workspace, bytes).into()),
        }
    }

    /// Emits that the rank fails, before it frees its buffers, and returns the error.
    fn out_of_memory(
        &self,
        place: Place,
        class: Class,
        requested: u64,
        capacity: u64,
        account: Account,
    ) -> OutOfMemory {
        self.emitter.emit(What::Failing);
        OutOfMemory {
            rank: self.emitter.rank(),
            place,
            class,
            requested,
            capacity,
            live_total: account.live_total,
            live: account.live.to_vec(),
            by_system: false,
        }
    }

    fn release(&self, place: Place, class: Class, bytes: u64) {
        let live = lock(&self.accounts).by_place[place.index()].release(class, bytes);
        self.emitter.emit(What::Memory { place, class, delta: -(bytes as i64), live });
    }

    /// Returns the bytes live now.
    pub fn live(&self, place: Place, class: Class) -> u64 {
        lock(&self.accounts).by_place[place.index()].live[class.index()]
    }

    /// Returns the maximum number of bytes of one class that were ever live at once.
    pub fn peak(&self, place: Place, class: Class) -> u64 {
        lock(&self.accounts).by_place[place.index()].peak[class.index()]
    }

    /// Returns the bytes live now in all classes.
    pub fn live_total(&self, place: Place) -> u64 {
        lock(&self.accounts).by_place[place.index()].live_total
    }

    /// Returns the maximum number of bytes of all classes that were ever live at once.
    pub fn peak_total(&self, place: Place) -> u64 {
        lock(&self.accounts).by_place[place.index()].peak_total
    }
}

/// Bytes that a ledger counts as live until this is dropped.
pub struct Lease {
    ledger: Ledger,
    place: Place,
    class: Class,
    bytes: u64,
}

impl Lease {
    /// Returns the place of the bytes.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the class of the bytes.
    pub fn class(&self) -> Class {
        self.class
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.ledger.release(self.place, self.class, self.bytes);
    }
}

#[cfg(test)]
mod tests;
