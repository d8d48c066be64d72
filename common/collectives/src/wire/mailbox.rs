//! The messages that have reached a process, kept until its rank asks for them.

use super::message::{Address, Head, Message};
use super::payload::{Payload, PayloadPool};
use crate::core::call::Signature;
use crate::core::failure::{Cause, Failure};
use crate::core::wait_graph::WaitGraph;
use events::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The group of all ranks.
pub(crate) const WORLD: u64 = 0;
/// The group in which all ranks agree before the run begins. Its traffic is not the world's.
#[cfg(feature = "mpi")]
pub(crate) const SETUP: u64 = 1;

/// The failure of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupFailure {
    pub(crate) group: u64,
    pub(crate) failure: Failure,
    /// True if this process has yet to pass it on.
    pub(crate) is_new: bool,
}

/// The messages that have reached this process.
#[derive(Default)]
pub(crate) struct Mailbox {
    arrivals: Mutex<Arrivals>,
    changed: Condvar,
    /// Memory for payloads.
    pub(crate) pool: PayloadPool,
    /// The waits that other ranks have published.
    pub(crate) waiting: WaitGraph,
}

#[derive(Default)]
struct Arrivals {
    /// By address and sender.
    messages: BTreeMap<(Address, u32), Message>,
    /// Messages of which only the head has arrived: their calls' signatures and their lengths in
    /// bytes.
    announced: BTreeMap<(Address, u32), (Signature, usize)>,
    /// The most bytes that a message to an issued call may have, by group and sequence number.
    limits: BTreeMap<(u64, u64), usize>,
    /// Groups and their failures, in the order in which this process learned of them.
    failures: Vec<(u64, Failure)>,
    /// Groups whose failure this process has passed on.
    relayed: BTreeSet<u64>,
    /// Groups and the ranks that will send nothing more to them.
    departed: BTreeSet<(u64, u32)>,
    /// The number of steps that each rank has reported to each group.
    steps: BTreeMap<(u64, u32), u64>,
    /// Counts arrivals.
    epoch: u64,
}

/// Why messages cannot be taken yet.
pub(crate) struct Missing {
    /// The ranks whose messages have not arrived.
    pub(crate) ranks: Vec<u32>,
    /// The first of them that sends nothing more.
    pub(crate) departed: Option<u32>,
    /// The count of arrivals at this moment.
    pub(crate) seen: u64,
}

impl Mailbox {
    fn change<R>(&self, change: impl FnOnce(&mut Arrivals) -> R) -> R {
        let mut arrivals = lock(&self.arrivals);
        let result = change(&mut arrivals);
        arrivals.epoch += 1;
        drop(arrivals);
        self.changed.notify_all();
        result
    }

    /// Takes in a message of rank `from`.
    pub(crate) fn receive(&self, from: u32, head: Head, payload: Payload) {
        match head {
            Head::Data { address, signature } => self.change(|arrivals| {
                arrivals.announced.remove(&(address, from));
                let announced = payload.bytes().len();
                arrivals.messages.insert((address, from), Message { signature, announced, payload });
            }),
            Head::Failed { group, failure } => self.fail(group, failure),
            Head::Departed { group } => self.change(|arrivals| {
                arrivals.departed.insert((group, from));
            }),
            Head::Steps { group, steps } => self.note_steps(group, from, steps),
            Head::Waits { rank } => self.waiting.set(from, rank),
        }
    }

    /// Notes that this rank has issued a call, whose messages carry at most `limit` bytes. Longer
    /// ones are taken in without their bytes.
    pub(crate) fn expect(&self, group: u64, sequence: u64, limit: usize) {
        self.change(|arrivals| {
            arrivals.limits.insert((group, sequence), limit);
            let too_long = |(key, (_, bytes)): (&(Address, u32), &(Signature, usize))| {
                ((key.0.group, key.0.sequence) == (group, sequence) && *bytes > limit).then_some(*key)
            };
            let refused: Vec<_> = arrivals.announced.iter().filter_map(too_long).collect();
            for key in refused {
                let Some((signature, announced)) = arrivals.announced.remove(&key) else { continue };
                arrivals.messages.insert(key, Message { signature, announced, payload: Payload::default() });
            }
        });
    }

    /// Notes that this rank has finished a call.
    pub(crate) fn forget(&self, group: u64, sequence: u64) {
        lock(&self.arrivals).limits.remove(&(group, sequence));
    }

