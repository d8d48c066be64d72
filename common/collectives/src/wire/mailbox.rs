//! Where a process keeps what has arrived until its rank asks for it.

use super::message::{Address, Message};
use super::payload::PayloadPool;
use crate::local::excuses::Waiting;
use crate::local::ticket::{Cause, Failure};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The group of all ranks.
pub(crate) const WORLD: u64 = 0;
/// The group in which all ranks agree before the run begins.
#[cfg(feature = "mpi")]
pub(crate) const SETUP: u64 = 1;

/// Messages, failures and farewells that have reached this process.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
    /// Memory for payloads.
    pub(crate) pool: PayloadPool,
    /// As far as they have told.
    pub(crate) waiting: Waiting,
}

#[derive(Default)]
struct State {
    messages: BTreeMap<Address, Message>,
    /// The first failure of each group.
    failures: BTreeMap<u64, Failure>,
    /// Groups whose failure this process has passed on.
    told: BTreeSet<u64>,
    /// Who will send nothing more to which group.
    departed: BTreeSet<(u64, u32)>,
    /// What each rank has reported to each group.
    reports: BTreeMap<(u64, u32), u64>,
    /// Counts arrivals.
    epoch: u64,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        state.epoch += 1;
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Keeps a message until it is taken.
    pub(crate) fn deliver(&self, address: Address, message: Message) {
        self.change(|state| state.messages.insert(address, message));
    }

    /// Fails `group`, unless it has failed already.
    pub(crate) fn fail(&self, group: u64, failure: Failure) {
        self.change(|state| {
            state.failures.entry(group).or_insert(failure);
        });
    }

    /// `rank` sends nothing more to `group`.
    pub(crate) fn depart(&self, group: u64, rank: u32) {
        self.change(|state| state.departed.insert((group, rank)));
    }

    /// `rank` has handed in `count` collectives of `group` elsewhere.
    pub(crate) fn report(&self, group: u64, rank: u32, count: u64) {
        self.lock().reports.insert((group, rank), count);
    }

    /// What `rank` has reported last, or 0.
    pub(crate) fn reported(&self, group: u64, rank: u32) -> u64 {
        self.lock().reports.get(&(group, rank)).copied().unwrap_or(0)
    }

    /// The connection to `rank` is gone. Its fault, unless it had said farewell.
    pub(crate) fn lost(&self, rank: u32, reason: String) {
        if self.departed(WORLD, &[rank]).is_some() {
            return self.change(|_| ());
        }
        let cause = Cause::Poisoned { during: "its run".into(), reason };
        self.fail(WORLD, Failure { culprit: rank, cause });
    }

    /// The first of `ranks` that sends nothing more to `group`.
    pub(crate) fn departed(&self, group: u64, ranks: &[u32]) -> Option<u32> {
        let state = self.lock();
        ranks.iter().copied().find(|&rank| state.departed.contains(&(group, rank)))
    }

    /// The first failure of the first of `groups` that has failed, and whether it is asked for for the first time.
    pub(crate) fn failure(&self, groups: &[u64]) -> Option<(u64, Failure, bool)> {
        let mut state = self.lock();
        let found = groups.iter().find_map(|group| Some((*group, state.failures.get(group)?.clone())));
        found.map(|(group, failure)| (group, failure, state.told.insert(group)))
    }

    /// Takes the messages at all `addresses`; or tells whose are not there, and the count of arrivals at this moment.
    pub(crate) fn take(&self, addresses: &[Address]) -> Result<Vec<Message>, (Vec<u32>, u64)> {
        let mut state = self.lock();
        let missing = addresses.iter().filter(|address| !state.messages.contains_key(address));
        let missing: Vec<u32> = missing.map(|address| address.from).collect();
        if !missing.is_empty() {
            return Err((missing, state.epoch));
        }
        Ok(addresses.iter().filter_map(|address| state.messages.remove(address)).collect())
    }

    /// Parks until something arrives after `seen`, for at most `time`.
    pub(crate) fn park(&self, seen: u64, time: Duration) {
        let state = self.lock();
        if state.epoch == seen {
            drop(self.changed.wait_timeout(state, time));
        }
    }

    /// Whether nothing has arrived after `seen`.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "for transports that have to be polled"))]
    pub(crate) fn is_quiet(&self, seen: u64) -> bool {
        self.lock().epoch == seen
    }
}
