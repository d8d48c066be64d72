//! Which waits time out, by clocks and peers that the test sets.

use super::*;
use crate::core::call::Call;
use crate::core::context::Waiter;
use crate::core::observer::Observer;
use events::Operation;
use std::cell::{Cell, RefCell};
use std::time::Instant;

/// A waiter whose clocks and peers the test sets.
struct Script {
    timeout: Duration,
    paused: Cell<Duration>,
    since_delivery: Cell<Duration>,
    published: RefCell<Vec<Option<u32>>>,
    /// Ranks below this one are blocked.
    blocked: Cell<u32>,
}

impl Waiter for Script {
    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn paused(&self, _: &Observer) -> Duration {
        self.paused.get()
    }

    fn since_delivery(&self, _: Duration) -> Duration {
        self.since_delivery.get()
    }

    fn publish(&self, rank: Option<u32>) {
        self.published.borrow_mut().push(rank);
    }

    fn is_blocked(&self, rank: u32) -> bool {
        rank < self.blocked.get()
    }
}

fn script(timeout: Duration) -> (Script, Call) {
    let waiter = Script {
        timeout,
        paused: Cell::default(),
        since_delivery: Cell::new(Duration::MAX),
        published: RefCell::default(),
        blocked: Cell::default(),
    };
    (waiter, Call::new(Operation::Barrier, 0, Observer::silent(0)))
}

fn start<'a>((waiter, call): &'a (Script, Call)) -> Deadline<'a> {
    Deadline::start(&CallContext { call, member: 0, waiter })
}

fn wait(time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {}
}

const TINY: Duration = Duration::from_nanos(1);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn time_under_hold_does_not_count() {
    let script = script(TINY);
    let mut deadline = start(&script);
    wait(Duration::from_micros(1));
    assert_eq!(deadline.poll(&[1]), Err(1));
    script.0.paused.set(seconds(60));
    assert!(deadline.poll(&[1]).is_ok());
}

/// A timeout of ten seconds, of which three pass before a stop of a minute.
#[test]
fn time_in_which_the_process_is_stopped_does_not_count() {
    let script = script(seconds(10));
    let mut deadline = start(&script);
    let mut poll = |run: u64| deadline.poll_at(seconds(run), &[1]);
    assert!((1..=3).all(|run| poll(run) == Ok(MAX_POLL_INTERVAL)), "it polls again and again");
    assert!((63..69).all(|run| poll(run) == Ok(MAX_POLL_INTERVAL)));
    assert_eq!(poll(70), Err(1));
}

/// A timeout of one second, of which three tenths pass before a stop of a minute.
#[test]
fn a_stop_uses_up_little_of_a_short_timeout() {
    let tenths = |count: u64| Duration::from_millis(100 * count);
    let script = script(tenths(10));
    let mut deadline = start(&script);
    let mut poll = |run: u64| deadline.poll_at(tenths(run), &[1]);
    assert!((1..=3).all(|run| poll(run) == Ok(tenths(1))), "it polls again and again");
    assert!((603..609).all(|run| poll(run) == Ok(tenths(1))));
    assert_eq!(poll(610), Err(1));
}

#[test]
fn the_whole_timeout_is_left_while_a_link_delivers() {
    let script = script(TINY);
    script.0.since_delivery.set(Duration::ZERO);
    let mut deadline = start(&script);
    wait(Duration::from_micros(1));
    assert!(deadline.poll(&[1]).is_ok());
    script.0.since_delivery.set(TINY);
    assert_eq!(deadline.poll(&[1]), Err(1));
}

/// A waiting rank publishes which rank it waits for after a tenth of its timeout, again when
/// that changes, and when the wait is over.
#[test]
fn a_rank_that_waits_for_a_while_publishes_it() {
    let script = script(seconds(10));
    let mut deadline = start(&script);
    for (run, rank) in [(0, 1), (1, 1), (2, 1), (3, 2)] {
        assert_eq!(deadline.poll_at(seconds(run), &[rank]), Ok(MAX_POLL_INTERVAL));
    }
    drop(deadline);
    drop(start(&script));
    assert_eq!(*script.0.published.borrow(), [Some(1), Some(2), None]);
}

/// A timeout of ten seconds: once with three in which the awaited rank is blocked, once with a
/// rank that stays blocked.
#[test]
fn time_in_which_the_awaited_rank_is_blocked_does_not_count() {
    let script = script(seconds(10));
    let mut deadline = start(&script);
    let mut polls = |runs: std::ops::Range<u64>, blocked: bool| {
        script.0.blocked.set(if blocked { 2 } else { 0 });
        runs.into_iter().all(|run| deadline.poll_at(seconds(run), &[1]) == Ok(MAX_POLL_INTERVAL))
    };
    assert!(polls(1..9, false) && polls(9..12, true) && polls(12..13, false));
    assert_eq!(deadline.poll_at(seconds(13), &[1]), Err(1));

    let mut deadline = start(&script);
    script.0.blocked.set(2);
    assert!((1..20).all(|run| deadline.poll_at(seconds(run), &[1]) == Ok(MAX_POLL_INTERVAL)));
    assert_eq!(deadline.poll_at(seconds(20), &[1]), Err(1));
}

/// Of several late ranks, the first that is not blocked is named, without delay.
#[test]
fn a_rank_that_is_not_blocked_is_blamed() {
    let script = script(seconds(10));
    let mut deadline = start(&script);
    script.0.blocked.set(2);
    assert!((1..10).all(|run| deadline.poll_at(seconds(run), &[0, 1, 2, 3]) == Ok(MAX_POLL_INTERVAL)));
    assert_eq!(deadline.poll_at(seconds(10), &[0, 1, 2, 3]), Err(2));
}

/// A rank that waits for one that times out must learn of the failure, not of the end of that
/// rank's wait.
#[test]
fn a_rank_that_times_out_stays_blocked() {
    let script = script(seconds(2));
    let mut deadline = start(&script);
    while deadline.poll_at(deadline.stopwatch.last_poll + Duration::from_millis(200), &[1]).is_ok() {}
    drop(deadline);
    assert_eq!(*script.0.published.borrow(), [Some(1)]);
}
