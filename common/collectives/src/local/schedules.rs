//! The protocol under a scheduler that explores interleavings: ranks agree, nobody deadlocks, and nobody gets buffers
//! back that a peer still uses.

/// Shuttle's primitives in place of the standard library's. Its condition variables never time out.
mod sync {
    use std::time::Duration;

    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }

    pub(crate) fn park<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, _: Duration) -> MutexGuard<'a, T> {
        condvar.wait(guard).unwrap()
    }
}

// The same source a second time, over other primitives.
#[allow(dead_code, clippy::duplicate_mod)]
#[path = "protocol.rs"]
mod protocol;

mod scenario;

use crate::local::ticket::{Cause, Failure, Lane, Ticket};
use events::Operation;
use protocol::Hub;
use scenario::{FOREVER, Outcome, Rank, agreed, explore};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;
use std::time::Duration;

#[test]
fn collectives_complete_in_any_order_of_waiting() {
    let program = |rank: &mut Rank| {
        let tickets: Vec<_> = (0..3).map(|sequence| rank.issue(Lane::Group, sequence, 0).unwrap()).collect();
        let mut outcomes = vec![None; 3];
        for step in 0..3 {
            let index = (rank.member + step) % 3;
            outcomes[index] = Some(rank.wait(tickets[index]));
        }
        outcomes.into_iter().flatten().collect()
    };
    explore(3, program, |outcomes| assert_eq!(agreed(&outcomes), vec![None; 3]));
}

#[test]
fn poison_at_any_point_releases_everybody() {
    let program = |rank: &mut Rank| {
        let first = rank.all(0);
        if rank.member == 2 {
            rank.poison();
        }
        vec![first, rank.all(1)]
    };
    explore(3, program, |outcomes| {
        // The culprit poisons after its own first wait, so the first is complete.
        let verdicts = agreed(&outcomes);
        assert_eq!(verdicts[0], None);
        assert_eq!(verdicts[1].as_ref().map(|failure| failure.culprit), Some(2));
    });
}

#[test]
fn poison_from_elsewhere_leaves_one_verdict() {
    let program = |rank: &mut Rank| {
        let (hub, member) = (rank.hub.clone(), rank.member);
        let other = thread::spawn(move || {
            if member == 0 {
                Rank { hub, member, timeout: FOREVER, given: Vec::new() }.poison();
            }
        });
        let outcomes = vec![rank.all(0), rank.all(1)];
        other.join().unwrap();
        outcomes
    };
    explore(3, program, |outcomes| {
        let verdicts = agreed(&outcomes);
        assert!(verdicts.iter().flatten().all(|failure| failure.culprit == 0));
        assert!(verdicts[0].is_none() || verdicts[1].is_some(), "a failed group went on");
    });
}

#[test]
fn the_first_of_two_culprits_is_blamed_by_all() {
    let program = |rank: &mut Rank| {
        let first = rank.all(0);
        if rank.member != 1 {
            rank.poison();
        }
        vec![first, rank.all(1)]
    };
    explore(3, program, |outcomes| {
        let verdicts = agreed(&outcomes);
        assert!(matches!(verdicts[1].as_ref().map(|failure| failure.culprit), Some(0 | 2)));
    });
}

#[test]
fn a_dropped_pending_waits_for_those_inside() {
    let program = |rank: &mut Rank| {
        let tickets = [0, 1].map(|sequence| rank.issue(Lane::Group, sequence, 0));
        let [first, second] = tickets;
        let first = first.and_then(|ticket| rank.wait(ticket));
        let second = match second {
            Ok(ticket) if rank.member == 1 => rank.abandon(ticket),
            Ok(ticket) => rank.wait(ticket),
            Err(failure) => Err(failure),
        };
        vec![first, second]
    };
    explore(3, program, |outcomes| {
        let verdicts = agreed(&outcomes);
        assert_eq!(verdicts[0], None);
        assert_eq!(verdicts[1].as_ref().map(|failure| failure.culprit), Some(1));
    });
}

#[test]
fn a_failure_inside_reaches_everybody() {
    let program = |rank: &mut Rank| {
        let outcome = rank.issue(Lane::Group, 0, 0).and_then(|ticket| {
            rank.wait_with(ticket, |_| {
                if rank.member == 1 {
                    rank.poison();
                }
                rank.member != 1
            })
        });
        vec![outcome]
    };
    explore(3, program, |outcomes| {
        assert_eq!(agreed(&outcomes)[0].as_ref().map(|failure| failure.culprit), Some(1));
    });
}

