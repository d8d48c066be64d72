//! The state of a group: a slot for every collective that some rank has issued and not all have settled.

use super::ticket::{Contribution, Failure, Lane, Ticket, disagreement};
use events::Operation;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A slot that a member has entered, and everybody's contributions to it.
pub(crate) struct Entry<C> {
    pub(crate) ticket: Ticket,
    pub(crate) all: Arc<[C]>,
}

/// What a settled slot leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// When a simulated link begins and when it delivers, on the clock given when issuing; without a link, nothing.
    pub(crate) crossing: Option<(Duration, Duration)>,
    /// What this member reported on exit.
    pub(crate) sent: u64,
}

/// One collective, from the first rank's issue until the last has settled.
pub(crate) struct Slot<C> {
    arrivals: Vec<Option<C>>,
    /// All contributions, once they have arrived and agree.
    agreed: Option<Arc<[C]>>,
    entered: Vec<bool>,
    done: Vec<bool>,
    sent: Vec<u64>,
    /// Steps of a ring that each party has finished.
    pub(crate) steps: Vec<usize>,
    /// Parties that are moving data.
    pub(crate) inside: usize,
    settled: usize,
    pub(crate) crossing: Option<(Duration, Duration)>,
}

impl<C> Slot<C> {
    fn new(parties: usize) -> Self {
        Slot {
            arrivals: (0..parties).map(|_| None).collect(),
            agreed: None,
            entered: vec![false; parties],
            done: vec![false; parties],
            sent: vec![0; parties],
            steps: vec![0; parties],
            inside: 0,
            settled: 0,
            crossing: None,
        }
    }

    /// Takes a party's contribution. True once all are here and agree.
    pub(crate) fn arrive(&mut self, ticket: &Ticket, contribution: C, names: &[u32]) -> Result<bool, Failure>
    where
        C: Contribution,
    {
        self.arrivals[ticket.party()] = Some(contribution);
        if self.arrivals.iter().any(Option::is_none) {
            return Ok(false);
        }
        let all: Arc<[C]> = self.arrivals.drain(..).flatten().collect();
        if let Some(failure) = disagreement(&all, ticket, names) {
            return Err(failure);
        }
        self.agreed = Some(all);
        Ok(true)
    }

    /// Lets a party in, if all have arrived and agree.
    pub(crate) fn enter(&mut self, ticket: Ticket) -> Option<Entry<C>> {
        let all = self.agreed.clone()?;
        self.entered[ticket.party()] = true;
        self.inside += 1;
        Some(Entry { ticket, all })
    }

    /// Everybody's contributions, once they have arrived and agree.
    pub(crate) fn contributions(&self) -> Option<Arc<[C]>> {
        self.agreed.clone()
    }

    /// Whether the part that the ticket's member would do is not taken yet. Of a message, either end may do it all.
    fn open(&self, ticket: &Ticket) -> bool {
        match ticket.lane {
            Lane::Group => !self.entered[ticket.party()],
            Lane::Pair { .. } => self.entered.iter().all(|entered| !entered),
        }
    }

    /// Lets a party out, with its part done or not. A message's bytes are booked on its sender.
    pub(crate) fn exit(&mut self, ticket: &Ticket, finished: bool, sent: u64) {
        self.inside -= 1;
        match ticket.lane {
            Lane::Group => {
                self.done[ticket.party()] = finished;
                self.sent[ticket.party()] = sent;
            }
            Lane::Pair { .. } => {
                self.done.fill(finished);
                self.sent[0] = sent;
            }
        }
    }

    /// Whether every part is done.
    pub(crate) fn complete(&self) -> bool {
        self.done.iter().all(|&done| done)
    }

    /// The first party that has not arrived.
    pub(crate) fn missing(&self) -> usize {
        self.arrivals.iter().position(Option::is_none).unwrap_or(0)
    }

    /// The first party whose part is not done.
    pub(crate) fn idle(&self) -> usize {
        self.done.iter().position(|&done| !done).unwrap_or(0)
    }

    /// What the ticket's member wants to do here; it has issued.
    pub(crate) fn operation(&self, ticket: &Ticket) -> Operation
    where
        C: Contribution,
    {
        let arrived = self.arrivals.get(ticket.party()).and_then(Option::as_ref);
        let agreed = || self.agreed.as_ref().map(|all| &all[ticket.party()]);
        arrived.or_else(agreed).map_or(Operation::Barrier, Contribution::operation)
    }

    /// What a complete slot means for the ticket's member.
    pub(crate) fn outcome(&self, ticket: &Ticket) -> Settled {
        Settled { crossing: self.crossing, sent: self.sent[ticket.party()] }
    }
}

/// Slots in the order of their sequence numbers.
struct Queue<C> {
    /// Sequence number of the oldest.
    first: u64,
    slots: VecDeque<Slot<C>>,
}

/// Everything that a group's members share.
pub(crate) struct State<C> {
    members: usize,
    lanes: BTreeMap<Lane, Queue<C>>,
    /// Who will issue nothing more.
    pub(crate) departed: Vec<bool>,
    /// The first failure.
    pub(crate) failure: Option<Failure>,
    /// When the simulated link has delivered everything given to it so far.
    pub(crate) link_free: Duration,
    /// Members that are parked and need to be woken.
    pub(crate) parked: usize,
}

impl<C> State<C> {
    pub(crate) fn new(members: usize) -> Self {
        State {
            members,
            lanes: BTreeMap::new(),
            departed: vec![false; members],
            failure: None,
            link_free: Duration::ZERO,
            parked: 0,
        }
    }

    /// Makes the ticket's slot, and those before it, if nobody else has.
    pub(crate) fn prepare(&mut self, ticket: &Ticket) -> &mut Slot<C> {
        let parties = ticket.lane.parties(self.members);
        let empty = || Queue { first: 0, slots: VecDeque::new() };
        let queue = self.lanes.entry(ticket.lane).or_insert_with(empty);
        let index = (ticket.sequence - queue.first) as usize;
        while queue.slots.len() <= index {
            queue.slots.push_back(Slot::new(parties));
        }
        &mut queue.slots[index]
    }

    /// The ticket's slot: it exists from the ticket's issue until all parties have settled.
    pub(crate) fn slot(&mut self, ticket: &Ticket) -> &mut Slot<C> {
        let Some(queue) = self.lanes.get_mut(&ticket.lane) else { unreachable!("{ticket:?} was not issued") };
        &mut queue.slots[(ticket.sequence - queue.first) as usize]
    }

    /// The oldest slot up to the ticket's in which its member's part is open.
    pub(crate) fn next(&self, ticket: &Ticket) -> Option<Ticket> {
        let queue = self.lanes.get(&ticket.lane)?;
        let upto = (ticket.sequence - queue.first) as usize;
        let index = queue.slots.iter().take(upto + 1).position(|slot| slot.open(ticket))?;
        Some(Ticket { sequence: queue.first + index as u64, ..*ticket })
    }

    /// Gives up a ticket; frees slots that nobody holds a ticket for any more.
    pub(crate) fn leave(&mut self, ticket: &Ticket) {
        let parties = ticket.lane.parties(self.members);
        self.slot(ticket).settled += 1;
        let Some(queue) = self.lanes.get_mut(&ticket.lane) else { return };
        while queue.slots.front().is_some_and(|slot| slot.settled == parties) {
            queue.slots.pop_front();
            queue.first += 1;
        }
    }
}
