//! Ranks that play a scenario under every schedule that is tried, with tokens for buffers.

use super::protocol::Hub;
use crate::local::deadline::Patience;
use crate::local::excuses::Excuses;
use crate::local::slot::{Entry, Settled};
use crate::local::ticket::{Cause, Contribution, Failure, Lane, Ticket};
use events::Operation;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;
use std::time::Duration;

pub(super) const FOREVER: Duration = Duration::MAX;

/// Ranks of one group need no excuses.
struct Nobody;

impl Excuses for Nobody {
    fn waits_for(&self, _: Option<u32>) {}

    fn is_excused(&self, _: u32) -> bool {
        false
    }
}

/// Stands for a buffer and what is to be done with it.
#[derive(Clone)]
pub(super) struct Token {
    /// Whether its owner has given it away.
    given: Arc<AtomicBool>,
    meaning: u32,
}

impl Contribution for Token {
    fn operation(&self) -> Operation {
        Operation::AllReduce
    }

    fn agrees(&self, other: &Self) -> bool {
        self.meaning == other.meaning
    }

    fn describe(&self, _: &Self) -> String {
        self.meaning.to_string()
    }
}

pub(super) type Outcome = Result<Settled, Failure>;

/// One rank in a scenario.
pub(super) struct Rank {
    pub(super) hub: Arc<Hub<Token>>,
    pub(super) member: usize,
    pub(super) timeout: Duration,
    pub(super) given: Vec<(Ticket, Arc<AtomicBool>)>,
}

impl Rank {
    pub(super) fn patience(&self) -> Patience<'static> {
        let (held, delivered) = (&|| Duration::ZERO, &|| Duration::MAX);
        Patience { timeout: self.timeout, held, delivered, excuses: &Nobody }
    }

    pub(super) fn issue(&mut self, lane: Lane, sequence: u64, meaning: u32) -> Result<Ticket, Failure> {
        let ticket = Ticket { lane, sequence, member: self.member };
        let token = Token { given: Arc::new(AtomicBool::new(true)), meaning };
        self.given.push((ticket, token.given.clone()));
        self.hub.issue(ticket, token, Duration::ZERO, Duration::ZERO)?;
        Ok(ticket)
    }

    pub(super) fn wait(&self, ticket: Ticket) -> Outcome {
        self.wait_with(ticket, |_| true)
    }

    /// Waits; `work` says whether the part was finished.
    pub(super) fn wait_with(&self, ticket: Ticket, work: impl Fn(&Ticket) -> bool) -> Outcome {
        while let Ok(Some(Entry { ticket, all })) = self.hub.enter(&ticket, &self.patience()) {
            let untouched = || all.iter().all(|token| token.given.load(Ordering::SeqCst));
            assert!(untouched(), "a buffer went back before a peer came in");
            let finished = work(&ticket);
            assert!(untouched(), "a buffer went back while a peer was inside");
            self.hub.exit(&ticket, finished, 7);
        }
        self.settle(ticket)
    }

    fn settle(&self, ticket: Ticket) -> Outcome {
        let outcome = self.hub.settle(&ticket, &self.patience());
        let (_, given) = self.given.iter().find(|(other, _)| *other == ticket).unwrap();
        given.store(false, Ordering::SeqCst);
        outcome
    }

    pub(super) fn poison(&self) {
        let cause = Cause::Poisoned { during: "a test".into(), reason: "it wanted to".into() };
        self.hub.poison(Failure { culprit: self.member as u32, cause });
    }

    /// Gives up a ticket as a dropped pending collective does.
    pub(super) fn abandon(&self, ticket: Ticket) -> Outcome {
        self.poison();
        self.settle(ticket)
    }

    pub(super) fn all(&mut self, sequence: u64) -> Outcome {
        let ticket = self.issue(Lane::Group, sequence, 0)?;
        self.wait(ticket)
    }
}

/// Explores `program`, run by every rank; `check` sees each rank's outcomes.
pub(super) fn explore(
    ranks: usize,
    program: impl Fn(&mut Rank) -> Vec<Outcome> + Send + Sync + 'static,
    check: impl Fn(Vec<Vec<Outcome>>) + Send + Sync + 'static,
) {
    let program = std::sync::Arc::new(program);
    let check = std::sync::Arc::new(check);
    let scenario = move || {
        let hub = Arc::new(Hub::new((0..ranks as u32).collect(), Duration::ZERO));
        let start = |member| {
            let (hub, program) = (hub.clone(), program.clone());
            thread::spawn(move || program(&mut Rank { hub, member, timeout: FOREVER, given: Vec::new() }))
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        check(threads.into_iter().map(|thread| thread.join().unwrap()).collect());
    };
    shuttle::Runner::new(RandomScheduler::new_from_seed(7, 300), Default::default()).run(scenario.clone());
    shuttle::Runner::new(PctScheduler::new_from_seed(11, 3, 300), Default::default()).run(scenario);
}

/// Per collective, all ranks succeed or all fail with the same failure; the failures seen.
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
