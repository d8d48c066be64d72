//! How ranks that share memory coordinate a collective: issue, enter, exit, settle. The group may
//! fail at any point.
//!
//! Every collective has a slot. A rank *issues* by publishing its buffers there. Once all ranks
//! have arrived, their calls are compared, and each rank may *enter*, move its part of the
//! data, and *exit*. A rank *settles* when every rank is done; or, once the group has failed, when
//! no rank is inside the slot. No rank enters after a failure, so an empty slot stays empty. That
//! makes it safe to touch each other's memory, and it makes ranks agree: the outcome of an empty
//! slot is final, and it is success exactly if every part was done.
//!
//! Nothing here knows which data moves; `C` is the type that a rank publishes.

use super::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, lock, park};
use crate::core::call::Signature;
use crate::core::context::CallContext;
use crate::core::deadline::Deadline;
use crate::core::failure::{Awaited, Cause, Failure, GroupResult};
use crate::local::slot::{GroupState, Settled};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Coordinates the members of one group.
pub(crate) struct Coordinator<C> {
    /// The members' ranks in the world.
    global_ranks: Vec<u32>,
    /// How long to spin before parking.
    spin: Duration,
    state: Mutex<GroupState<C>>,
    changed: Condvar,
    /// Counts notifications; spinning members read it without the lock.
    epoch: AtomicU64,
    /// The number of coming waits that park without spinning. Spinning timed out, so members may
    /// share a core.
    spin_backoff: AtomicU64,
}

/// The number of waits that park without spinning after one that spun until its limit.
const SPIN_BACKOFF: u64 = 15;

impl<C: AsRef<Signature>> Coordinator<C> {
    /// Returns the coordinator of members with these ranks in the world.
    pub(crate) fn new(global_ranks: Vec<u32>, spin: Duration) -> Self {
        let state = Mutex::new(GroupState::new(global_ranks.len()));
        let [epoch, spin_backoff] = [0, 0].map(AtomicU64::new);
        Coordinator { global_ranks, spin, state, changed: Condvar::new(), epoch, spin_backoff }
    }

    /// Returns the members' ranks in the world.
    pub(crate) fn global_ranks(&self) -> &[u32] {
        &self.global_ranks
    }

    /// Returns why the group failed, if it has.
    pub(crate) fn failure(&self) -> Option<Failure> {
        lock(&self.state).failure.clone()
    }

    /// Wakes all parked members; skips the system call if there are none.
    fn notify(&self, state: &GroupState<C>) {
        self.epoch.fetch_add(1, Ordering::Release);
        if state.parked > 0 {
            self.changed.notify_all();
        }
    }

    /// Sets the group's failure, unless it has one. Returns its failure.
    fn set_failure(&self, state: &mut GroupState<C>, failure: Failure) -> Failure {
        if state.failure.is_none() {
            state.failure = Some(failure.clone());
            self.notify(state);
        }
        state.failure.clone().unwrap_or(failure)
    }

    /// Publishes this member's part of the call. `now` is the simulated link's clock, and `cost`
    /// the time that the transfer takes on the link once the last member has issued and the link is
    /// free. Returns when the link will have delivered everything, on that clock.
    pub(crate) fn issue(
        &self,
        context: &CallContext<'_>,
        published: C,
        now: Duration,
        cost: Duration,
    ) -> GroupResult<Duration> {
        let (mut state, sequence) = (lock(&self.state), context.sequence());
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        match state.prepare(sequence).arrive(context, published, &self.global_ranks) {
            Ok(false) => {}
            Ok(true) => {
                let crossing = (!cost.is_zero()).then(|| {
                    let began = state.link_free.max(now);
                    (began, began + cost)
                });
                state.link_free = crossing.map_or(state.link_free, |(_, ended)| ended);
                let slot = state.slot(sequence);
                slot.crossing = crossing;
                slot.complete = crossing.map_or(now, |(_, ended)| ended);
                self.notify(&state);
            }
            // Every member learns of the failure when it waits, this one included.
            Err(failure) => drop(self.set_failure(&mut state, failure)),
        }
        Ok(state.link_free)
    }

