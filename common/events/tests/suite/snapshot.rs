//! Tests of the snapshot: later events correct the errors of dropped ones, and a finished rank's
//! numbers equal its report's.

use crate::common::{at, collective, memory, transfer};
use events::units::{GatherState, GradientState};
use events::{Class, Operation, Pass, Place, Progress, RankStatus, Route, Snapshot, What};

fn fold(events: &[events::Event]) -> Snapshot {
    let mut snapshot = Snapshot::new(2, 2);
    events.iter().for_each(|event| snapshot.apply(event));
    snapshot
}

#[test]
fn memory_and_traffic_survive_lost_events() {
    let all = [
        at(1, 0, memory(Class::Parameters, 100, 100)),
        at(2, 0, memory(Class::Parameters, 50, 150)),
        at(3, 0, collective(Operation::AllGather, Progress::Issued, 0, 0, 0)),
        at(4, 0, collective(Operation::AllGather, Progress::Finished, 0, 0, 36)),
        at(5, 0, memory(Class::Parameters, -30, 120)),
        at(6, 0, collective(Operation::AllGather, Progress::Finished, 1, 1, 72)),
    ];
    let whole = fold(&all);
    let holed = fold(&[all[0].clone(), all[4].clone(), all[5].clone()]);
    assert_eq!(whole.ranks[0].live, holed.ranks[0].live);
    assert_eq!(whole.ranks[0].sent.by_operation, holed.ranks[0].sent.by_operation);
    assert_eq!(whole.ranks[0].total_peak, 150);
    assert!(whole.ranks[0].flights.is_empty() && holed.ranks[0].flights.is_empty());
}

#[test]
fn units_are_gathered_released_and_reduced() {
    let events = [
        at(1, 0, memory(Class::GatheredParameters, 48, 48)),
        at(2, 0, collective(Operation::AllGather, Progress::Issued, 0, 1, 0)),
        at(3, 0, collective(Operation::AllGather, Progress::Finished, 0, 1, 36)),
        at(4, 0, What::PassStarted { pass: Pass::Backward, unit: 1, micro: 0 }),
        at(5, 0, What::PassFinished { pass: Pass::Backward, unit: 1, micro: 0 }),
        at(6, 0, memory(Class::GatheredParameters, -48, 0)),
        at(7, 0, collective(Operation::ReduceScatter, Progress::Issued, 1, 1, 0)),
        at(8, 0, collective(Operation::ReduceScatter, Progress::Finished, 1, 1, 36)),
    ];
    let unit = |upto: usize| fold(&events[..upto]).ranks[0].units.units[1];
    let gathers = [2, 3, 5, 6].map(|upto| unit(upto).gather);
    assert_eq!(
        gathers,
        [GatherState::Gathering, GatherState::Gathered, GatherState::Gathered, GatherState::Released]
    );
    let gradients = [3, 5, 7, 8].map(|upto| unit(upto).gradient);
    assert_eq!(
        gradients,
        [GradientState::Absent, GradientState::Local, GradientState::Reducing, GradientState::Reduced]
    );
}

#[test]
fn hops_count_for_their_sender_whichever_rank_emits_them() {
    let hop = |from, to| What::Hop { group: 0, sequence: 0, from, to, chunk: 0, bytes: 7 };
    let snapshot = fold(&[at(1, 0, hop(0, 1)), at(2, 0, hop(1, 0)), at(3, 1, hop(1, 0))]);
    assert_eq!(*snapshot.ranks[0].sent.by_receiver, [0, 7]);
    assert_eq!(*snapshot.ranks[1].sent.by_receiver, [14, 0]);
}

/// A rank waits for the second all-gather before the earlier reduce-scatter; the last event of the
/// first all-gather is lost.
#[test]
fn a_collective_is_in_flight_until_the_rank_has_waited_for_it() {
    use Operation::{AllGather, ReduceScatter};
    let events = [
        at(1, 0, collective(AllGather, Progress::Issued, 0, 0, 0)),
        at(2, 0, collective(ReduceScatter, Progress::Issued, 1, 0, 0)),
        at(3, 0, collective(AllGather, Progress::Issued, 2, 1, 0)),
        at(4, 0, collective(AllGather, Progress::Finished, 2, 1, 36)),
        at(7, 0, collective(ReduceScatter, Progress::Finished, 1, 0, 36)),
    ];
    let rank = |upto: usize| fold(&events[..upto]).ranks[0].clone();
    assert_eq!([1, 2, 3, 4, 5].map(|upto| rank(upto).flights.len()), [1, 2, 3, 1, 0]);
    assert_eq!(rank(4).flights[0].event.operation, ReduceScatter);
    assert_eq!(rank(5).last_flight.map(|flight| (flight.issued, flight.finished)), Some((2, Some(7))));
    assert_eq!(rank(5).collectives, 2);
}

