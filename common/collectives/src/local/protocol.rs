//! How ranks that share memory meet: issue, arrive, work, done, and poison at any point.
//!
//! Every collective has a slot. A rank *issues* by leaving its contribution there. Once all have arrived, contributions
//! are compared and each rank may *enter*, move its part of the data, and *exit*. A rank *settles* when everybody is
//! done; or, once the group has failed, when nobody is inside the slot and so nobody can be again. That rule is what
//! makes it safe to touch each other's memory, and what makes ranks agree: nobody enters after a failure, so when the
//! slot is empty its outcome is final, and it is success exactly if every part was done.
//!
//! Nothing here knows what is moved; `C` is a contribution.

use super::sync::{Arc, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, lock, park};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// What a rank hands in.
pub(crate) trait Contribution {
    /// Whether two ranks that hand in `self` and `other` mean the same collective.
    fn agrees(&self, other: &Self) -> bool;
    /// `self` in words, for a message about how it differs from `other`.
    fn describe(&self, other: &Self) -> String;
}

/// Who meets. Members are numbered within the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// All members.
    Group,
    /// A sender and a receiver.
    Pair { from: usize, to: usize },
}

/// One member's place in one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) lane: Lane,
    /// Number of the slot within its lane.
    pub(crate) sequence: u64,
    /// The member.
    pub(crate) member: usize,
}

/// Why a group failed. The first failure stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The rank to blame, as the world numbers it.
    pub(crate) culprit: u32,
    pub(crate) cause: Cause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The culprit gave up.
    Poisoned { during: String, reason: String },
    /// `reporter` waited in vain for the culprit: to issue, or (`issued`) to do its part.
    Late { reporter: usize, ticket: Ticket, issued: bool, waited: Duration },
    /// The culprit left the group before it issued what others wait for.
    Departed,
    /// The culprit issued something other than `reference` did.
    Mismatch { reference: u32, sequence: u64, expected: String, theirs: String },
}

/// A slot that a member has entered, and everybody's contributions to it.
pub(crate) struct Entry<C> {
    pub(crate) ticket: Ticket,
    pub(crate) all: Arc<[C]>,
}

/// What a settled slot leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// When a simulated link delivers, on the clock given to [`Hub::issue`].
    pub(crate) delivered: Duration,
    /// What this member reported on exit.
    pub(crate) sent: u64,
}

/// How long a member waits for others. The clock stands still while the run is paused.
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Duration,
    /// Time for which the run was held so far.
    pub(crate) held: &'a dyn Fn() -> Duration,
}

struct Slot<C> {
    arrivals: Vec<Option<C>>,
    /// All contributions, once they have arrived and agree.
    agreed: Option<Arc<[C]>>,
    entered: Vec<bool>,
    done: Vec<bool>,
    sent: Vec<u64>,
    /// Steps of a ring that each party has finished.
    steps: Vec<usize>,
    inside: usize,
    settled: usize,
    delivered: Duration,
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
            delivered: Duration::ZERO,
        }
    }

    fn complete(&self) -> bool {
        self.done.iter().all(|&done| done)
    }
}

struct Queue<C> {
    /// Sequence number of the oldest slot.
    first: u64,
    slots: VecDeque<Slot<C>>,
}

struct State<C> {
    lanes: BTreeMap<Lane, Queue<C>>,
    departed: Vec<bool>,
    failure: Option<Failure>,
    /// When the simulated link has delivered everything given to it so far.
    link_free: Duration,
}

/// The meeting place of one group.
pub(crate) struct Hub<C> {
    /// The members' ranks in the world.
    names: Vec<u32>,
    /// Turns of busy waiting before parking.
    spin: u32,
    state: Mutex<State<C>>,
    changed: Condvar,
    /// Counts notifications, to be watched without the lock.
    epoch: AtomicU64,
}

