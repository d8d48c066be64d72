//! How ranks that share memory meet: issue, arrive, work, done, and poison at any point.
//!
//! Every collective has a slot. A rank *issues* by leaving its contribution there. Once all have arrived, contributions
//! are compared and each rank may *enter*, move its part of the data, and *exit*. A rank *settles* when everybody is
//! done; or, once the group has failed, when nobody is inside the slot and so nobody can be again. That rule is what
//! makes it safe to touch each other's memory, and what makes ranks agree: nobody enters after a failure, so when the
//! slot is empty its outcome is final, and it is success exactly if every part was done.
//!
//! Nothing here knows what is moved; `C` is a contribution.

use super::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, lock, park};
use crate::local::deadline::{Deadline, Patience};
use crate::local::slot::{Entry, Settled, State};
use crate::local::ticket::{Cause, Contribution, Failure, Ticket};
use events::Operation;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The meeting place of one group.
pub(crate) struct Hub<C> {
    /// The members' ranks in the world.
    names: Vec<u32>,
    /// How long to wait busily before parking.
    spin: Duration,
    state: Mutex<State<C>>,
    changed: Condvar,
    /// Counts notifications, to be watched without the lock.
    epoch: AtomicU64,
    /// Waits to come that park at once: busy waiting was in vain, so perhaps members share a core.
    wary: AtomicU64,
}

/// How many waits park at once after one that was busy in vain.
const WARY: u64 = 15;

impl<C: Contribution> Hub<C> {
    /// A group of members with these ranks in the world.
    pub(crate) fn new(names: Vec<u32>, spin: Duration) -> Self {
        let state = Mutex::new(State::new(names.len()));
        let [epoch, wary] = [0, 0].map(AtomicU64::new);
        Hub { names, spin, state, changed: Condvar::new(), epoch, wary }
    }

    /// The members' ranks in the world.
    pub(crate) fn names(&self) -> &[u32] {
        &self.names
    }

    /// Why the group failed, if it has.
    pub(crate) fn failure(&self) -> Option<Failure> {
        lock(&self.state).failure.clone()
    }

    /// Wakes everybody; spares the system call if nobody is parked.
    fn notify(&self, state: &State<C>) {
        self.epoch.fetch_add(1, Ordering::Release);
        if state.parked > 0 {
            self.changed.notify_all();
        }
    }

    fn fail(&self, state: &mut State<C>, failure: Failure) -> Failure {
        if state.failure.is_none() {
            state.failure = Some(failure.clone());
            self.notify(state);
        }
        state.failure.clone().unwrap_or(failure)
    }

