//! Ranks that play a scenario under every schedule that is tried, with tokens for buffers.

use super::coordinator::Coordinator;
use crate::core::call::{Call, Signature};
use crate::core::context::{CallContext, Waiter};
use crate::core::failure::{Cause, Failure, GroupResult};
use crate::core::observer::Observer;
use crate::core::queue::CallQueue;
use crate::local::slot::Settled;
use events::Operation;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;
use std::time::Duration;

/// How long a player waits. Within one group no rank is blocked on another group.
struct Timeout(Duration);

impl Waiter for Timeout {
    fn timeout(&self) -> Duration {
        self.0
    }

    fn publish(&self, _: Option<u32>) {}

    fn is_blocked(&self, _: u32) -> bool {
        false
    }
}

/// Stands for a buffer and the work on it.
#[derive(Clone)]
pub(super) struct Token {
    /// True while the buffer is left to the collective.
    given: Arc<AtomicBool>,
    meaning: Signature,
}

impl AsRef<Signature> for Token {
    fn as_ref(&self) -> &Signature {
        &self.meaning
    }
}

pub(super) type Outcome = GroupResult<Settled>;

/// One rank in a scenario.
pub(super) struct Player {
    pub(super) coordinator: Arc<Coordinator<Token>>,
    pub(super) member: usize,
    waiter: Timeout,
    calls: CallQueue<u64, (), Failure>,
    /// By sequence number.
    given: Vec<Arc<AtomicBool>>,
    observer: Observer,
}

impl Player {
    pub(super) fn new(coordinator: Arc<Coordinator<Token>>, member: usize) -> Self {
        let observer = Observer::silent(member as u32);
        let (waiter, calls) = (Timeout(Duration::MAX), CallQueue::default());
        Player { coordinator, member, waiter, calls, given: Vec::new(), observer }
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.waiter = Timeout(timeout);
    }

    /// Runs `body` with this rank's context of call number `sequence`.
    pub(super) fn within<R>(&self, sequence: u64, body: impl FnOnce(&CallContext<'_>) -> R) -> R {
        let call = Call::new(Operation::AllReduce, sequence, self.observer.clone());
        body(&CallContext { call: &call, member: self.member, waiter: &self.waiter })
    }

    /// Issues the next call, a broadcast of `root`; returns its sequence number.
    pub(super) fn issue(&mut self, root: usize) -> GroupResult<u64> {
        let sequence = self.given.len() as u64;
        let meaning = Signature { root, ..Signature::new(Operation::Broadcast) };
        let token = Token { given: Arc::new(AtomicBool::new(true)), meaning };
        let given = token.given.clone();
        self.within(sequence, |context| {
            self.coordinator.issue(context, token, Duration::ZERO, Duration::ZERO)
        })?;
        self.given.push(given);
        self.calls.push(sequence, sequence);
        Ok(sequence)
    }

    pub(super) fn wait(&self, sequence: u64) -> Outcome {
        self.wait_with(sequence, |_| true)
    }

    /// Waits; `work` returns whether the share was finished.
    pub(super) fn wait_with(&self, sequence: u64, work: impl Fn(&CallContext<'_>) -> bool) -> Outcome {
        // A failure ends the work; settling determines the outcome of this call.
        let _ =
            self.calls.finish(sequence, |&next| self.within(next, |context| self.take_part(context, &work)));
        self.settle(sequence)
    }

    fn take_part(
        &self,
        context: &CallContext<'_>,
        work: &impl Fn(&CallContext<'_>) -> bool,
    ) -> GroupResult<()> {
        let all = self.coordinator.enter(context)?;
        let untouched = || all.iter().all(|token| token.given.load(Ordering::SeqCst));
        assert!(untouched(), "a buffer went back before a peer came in");
        let finished = work(context);
        assert!(untouched(), "a buffer went back while a peer was inside");
        self.coordinator.exit(context, finished.then_some(7));
        Ok(())
    }

    fn settle(&self, sequence: u64) -> Outcome {
        let outcome = self.within(sequence, |context| self.coordinator.settle(context));
        self.given[sequence as usize].store(false, Ordering::SeqCst);
        outcome
    }

    pub(super) fn poison(&self) {
        let cause = Cause::Poisoned { during: "a test".into(), reason: "it wanted to".into() };
        self.coordinator.fail(Failure { culprit: self.member as u32, cause });
    }

    /// Gives up a call as a dropped pending collective does.
    pub(super) fn abandon(&self, sequence: u64) -> Outcome {
        self.poison();
        self.calls.remove(sequence);
        self.settle(sequence)
    }

    /// Issues the next call and waits for it.
    pub(super) fn all(&mut self) -> Outcome {
        let sequence = self.issue(0)?;
        self.wait(sequence)
    }
}

/// Explores `program`, run by every rank; `check` sees each rank's outcomes.
pub(super) fn explore(
    ranks: usize,
    program: impl Fn(&mut Player) -> Vec<Outcome> + Send + Sync + 'static,
    check: impl Fn(Vec<Vec<Outcome>>) + Send + Sync + 'static,
) {
    let program = std::sync::Arc::new(program);
    let check = std::sync::Arc::new(check);
    let scenario = move || {
        let coordinator = Arc::new(Coordinator::new((0..ranks as u32).collect(), Duration::ZERO));
        let start = |member| {
            let (coordinator, program) = (coordinator.clone(), program.clone());
            thread::spawn(move || program(&mut Player::new(coordinator, member)))
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        check(threads.into_iter().map(|thread| thread.join().unwrap()).collect());
    };
    under_all_schedules(scenario);
}

/// Runs `scenario` under every schedule that is tried.
pub(super) fn under_all_schedules(scenario: impl Fn() + Clone + Send + Sync + 'static) {
    shuttle::Runner::new(RandomScheduler::new_from_seed(7, 300), Default::default()).run(scenario.clone());
    shuttle::Runner::new(PctScheduler::new_from_seed(11, 3, 300), Default::default()).run(scenario);
}

/// Asserts that per collective all ranks succeed, or all fail with the same failure; returns the
/// failures.
pub(super) fn agreed(outcomes: &[Vec<Outcome>]) -> Vec<Option<Failure>> {
    let count = outcomes.iter().map(Vec::len).max().unwrap();
    let verdict = |index: usize| {
        let mut verdicts = outcomes.iter().map(|rank| rank[index].clone().err());
        let first = verdicts.next().unwrap();
        verdicts.for_each(|other| assert_eq!(other, first, "ranks disagree about collective {index}"));
        first
    };
    (0..count).map(verdict).collect()
}