    /// Blocks until all members have issued the call and agree, and enters its slot; returns what
    /// they published. A member enters each slot once, in the order of issue; [`Coordinator::exit`]
    /// must follow.
    pub(crate) fn enter(&self, context: &CallContext<'_>) -> GroupResult<Arc<[C]>> {
        let mut state = lock(&self.state);
        let mut deadline = Deadline::start(context);
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let slot = state.slot(context.sequence());
            if let Some(all) = slot.enter() {
                return Ok(all);
            }
            let missing = slot.missing();
            if let Some(&member) = missing.iter().find(|&&member| state.departed[member]) {
                let culprit = self.global_ranks[member];
                return Err(self.set_failure(&mut state, Failure { culprit, cause: Cause::Departed }));
            }
            state = self.wait(state, &mut deadline, &self.global_ranks_of(&missing), Awaited::Issue)?;
        }
    }

    /// Leaves an entered slot after sending `sent` bytes; `None` if a failure kept the member from
    /// its part.
    pub(crate) fn exit(&self, context: &CallContext<'_>, sent: Option<u64>) {
        let mut state = lock(&self.state);
        let failed = state.failure.is_some();
        let slot = state.slot(context.sequence());
        slot.exit(context.member, sent);
        let last = slot.is_complete() || (failed && slot.inside == 0);
        if last {
            self.notify(&state);
        }
    }

    /// Counts one finished step of a ring.
    pub(crate) fn advance(&self, context: &CallContext<'_>) {
        let mut state = lock(&self.state);
        state.slot(context.sequence()).steps[context.member] += 1;
        self.notify(&state);
    }

    /// Blocks until member `other` has finished `steps` steps of the ring in this slot, which this
    /// member has entered.
    pub(crate) fn wait_for_step(
        &self,
        context: &CallContext<'_>,
        other: usize,
        steps: usize,
    ) -> GroupResult<()> {
        let mut state = lock(&self.state);
        let mut deadline = Deadline::start(context);
        while state.slot(context.sequence()).steps[other] < steps {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            state = self.wait(state, &mut deadline, &[self.global_ranks[other]], Awaited::Part)?;
        }
        Ok(())
    }

    /// Returns what all members published in the slot, once they have arrived and agree. Call it
    /// before [`Coordinator::settle`].
    pub(crate) fn published(&self, context: &CallContext<'_>) -> Option<Arc<[C]>> {
        lock(&self.state).slot(context.sequence()).published()
    }

    /// Blocks until the slot's outcome is final and no other member can touch this member's buffers
    /// again. The member no longer takes part in the slot.
    pub(crate) fn settle(&self, context: &CallContext<'_>) -> GroupResult<Settled> {
        let (mut state, sequence) = (lock(&self.state), context.sequence());
        let mut deadline = Deadline::start(context);
        loop {
            let failure = state.failure.clone();
            let slot = state.slot(sequence);
            if slot.is_complete() {
                let settled = slot.outcome(context.member);
                state.leave(sequence);
                return Ok(settled);
            }
            if let Some(failure) = failure {
                if slot.inside == 0 {
                    state.leave(sequence);
                    return Err(failure);
                }
                // Members inside only copy, or wait for steps that the failure has ended: no
                // deadline is needed.
                state = self.park(state, IDLE);
                continue;
            }
            let unfinished = self.global_ranks_of(&slot.unfinished());
            // On a timeout the failure is set, and the next turn sees it.
            state = match self.wait(state, &mut deadline, &unfinished, Awaited::Part) {
                Ok(state) => state,
                Err(_) => lock(&self.state),
            };
        }
    }

    /// Fails the group, unless it has failed already. Returns its failure.
    pub(crate) fn fail(&self, failure: Failure) -> Failure {
        self.set_failure(&mut lock(&self.state), failure)
    }

    /// Notes that `member` will issue nothing more.
    pub(crate) fn depart(&self, member: usize) {
        let mut state = lock(&self.state);
        state.departed[member] = true;
        self.notify(&state);
    }

    /// Blocks until the group fails or `remaining` returns zero.
    pub(crate) fn sleep(&self, remaining: impl Fn() -> Duration) {
        let mut state = lock(&self.state);
        let mut before = Duration::MAX;
        while state.failure.is_none() {
            let time = remaining();
            if time.is_zero() {
                return;
            }
            // The remaining time does not shrink while the run is paused: look less often then.
            let held = time + Duration::from_micros(1) >= before;
            state = self.park(state, if held { time.max(Duration::from_millis(1)) } else { time });
            before = time;
        }
    }

    /// Parks until a notification, or for about `time`.
    fn park<'a>(
        &'a self,
        mut state: MutexGuard<'a, GroupState<C>>,
        time: Duration,
    ) -> MutexGuard<'a, GroupState<C>> {
        state.parked += 1;
        let mut state = park(&self.changed, state, time);
        state.parked -= 1;
        state
    }

    /// Spins for a while, without the lock, until a notification.
    fn spin<'a>(&'a self, state: MutexGuard<'a, GroupState<C>>) -> MutexGuard<'a, GroupState<C>> {
        let epoch = self.epoch.load(Ordering::Acquire);
        drop(state);
        let since = Instant::now();
        while self.epoch.load(Ordering::Acquire) == epoch {
            if since.elapsed() > self.spin {
                self.spin_backoff.store(SPIN_BACKOFF, Ordering::Relaxed);
                break;
            }
            std::hint::spin_loop();
        }
        lock(&self.state)
    }

    /// True if a wait should spin first. Counts down the waits that should not; members may
    /// miscount each other's.
    fn should_spin(&self) -> bool {
        let spin_backoff = self.spin_backoff.load(Ordering::Relaxed);
        self.spin_backoff.store(spin_backoff.saturating_sub(1), Ordering::Relaxed);
        spin_backoff == 0
    }

    /// Returns the ranks of `members` in the world.
    fn global_ranks_of(&self, members: &[usize]) -> Vec<u32> {
        members.iter().map(|&member| self.global_ranks[member]).collect()
    }

    /// Blocks until a notification. At the deadline for `ranks`, at least one, the group fails: one
    /// of them has not done what is `awaited`.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, GroupState<C>>,
        deadline: &mut Deadline<'_>,
        ranks: &[u32],
        awaited: Awaited,
    ) -> GroupResult<MutexGuard<'a, GroupState<C>>> {
        let left = match deadline.poll(ranks) {
            Ok(left) => left,
            Err(culprit) => {
                let reporter = self.global_ranks[deadline.context.member];
                let failure = deadline.context.timeout_failure(reporter, culprit, awaited);
                return Err(self.set_failure(&mut state, failure));
            }
        };
        if !std::mem::replace(&mut deadline.spun, true) && !self.spin.is_zero() && self.should_spin() {
            return Ok(self.spin(state));
        }
        Ok(self.park(state, left))
    }
}

/// How long to park where only a notification can help.
const IDLE: Duration = Duration::from_secs(3600);