#[test]
fn a_mismatch_is_everybodys() {
    let program = |rank: &mut Rank| {
        let outcome =
            rank.issue(Lane::Group, 0, u32::from(rank.member == 2)).and_then(|ticket| rank.wait(ticket));
        vec![outcome]
    };
    explore(3, program, |outcomes| {
        let failure = agreed(&outcomes).remove(0).unwrap();
        assert_eq!(failure.culprit, 2);
        assert!(matches!(failure.cause, Cause::Mismatch { reference: 0, sequence: 0, .. }));
    });
}

#[test]
fn impatience_fails_all_or_none() {
    let program = |rank: &mut Rank| {
        if rank.member == 0 {
            rank.timeout = Duration::ZERO;
        }
        vec![rank.all(0), rank.all(1)]
    };
    explore(3, program, |outcomes| {
        for failure in agreed(&outcomes).into_iter().flatten() {
            assert!(matches!(
                failure.cause,
                Cause::Late { reporter: 0, operation: Operation::AllReduce, .. }
            ));
            assert_ne!(failure.culprit, 0);
        }
    });
}

#[test]
fn who_leaves_early_is_named() {
    let program = |rank: &mut Rank| {
        let mut outcomes = vec![rank.all(0)];
        if rank.member == 2 {
            rank.hub.depart(2);
        } else {
            outcomes.push(rank.all(1));
        }
        outcomes
    };
    explore(3, program, |outcomes| {
        assert_eq!(agreed(&outcomes[..2])[0], None);
        assert!(outcomes[2][0].is_ok());
        let failure = agreed(&outcomes[..2]).remove(1).unwrap();
        assert_eq!(failure, Failure { culprit: 2, cause: Cause::Departed });
    });
}

#[test]
fn messages_cross_whoever_waits_first() {
    let program = |rank: &mut Rank| {
        let other = 1 - rank.member;
        let send = rank.issue(Lane::Pair { from: rank.member, to: other }, 0, 0).unwrap();
        let recv = rank.issue(Lane::Pair { from: other, to: rank.member }, 0, 0).unwrap();
        let sent = rank.wait(send);
        vec![sent, rank.wait(recv)]
    };
    explore(2, program, |outcomes| {
        assert_eq!(agreed(&outcomes), vec![None; 2]);
        let bytes = |outcome: &Outcome| outcome.as_ref().unwrap().sent;
        assert!(outcomes.iter().all(|rank| (bytes(&rank[0]), bytes(&rank[1])) == (7, 0)));
    });
}

/// Each rank may take a step once its left neighbour has finished the one before.
fn ring(rank: &Rank, ticket: Ticket, finished: &[AtomicUsize], poisoner: Option<usize>) -> Outcome {
    let (left, right) = ((rank.member + 2) % 3, (rank.member + 1) % 3);
    rank.wait_with(ticket, |ticket| {
        for step in 0..4 {
            if poisoner == Some(rank.member) && step == 2 {
                rank.poison();
            }
            if rank.hub.follow(ticket, left, step, &rank.patience()).is_err() {
                return false;
            }
            let reader = finished[right].load(Ordering::SeqCst);
            assert!(step < 2 || reader + 2 > step, "slice {step} overwritten after {reader} reads");
            assert!(finished[left].load(Ordering::SeqCst) >= step);
            finished[rank.member].fetch_add(1, Ordering::SeqCst);
            rank.hub.advance(ticket);
        }
        true
    })
}

#[test]
fn a_ring_keeps_step_and_can_be_poisoned() {
    for poisoner in [None, Some(1)] {
        let scenario = move || {
            let hub = Arc::new(Hub::new(vec![0, 1, 2], Duration::ZERO));
            let finished = Arc::new([0; 3].map(AtomicUsize::new));
            let start = |member| {
                let (hub, finished) = (hub.clone(), finished.clone());
                thread::spawn(move || {
                    let mut rank = Rank { hub, member, timeout: FOREVER, given: Vec::new() };
                    let ticket = rank.issue(Lane::Group, 0, 0);
                    vec![ticket.and_then(|ticket| ring(&rank, ticket, &finished[..], poisoner))]
                })
            };
            let threads: Vec<_> = (0..3).map(start).collect();
            let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let verdict = agreed(&outcomes).remove(0);
            assert!(
                verdict.is_none_or(|failure| Some(failure.culprit) == poisoner.map(|member| member as u32))
            );
        };
        shuttle::Runner::new(RandomScheduler::new_from_seed(7, 300), Default::default()).run(scenario);
        shuttle::Runner::new(PctScheduler::new_from_seed(11, 3, 300), Default::default()).run(scenario);
    }
}