impl<C: Contribution> Hub<C> {
    /// A group of members with these ranks in the world.
    pub(crate) fn new(names: Vec<u32>, spin: u32) -> Self {
        let state = State {
            lanes: BTreeMap::new(),
            departed: vec![false; names.len()],
            failure: None,
            link_free: Duration::ZERO,
        };
        Hub { names, spin, state: Mutex::new(state), changed: Condvar::new(), epoch: AtomicU64::new(0) }
    }

    /// The members' ranks in the world.
    pub(crate) fn names(&self) -> &[u32] {
        &self.names
    }

    /// Why the group failed, if it has.
    pub(crate) fn failure(&self) -> Option<Failure> {
        lock(&self.state).failure.clone()
    }

    fn parties(&self, lane: Lane) -> usize {
        match lane {
            Lane::Group => self.names.len(),
            Lane::Pair { .. } => 2,
        }
    }

    fn notify(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }

    fn fail(&self, state: &mut State<C>, failure: Failure) -> Failure {
        if state.failure.is_none() {
            state.failure = Some(failure.clone());
            self.notify();
        }
        state.failure.clone().unwrap_or(failure)
    }

    /// Leaves a contribution in the ticket's slot. `now` and `cost` are the simulated link's clock and the time that
    /// the transfer takes on it once the last party has issued and the link is free.
    pub(crate) fn issue(
        &self,
        ticket: Ticket,
        contribution: C,
        now: Duration,
        cost: Duration,
    ) -> Result<(), Failure> {
        let parties = self.parties(ticket.lane);
        let mut state = lock(&self.state);
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let queue =
            state.lanes.entry(ticket.lane).or_insert_with(|| Queue { first: 0, slots: VecDeque::new() });
        while queue.first + queue.slots.len() as u64 <= ticket.sequence {
            queue.slots.push_back(Slot::new(parties));
        }
        let slot = &mut queue.slots[(ticket.sequence - queue.first) as usize];
        slot.arrivals[ticket.party()] = Some(contribution);
        if slot.arrivals.iter().any(Option::is_none) {
            return Ok(());
        }
        let all: Arc<[C]> = slot.arrivals.drain(..).flatten().collect();
        if let Some(failure) = disagreement(&all, &ticket, &self.names) {
            self.fail(&mut state, failure);
            return Ok(());
        }
        slot.agreed = Some(all);
        if !cost.is_zero() {
            let delivered = state.link_free.max(now) + cost;
            state.link_free = delivered;
            state.slot(&ticket).delivered = delivered;
        }
        self.notify();
        Ok(())
    }