/// The last event of the first transfer is lost.
#[test]
fn transfers_are_in_flight_until_waited_for() {
    let events = [
        at(1, 0, What::StepStarted { step: 0 }),
        at(2, 0, transfer(Progress::Issued, 0, 0)),
        at(3, 0, transfer(Progress::Issued, 1, 0)),
        at(6, 0, transfer(Progress::Finished, 1, 8192)),
        at(7, 0, What::StepStarted { step: 1 }),
        at(8, 0, transfer(Progress::Finished, 2, 12288)),
        at(9, 0, What::StepStarted { step: 2 }),
    ];
    let of = |upto: usize| fold(&events[..upto]).ranks[0].transfers.clone();
    assert_eq!([1, 2, 3, 4, 5, 6, 7].map(|upto| of(upto).flights.len()), [0, 1, 2, 1, 1, 1, 0]);
    let route = Route::DiskToHost.index();
    let moved = [4, 5, 6].map(|upto| (of(upto).moved.bytes[route], of(upto).this_step().bytes[route]));
    assert_eq!(moved, [(8192, 8192), (8192, 0), (12288, 4096)]);
    assert_eq!((of(6).moved.exposed[route], of(6).this_step().exposed[route]), (4, 2));
    assert_eq!(of(6).last.map(|last| last.issued), Some(5), "when it began, for want of its issue");
    assert!(of(2).uses(Route::DiskToHost) && !of(6).uses(Route::HostToDisk));
}

#[test]
fn places_have_peaks_of_their_own() {
    let on = |place, class, live| What::Memory { place, class, delta: 0, live };
    let snapshot = fold(&[
        at(1, 0, memory(Class::Parameters, 8, 8)),
        at(2, 0, on(Place::Host, Class::Optimizer, 100)),
        at(3, 0, on(Place::Host, Class::Workspace, 50)),
        at(4, 0, on(Place::Host, Class::Workspace, 0)),
        at(5, 0, on(Place::Disk, Class::Activations, 7)),
    ]);
    let rank = &snapshot.ranks[0];
    assert_eq!(Place::ALL.iter().map(|&place| rank.peak_in(place)).collect::<Vec<_>>(), [8, 150, 7]);
    assert_eq!((rank.live_in(Place::Host), rank.live_total()), (100, 8));
}

#[test]
fn a_finished_rank_keeps_what_its_report_says() {
    let finished = What::Finished { peaks: vec![9; 7], total_peak: 40, sent: vec![5; 8] };
    let snapshot = fold(&[
        at(1, 0, memory(Class::Parameters, 8, 8)),
        at(2, 0, finished),
        at(3, 0, memory(Class::GatheredParameters, 1000, 1000)),
        at(4, 0, collective(Operation::AllGather, Progress::Finished, 3, 0, 999)),
    ]);
    let rank = &snapshot.ranks[0];
    assert_eq!((rank.total_peak, rank.peak_of(Class::GatheredParameters)), (40, 9));
    assert_eq!(rank.sent.by_operation, [5; 8]);
    assert_eq!(rank.status, RankStatus::Finished);
    assert!(!snapshot.is_over(), "the other rank is still running");
}

/// Rank 0 times out waiting for rank 1 and blames it; rank 2 only learns of the failure.
#[test]
fn a_blamed_rank_is_at_fault() {
    let failed = |message: &str| What::Failed { message: message.into() };
    let blamed = |culprit, heard| What::Blamed { culprit, heard };
    let first_hand = [(0, blamed(1, false)), (0, failed("waited"))];
    let echo = [(2, blamed(1, true)), (2, failed("an echo"))];
    let orders = [[0, 2], [2, 0]].into_iter().flat_map(|noticed| {
        let told = [[&first_hand[..], &echo[..]].concat(), [&echo[..], &first_hand[..]].concat()];
        told.map(|told| (noticed, told))
    });
    for (noticed, told) in orders {
        let noticed = noticed.map(|rank| at(1, rank, What::Failing));
        let events = noticed.into_iter().chain(told.into_iter().map(|(rank, what)| at(3, rank, what)));
        let mut snapshot = Snapshot::new(3, 1);
        events.for_each(|event| snapshot.apply(&event));
        assert_eq!(snapshot.failure, Some((1, "waited".into())));
        let statuses: Vec<&RankStatus> = snapshot.ranks.iter().map(|rank| &rank.status).collect();
        assert_eq!(statuses[0], &RankStatus::Failed("waited".into()));
        assert_eq!(statuses[1], &RankStatus::Running);
    }
    let unknown = fold(&[at(1, 0, blamed(7, false)), at(2, 0, failed("waited"))]);
    assert_eq!(unknown.failure, Some((0, "waited".into())), "there is no rank 7");
}

/// Rank 1 stalls until it learns that rank 0 has timed out waiting for it, and reports its own
/// error first.
#[test]
fn a_stall_is_explained_by_the_rank_that_timed_out() {
    let failed = |message: &str| What::Failed { message: message.into() };
    let blamed = |heard| What::Blamed { culprit: 1, heard };
    let told = [(1, blamed(true)), (1, failed("stalled")), (0, blamed(false)), (0, failed("waited"))];
    for noticed in [vec![], vec![at(1, 0, What::Failing)]] {
        let told = told.iter().map(|(rank, what)| at(2, *rank, what.clone()));
        let snapshot = fold(&noticed.into_iter().chain(told).collect::<Vec<_>>());
        assert_eq!(snapshot.failure, Some((1, "waited".into())));
        assert_eq!(snapshot.ranks[1].status, RankStatus::Failed("stalled".into()));
    }
}

#[test]
fn the_first_failure_is_the_one_shown() {
    let failed = |message: &str| What::Failed { message: message.into() };
    let snapshot = fold(&[at(1, 1, failed("out of memory")), at(2, 0, failed("rank 1 failed"))]);
    assert_eq!(snapshot.failure, Some((1, "out of memory".into())));
    assert!(snapshot.is_over());
}
