//! The state of a group: a slot for every collective that some rank has issued and not all have
//! settled.

use crate::core::call::Signature;
use crate::core::context::CallContext;
use crate::core::failure::{Failure, GroupResult, disagreement};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The outcome of a settled slot for one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The times at which a simulated link begins and delivers, on the clock given when issuing;
    /// `None` without a link.
    pub(crate) crossing: Option<(Duration, Duration)>,
    /// The time at which all members had issued and the link had delivered, on that clock.
    pub(crate) complete: Duration,
    /// The bytes that this member reported on exit.
    pub(crate) sent: u64,
}

/// One collective, from the first rank's issue until the last has settled. `C` is the type that a
/// rank publishes.
pub(crate) struct CallSlot<C> {
    arrivals: Vec<Option<C>>,
    /// The calls of all members, once they have arrived and agree.
    agreed: Option<Arc<[C]>>,
    /// By member: the bytes that it has sent, once its part is done.
    sent: Vec<Option<u64>>,
    /// Steps of a ring that each member has finished.
    pub(crate) steps: Vec<usize>,
    /// Members that are moving data.
    pub(crate) inside: usize,
    settled: usize,
    pub(crate) crossing: Option<(Duration, Duration)>,
    /// The time at which the last member had issued, or the link delivers.
    pub(crate) complete: Duration,
}

impl<C> CallSlot<C> {
    fn new(members: usize) -> Self {
        CallSlot {
            arrivals: (0..members).map(|_| None).collect(),
            agreed: None,
            sent: vec![None; members],
            steps: vec![0; members],
            inside: 0,
            settled: 0,
            crossing: None,
            complete: Duration::ZERO,
        }
    }

    /// Takes a member's call. True once all have arrived and agree.
    pub(crate) fn arrive(
        &mut self,
        context: &CallContext<'_>,
        published: C,
        global_ranks: &[u32],
    ) -> GroupResult<bool>
    where
        C: AsRef<Signature>,
    {
        self.arrivals[context.member] = Some(published);
        if self.arrivals.iter().any(Option::is_none) {
            return Ok(false);
        }
        let all: Arc<[C]> = self.arrivals.drain(..).flatten().collect();
        let signatures: Vec<_> = all.iter().map(C::as_ref).collect();
        if let Some(failure) = disagreement(&signatures, context.sequence(), global_ranks) {
            return Err(failure);
        }
        self.agreed = Some(all);
        Ok(true)
    }

    /// Lets a member in, if all have arrived and agree.
    pub(crate) fn enter(&mut self) -> Option<Arc<[C]>> {
        let all = self.agreed.clone()?;
        self.inside += 1;
        Some(all)
    }

    /// Returns the calls of all members, once they have arrived and agree.
    pub(crate) fn published(&self) -> Option<Arc<[C]>> {
        self.agreed.clone()
    }

    /// Lets a member out that has sent `sent` bytes; `None` if its part is not done.
    pub(crate) fn exit(&mut self, member: usize, sent: Option<u64>) {
        self.inside -= 1;
        self.sent[member] = sent;
    }

    /// True if every part is done.
    pub(crate) fn is_complete(&self) -> bool {
        self.sent.iter().all(Option::is_some)
    }

    /// Returns the members that have not arrived: at least one, unless all have or the group has
    /// failed.
    pub(crate) fn missing(&self) -> Vec<usize> {
        absent(&self.arrivals)
    }

    /// Returns the members whose parts are not done: at least one, unless the slot is complete.
    pub(crate) fn unfinished(&self) -> Vec<usize> {
        absent(&self.sent)
    }

    /// Returns the outcome of a complete slot for one member.
    pub(crate) fn outcome(&self, member: usize) -> Settled {
        Settled { crossing: self.crossing, complete: self.complete, sent: self.sent[member].unwrap_or(0) }
    }
}

/// The state that a group's members share.
pub(crate) struct GroupState<C> {
    members: usize,
    /// Sequence number of the oldest slot.
    first: u64,
    /// In the order of their sequence numbers.
    slots: VecDeque<CallSlot<C>>,
    /// By member: true if it will issue nothing more.
    pub(crate) departed: Vec<bool>,
    /// The first failure.
    pub(crate) failure: Option<Failure>,
    /// The time at which the simulated link has delivered everything given to it so far.
    pub(crate) link_free: Duration,
    /// Members that are parked and need to be woken.
    pub(crate) parked: usize,
}

impl<C> GroupState<C> {
    pub(crate) fn new(members: usize) -> Self {
        GroupState {
            members,
            first: 0,
            slots: VecDeque::new(),
            departed: vec![false; members],
            failure: None,
            link_free: Duration::ZERO,
            parked: 0,
        }
    }

    /// Makes the slot with number `sequence`, and those before it, unless another member has.
    pub(crate) fn prepare(&mut self, sequence: u64) -> &mut CallSlot<C> {
        let index = (sequence - self.first) as usize;
        while self.slots.len() <= index {
            self.slots.push_back(CallSlot::new(self.members));
        }
        &mut self.slots[index]
    }

    /// Returns the slot with number `sequence`: it exists from a member's issue until all members
    /// have settled.
    pub(crate) fn slot(&mut self, sequence: u64) -> &mut CallSlot<C> {
        &mut self.slots[(sequence - self.first) as usize]
    }

    /// Notes that a member has settled in a slot; frees slots in which all have.
    pub(crate) fn leave(&mut self, sequence: u64) {
        self.slot(sequence).settled += 1;
        while self.slots.front().is_some_and(|slot| slot.settled == self.members) {
            self.slots.pop_front();
            self.first += 1;
        }
    }
}

/// Returns the members without an entry in `all`.
fn absent<T>(all: &[Option<T>]) -> Vec<usize> {
    all.iter().enumerate().filter(|(_, known)| known.is_none()).map(|(member, _)| member).collect()
}