    /// Waits until this member may work on the oldest slot up to the ticket's in which its part is not taken yet, and
    /// enters it: old slots first, whatever order they are waited for in, so that members cannot wait for each other
    /// in a circle. `None`: nothing is left to do. After an entry, [`Hub::exit`] must follow.
    pub(crate) fn enter(
        &self,
        ticket: &Ticket,
        patience: &Patience<'_>,
    ) -> Result<Option<Entry<C>>, Failure> {
        let mut state = lock(&self.state);
        let mut deadline = Deadline::start(patience);
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let Some(next) = state.next(ticket) else { return Ok(None) };
            let slot = state.slot(&next);
            if let Some(all) = slot.agreed.clone() {
                slot.entered[next.party()] = true;
                slot.inside += 1;
                return Ok(Some(Entry { ticket: next, all }));
            }
            let missing = slot.arrivals.iter().position(Option::is_none).unwrap_or(0);
            let member = next.lane.member(missing);
            let culprit = self.names[member];
            if state.departed[member] {
                return Err(self.fail(&mut state, Failure { culprit, cause: Cause::Departed }));
            }
            state = self.wait(state, &mut deadline, patience, |waited| Failure {
                culprit,
                cause: Cause::Late { reporter: ticket.member, ticket: next, issued: false, waited },
            })?;
        }
    }

    /// Leaves the data of an entered slot; `finished` with `sent` bytes, or not because of a failure.
    pub(crate) fn exit(&self, ticket: &Ticket, finished: bool, sent: u64) {
        let mut state = lock(&self.state);
        let failed = state.failure.is_some();
        let slot = state.slot(ticket);
        slot.inside -= 1;
        match ticket.lane {
            Lane::Group => slot.done[ticket.party()] = finished,
            Lane::Pair { .. } => slot.done.fill(finished),
        }
        // Of a pair, either may move the data, but it is the sender who sent it.
        slot.sent[if ticket.lane == Lane::Group { ticket.party() } else { 0 }] = sent;
        if slot.complete() || (failed && slot.inside == 0) {
            self.notify();
        }
    }

    /// Counts one finished step of a ring.
    pub(crate) fn advance(&self, ticket: &Ticket) {
        let mut state = lock(&self.state);
        state.slot(ticket).steps[ticket.party()] += 1;
        self.notify();
    }

    /// Waits until `other` has finished `steps` steps of the ring in this slot, which this member has entered.
    pub(crate) fn follow(
        &self,
        ticket: &Ticket,
        other: usize,
        steps: usize,
        patience: &Patience<'_>,
    ) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        let mut deadline = Deadline::start(patience);
        while state.slot(ticket).steps[other] < steps {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            state = self.wait(state, &mut deadline, patience, |waited| Failure {
                culprit: self.names[other],
                cause: Cause::Late { reporter: ticket.member, ticket: *ticket, issued: true, waited },
            })?;
        }
        Ok(())
    }

    /// Waits until the slot's outcome is final and nobody can touch this member's contribution again; gives up the
    /// ticket.
    pub(crate) fn settle(&self, ticket: &Ticket, patience: &Patience<'_>) -> Result<Settled, Failure> {
        let mut state = lock(&self.state);
        let mut deadline = Deadline::start(patience);
        loop {
            let failure = state.failure.clone();
            let slot = state.slot(ticket);
            if slot.complete() {
                let settled = Settled { delivered: slot.delivered, sent: slot.sent[ticket.party()] };
                state.leave(ticket, self.parties(ticket.lane));
                return Ok(settled);
            }
            if let Some(failure) = failure {
                if slot.inside == 0 {
                    state.leave(ticket, self.parties(ticket.lane));
                    return Err(failure);
                }
                // Those inside only copy, or wait for steps that the failure has ended: no deadline is needed.
                state = self.rest(state, IDLE);
                continue;
            }
            let late = slot.done.iter().position(|&done| !done).unwrap_or(0);
            let culprit = self.names[ticket.lane.member(late)];
            // On a timeout the failure is set, and the next turn sees it.
            state = match self.wait(state, &mut deadline, patience, |waited| Failure {
                culprit,
                cause: Cause::Late { reporter: ticket.member, ticket: *ticket, issued: true, waited },
            }) {
                Ok(state) => state,
                Err(_) => lock(&self.state),
            };
        }
    }

    /// Fails the group, unless it has failed already.
    pub(crate) fn poison(&self, failure: Failure) {
        self.fail(&mut lock(&self.state), failure);
    }

    /// `member` will issue nothing more.
    pub(crate) fn depart(&self, member: usize) {
        lock(&self.state).departed[member] = true;
        self.notify();
    }

    /// Parks until the group fails or `remaining` returns zero.
    pub(crate) fn sleep(&self, remaining: impl Fn() -> Duration) {
        let mut state = lock(&self.state);
        while state.failure.is_none() {
            let time = remaining();
            if time.is_zero() {
                return;
            }
            state = self.rest(state, time);
        }
    }

    fn rest<'a>(&'a self, guard: MutexGuard<'a, State<C>>, time: Duration) -> MutexGuard<'a, State<C>> {
        park(&self.changed, guard, time)
    }

    /// Waits for a notification; past the deadline the group fails with `late`.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<C>>,
        deadline: &mut Deadline,
        patience: &Patience<'_>,
        late: impl FnOnce(Duration) -> Failure,
    ) -> Result<MutexGuard<'a, State<C>>, Failure> {
        let left = deadline.left(patience);
        if left.is_zero() {
            return Err(self.fail(&mut state, late(patience.timeout)));
        }
        if !deadline.spun && self.spin > 0 {
            deadline.spun = true;
            let epoch = self.epoch.load(Ordering::Acquire);
            drop(state);
            for _ in 0..self.spin {
                if self.epoch.load(Ordering::Acquire) != epoch {
                    break;
                }
                std::hint::spin_loop();
            }
            return Ok(lock(&self.state));
        }
        Ok(self.rest(state, left))
    }
}