    /// Leaves a contribution in the ticket's slot. `now` and `cost` are the simulated link's clock and the time that
    /// the transfer takes on it once the last party has issued and the link is free. Returns when the link will have
    /// delivered everything, on that clock.
    pub(crate) fn issue(
        &self,
        ticket: Ticket,
        contribution: C,
        now: Duration,
        cost: Duration,
    ) -> Result<Duration, Failure> {
        let mut state = lock(&self.state);
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        match state.prepare(&ticket).arrive(&ticket, contribution, &self.names) {
            Ok(false) => {}
            Ok(true) => {
                if !cost.is_zero() {
                    let began = state.link_free.max(now);
                    state.link_free = began + cost;
                    state.slot(&ticket).crossing = Some((began, began + cost));
                }
                self.notify(&state);
            }
            // Everybody learns of it when waiting, this rank too.
            Err(failure) => drop(self.fail(&mut state, failure)),
        }
        Ok(state.link_free)
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
            if let Some(entry) = state.slot(&next).enter(next) {
                return Ok(Some(entry));
            }
            let member = next.lane.member(state.slot(&next).missing());
            let culprit = self.names[member];
            if state.departed[member] {
                return Err(self.fail(&mut state, Failure { culprit, cause: Cause::Departed }));
            }
            let late = self.late(&next, culprit, false, state.slot(&next).operation(&next));
            state = self.wait(state, &mut deadline, culprit, late)?;
        }
    }

    /// Leaves the data of an entered slot; `finished` with `sent` bytes, or not because of a failure.
    pub(crate) fn exit(&self, ticket: &Ticket, finished: bool, sent: u64) {
        let mut state = lock(&self.state);
        let failed = state.failure.is_some();
        let slot = state.slot(ticket);
        slot.exit(ticket, finished, sent);
        let last = slot.complete() || (failed && slot.inside == 0);
        if last {
            self.notify(&state);
        }
    }

    /// Counts one finished step of a ring.
    pub(crate) fn advance(&self, ticket: &Ticket) {
        let mut state = lock(&self.state);
        state.slot(ticket).steps[ticket.party()] += 1;
        self.notify(&state);
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
        let culprit = self.names[other];
        while state.slot(ticket).steps[other] < steps {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let late = self.late(ticket, culprit, true, state.slot(ticket).operation(ticket));
            state = self.wait(state, &mut deadline, culprit, late)?;
        }
        Ok(())
    }

    /// Everybody's contributions to the ticket's slot, once all have arrived and agree. Before [`Hub::settle`].
    pub(crate) fn contributions(&self, ticket: &Ticket) -> Option<Arc<[C]>> {
        lock(&self.state).slot(ticket).contributions()
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
                let settled = slot.outcome(ticket);
                state.leave(ticket);
                return Ok(settled);
            }
            if let Some(failure) = failure {
                if slot.inside == 0 {
                    state.leave(ticket);
                    return Err(failure);
                }
                // Those inside only copy, or wait for steps that the failure has ended: no deadline is needed.
                state = self.rest(state, IDLE);
                continue;
            }
            let culprit = self.names[ticket.lane.member(slot.idle())];
            let late = self.late(ticket, culprit, true, slot.operation(ticket));
            // On a timeout the failure is set, and the next turn sees it.
            state = match self.wait(state, &mut deadline, culprit, late) {
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
        let mut state = lock(&self.state);
        state.departed[member] = true;
        self.notify(&state);
    }

    /// Parks until the group fails or `remaining` returns zero.
    pub(crate) fn sleep(&self, remaining: impl Fn() -> Duration) {
        let mut state = lock(&self.state);
        let mut before = Duration::MAX;
        while state.failure.is_none() {
            let time = remaining();
            if time.is_zero() {
                return;
            }
            // While the run is held, nothing is gained by looking more often than this.
            let held = time + Duration::from_micros(1) >= before;
            state = self.rest(state, if held { time.max(Duration::from_millis(1)) } else { time });
            before = time;
        }
    }

    fn rest<'a>(&'a self, mut state: MutexGuard<'a, State<C>>, time: Duration) -> MutexGuard<'a, State<C>> {
        state.parked += 1;
        let mut state = park(&self.changed, state, time);
        state.parked -= 1;
        state
    }

    /// Waits busily for a while, without the lock, for a notification.
    fn spin<'a>(&'a self, state: MutexGuard<'a, State<C>>) -> MutexGuard<'a, State<C>> {
        let epoch = self.epoch.load(Ordering::Acquire);
        drop(state);
        let since = Instant::now();
        while self.epoch.load(Ordering::Acquire) == epoch {
            if since.elapsed() > self.spin {
                self.wary.store(WARY, Ordering::Relaxed);
                break;
            }
            std::hint::spin_loop();
        }
        lock(&self.state)
    }

    /// Whether a wait should begin busily. Counts the waits that should not; ranks may miscount each other's.
    fn eager(&self) -> bool {
        let wary = self.wary.load(Ordering::Relaxed);
        self.wary.store(wary.saturating_sub(1), Ordering::Relaxed);
        wary == 0
    }

    /// The failure of waiting in vain for `culprit` in the ticket's slot.
    fn late(
        &self,
        ticket: &Ticket,
        culprit: u32,
        issued: bool,
        operation: Operation,
    ) -> impl FnOnce(Duration) -> Failure + use<C> {
        let (reporter, sequence) = (self.names[ticket.member], ticket.sequence);
        move |waited| Failure {
            culprit,
            cause: Cause::Late { reporter, operation, sequence, issued, waited },
        }
    }

    /// Waits for a notification; past the deadline for `culprit` the group fails with `late`.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<C>>,
        deadline: &mut Deadline<'_>,
        culprit: u32,
        late: impl FnOnce(Duration) -> Failure,
    ) -> Result<MutexGuard<'a, State<C>>, Failure> {
        let Ok(left) = deadline.left(&[culprit]) else {
            return Err(self.fail(&mut state, late(deadline.patience.timeout)));
        };
        if !std::mem::replace(&mut deadline.spun, true) && !self.spin.is_zero() && self.eager() {
            return Ok(self.spin(state));
        }
        Ok(self.rest(state, left))
    }
}

/// How long to park where only a notification can help.
const IDLE: Duration = Duration::from_secs(3600);
