//! The coordinator under a scheduler that explores interleavings: ranks agree, none deadlocks, and
//! none gets buffers back that another still uses.

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
#[path = "coordinator.rs"]
mod coordinator;

mod scenario;

use crate::call_id::CallId;
use crate::core::failure::{Cause, Failure};
use coordinator::Coordinator;
use events::Operation;
use scenario::{Outcome, Player, agreed, explore, under_all_schedules};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;
use std::time::Duration;

#[test]
fn collectives_complete_in_any_order_of_waiting() {
    let program = |rank: &mut Player| {
        let calls: Vec<_> = (0..3).map(|_| rank.issue(0).unwrap()).collect();
        let mut outcomes = vec![None; 3];
        for step in 0..3 {
            let index = (rank.member + step) % 3;
            outcomes[index] = Some(rank.wait(calls[index]));
        }
        outcomes.into_iter().flatten().collect()
    };
    explore(3, program, |outcomes| assert_eq!(agreed(&outcomes), vec![None; 3]));
}

#[test]
fn poison_at_any_point_releases_all_ranks() {
    let program = |rank: &mut Player| {
        let first = rank.all();
        if rank.member == 2 {
            rank.poison();
        }
        vec![first, rank.all()]
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
    let program = |rank: &mut Player| {
        let (coordinator, member) = (rank.coordinator.clone(), rank.member);
        let other = thread::spawn(move || {
            if member == 0 {
                Player::new(coordinator, member).poison();
            }
        });
        let outcomes = vec![rank.all(), rank.all()];
        other.join().unwrap();
        outcomes
    };
    explore(3, program, |outcomes| {
        let verdicts = agreed(&outcomes);
        assert!(verdicts.iter().flatten().all(|failure| failure.culprit == 0));
        assert!(verdicts[0].is_none() || verdicts[1].is_some(), "a failed group did more work");
    });
}

#[test]
fn the_first_of_two_culprits_is_blamed_by_all() {
    let program = |rank: &mut Player| {
        let first = rank.all();
        if rank.member != 1 {
            rank.poison();
        }
        vec![first, rank.all()]
    };
    explore(3, program, |outcomes| {
        let verdicts = agreed(&outcomes);
        assert!(matches!(verdicts[1].as_ref().map(|failure| failure.culprit), Some(0 | 2)));
    });
}

#[test]
fn a_dropped_pending_waits_for_ranks_inside() {
    let program = |rank: &mut Player| {
        let calls = [0, 1].map(|_| rank.issue(0));
        let [first, second] = calls;
        let first = first.and_then(|sequence| rank.wait(sequence));
        let second = match second {
            Ok(sequence) if rank.member == 1 => rank.abandon(sequence),
            Ok(sequence) => rank.wait(sequence),
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
fn a_failure_inside_reaches_all_ranks() {
    let program = |rank: &mut Player| {
        let outcome = rank.issue(0).and_then(|sequence| {
            rank.wait_with(sequence, |_| {
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
fn a_mismatch_fails_every_rank() {
    let program = |rank: &mut Player| {
        let outcome = rank.issue(usize::from(rank.member == 2)).and_then(|sequence| rank.wait(sequence));
        vec![outcome]
    };
    explore(3, program, |outcomes| {
        let failure = agreed(&outcomes).remove(0).unwrap();
        assert_eq!(failure.culprit, 2);
        assert!(matches!(failure.cause, Cause::Mismatch { reference: 0, sequence: 0, .. }));
    });
}

#[test]
fn a_timeout_fails_all_ranks_or_none() {
    let program = |rank: &mut Player| {
        if rank.member == 0 {
            rank.set_timeout(Duration::ZERO);
        }
        vec![rank.all(), rank.all()]
    };
    explore(3, program, |outcomes| {
        for failure in agreed(&outcomes).into_iter().flatten() {
            assert!(matches!(
                failure.cause,
                Cause::Late { reporter: 0, call: CallId { operation: Operation::AllReduce, .. }, .. }
            ));
            assert_ne!(failure.culprit, 0);
        }
    });
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let program = |rank: &mut Player| {
        let mut outcomes = vec![rank.all()];
        if rank.member == 2 {
            rank.coordinator.depart(2);
        } else {
            outcomes.push(rank.all());
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

/// Plays a ring: each rank may take a step once its left neighbour has finished the one before.
fn ring(rank: &Player, sequence: u64, finished: &[AtomicUsize], poisoner: Option<usize>) -> Outcome {
    let (left, right) = ((rank.member + 2) % 3, (rank.member + 1) % 3);
    rank.wait_with(sequence, |context| {
        for step in 0..4 {
            if poisoner == Some(rank.member) && step == 2 {
                rank.poison();
            }
            if rank.coordinator.wait_for_step(context, left, step).is_err() {
                return false;
            }
            let reader = finished[right].load(Ordering::SeqCst);
            assert!(step < 2 || reader + 2 > step, "slice {step} overwritten after {reader} reads");
            assert!(finished[left].load(Ordering::SeqCst) >= step);
            finished[rank.member].fetch_add(1, Ordering::SeqCst);
            rank.coordinator.advance(context);
        }
        true
    })
}

#[test]
fn a_ring_keeps_step_and_can_be_poisoned() {
    for poisoner in [None, Some(1)] {
        let scenario = move || {
            let coordinator = Arc::new(Coordinator::new(vec![0, 1, 2], Duration::ZERO));
            let finished = Arc::new([0; 3].map(AtomicUsize::new));
            let start = |member| {
                let (coordinator, finished) = (coordinator.clone(), finished.clone());
                thread::spawn(move || {
                    let mut rank = Player::new(coordinator, member);
                    let sequence = rank.issue(0);
                    vec![sequence.and_then(|sequence| ring(&rank, sequence, &finished[..], poisoner))]
                })
            };
            let threads: Vec<_> = (0..3).map(start).collect();
            let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let verdict = agreed(&outcomes).remove(0);
            assert!(
                verdict.is_none_or(|failure| Some(failure.culprit) == poisoner.map(|member| member as u32))
            );
        };
        under_all_schedules(scenario);
    }
}