/// How long to park where only a notification can help.
const IDLE: Duration = Duration::from_secs(3600);

impl<C> State<C> {
    /// The ticket's slot: it exists from the ticket's issue until all parties have settled.
    fn slot(&mut self, ticket: &Ticket) -> &mut Slot<C> {
        let Some(queue) = self.lanes.get_mut(&ticket.lane) else { unreachable!("{ticket:?} was not issued") };
        &mut queue.slots[(ticket.sequence - queue.first) as usize]
    }

    /// The oldest slot up to `ticket`'s in which its member's part is open.
    fn next(&mut self, ticket: &Ticket) -> Option<Ticket> {
        let queue = self.lanes.get(&ticket.lane)?;
        let open = |slot: &Slot<C>| match ticket.lane {
            Lane::Group => !slot.entered[ticket.party()],
            Lane::Pair { .. } => slot.entered.iter().all(|entered| !entered),
        };
        let upto = (ticket.sequence - queue.first) as usize;
        let index = queue.slots.iter().take(upto + 1).position(open)?;
        Some(Ticket { sequence: queue.first + index as u64, ..*ticket })
    }

    fn leave(&mut self, ticket: &Ticket, parties: usize) {
        self.slot(ticket).settled += 1;
        let Some(queue) = self.lanes.get_mut(&ticket.lane) else { return };
        while queue.slots.front().is_some_and(|slot| slot.settled == parties) {
            queue.slots.pop_front();
            queue.first += 1;
        }
    }
}

impl Lane {
    /// The member behind a party of a slot.
    pub(crate) fn member(self, party: usize) -> usize {
        match (self, party) {
            (Lane::Group, party) => party,
            (Lane::Pair { from, .. }, 0) => from,
            (Lane::Pair { to, .. }, _) => to,
        }
    }
}

impl Ticket {
    /// Its member's index within the slot.
    pub(crate) fn party(&self) -> usize {
        match self.lane {
            Lane::Group => self.member,
            Lane::Pair { from, .. } => usize::from(self.member != from),
        }
    }
}

fn disagreement<C: Contribution>(all: &[C], ticket: &Ticket, names: &[u32]) -> Option<Failure> {
    let reference = &all[0];
    let party = all.iter().position(|other| !other.agrees(reference))?;
    let cause = Cause::Mismatch {
        reference: names[ticket.lane.member(0)],
        sequence: ticket.sequence,
        expected: reference.describe(&all[party]),
        theirs: all[party].describe(reference),
    };
    Some(Failure { culprit: names[ticket.lane.member(party)], cause })
}

/// A deadline that does not run while the run is held.
struct Deadline {
    since: Instant,
    held: Duration,
    spun: bool,
}

impl Deadline {
    fn start(patience: &Patience<'_>) -> Self {
        Deadline { since: Instant::now(), held: (patience.held)(), spun: false }
    }

    /// What is left of the patience. While the run is held it does not shrink, so at least a few milliseconds.
    fn left(&self, patience: &Patience<'_>) -> Duration {
        let held = (patience.held)().saturating_sub(self.held);
        let left = patience.timeout.saturating_sub(self.since.elapsed().saturating_sub(held));
        if left.is_zero() { left } else { left.max(Duration::from_millis(5)) }
    }
}