    /// Notes that `bytes` bytes follow a head of rank `from`. False if this rank's call expects
    /// fewer: then the message counts as arrived, and its bytes are to be skipped.
    pub(crate) fn announce(&self, from: u32, head: &Head, bytes: usize) -> bool {
        let Head::Data { address, signature } = head else { return true };
        let limit = {
            let arrivals = &mut *lock(&self.arrivals);
            arrivals.announced.insert((*address, from), (signature.clone(), bytes));
            arrivals.limits.get(&(address.group, address.sequence)).copied()
        };
        let Some(limit) = limit.filter(|&limit| bytes > limit) else { return true };
        self.expect(address.group, address.sequence, limit);
        false
    }

    /// False once this rank has issued the message's call with a smaller limit: the reader then
    /// skips the rest.
    pub(crate) fn wants(&self, from: u32, head: &Head) -> bool {
        let Head::Data { address, .. } = head else { return true };
        self.is_announced(*address, from)
    }

    /// True if a message is announced that has neither arrived nor been refused.
    pub(crate) fn is_announced(&self, address: Address, from: u32) -> bool {
        lock(&self.arrivals).announced.contains_key(&(address, from))
    }

    /// Fails `group`, unless it has failed already. [`Mailbox::failure`] returns the first failure
    /// in a lineage.
    pub(crate) fn fail(&self, group: u64, failure: Failure) {
        self.change(|arrivals| {
            if !arrivals.failures.iter().any(|(failed, _)| *failed == group) {
                arrivals.failures.push((group, failure));
            }
        });
    }

    /// Notes that `rank` has taken at least `steps` steps of `group` in an external engine.
    pub(crate) fn note_steps(&self, group: u64, rank: u32, steps: u64) {
        let arrivals = &mut *lock(&self.arrivals);
        let latest = arrivals.steps.entry((group, rank)).or_default();
        *latest = steps.max(*latest);
    }

    /// Returns the number of steps that `rank` has reported, or 0.
    pub(crate) fn steps(&self, group: u64, rank: u32) -> u64 {
        lock(&self.arrivals).steps.get(&(group, rank)).copied().unwrap_or(0)
    }

    /// Notes that the connection to `rank` is gone. That is a failure of `rank`, unless it has
    /// departed from the world.
    pub(crate) fn lost(&self, rank: u32, reason: String) {
        if lock(&self.arrivals).departed.contains(&(WORLD, rank)) {
            return self.change(|_| ());
        }
        let cause = Cause::Poisoned { during: "its run".into(), reason };
        self.fail(WORLD, Failure { culprit: rank, cause });
    }

    /// Returns the failure of the first of `groups` that failed.
    pub(crate) fn failure(&self, groups: &[u64]) -> Option<GroupFailure> {
        let arrivals = lock(&self.arrivals);
        let (group, failure) = arrivals.failures.iter().find(|(group, _)| groups.contains(group))?.clone();
        let is_new = !arrivals.relayed.contains(&group);
        Some(GroupFailure { group, failure, is_new })
    }

    /// Notes that this process has passed on the failure of `group`.
    pub(crate) fn mark_relayed(&self, group: u64) {
        lock(&self.arrivals).relayed.insert(group);
    }

    /// Takes the messages of all `ranks` at `address`, once all are here. A rank that has departed
    /// from one of `groups`, the address's and those that it was split from, sends nothing more.
    pub(crate) fn take(
        &self,
        address: Address,
        ranks: &[u32],
        groups: &[u64],
    ) -> Result<Vec<Message>, Missing> {
        let mut arrivals = lock(&self.arrivals);
        let missing = |rank: &u32| !arrivals.messages.contains_key(&(address, *rank));
        let missing: Vec<u32> = ranks.iter().copied().filter(missing).collect();
        if !missing.is_empty() {
            let gone = |rank: &u32| groups.iter().any(|group| arrivals.departed.contains(&(*group, *rank)));
            let departed = missing.iter().copied().find(gone);
            return Err(Missing { ranks: missing, departed, seen: arrivals.epoch });
        }
        Ok(ranks.iter().filter_map(|&rank| arrivals.messages.remove(&(address, rank))).collect())
    }

    /// Returns the count of arrivals.
    pub(crate) fn epoch(&self) -> u64 {
        lock(&self.arrivals).epoch
    }

    /// Blocks until a message arrives after `seen`, for at most `time`.
    pub(crate) fn park(&self, seen: u64, time: Duration) {
        let arrivals = lock(&self.arrivals);
        if arrivals.epoch == seen {
            drop(self.changed.wait_timeout(arrivals, time));
        }
    }
}

#[cfg(test)]
mod tests;
