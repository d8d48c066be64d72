//! Which spans of communication count as overlapped, and which rank waits for which.

use events::{
    Class, CollectiveEvent, Event, Operation, Pass, Progress, Route, Snapshot, TransferEvent, What, Work,
};
use screen::overlap::{Gap, Meetings, measure};
use screen::window::Window;

/// Returns an event of the first collective of `group` on `rank`.
fn progress(at: u64, rank: u32, group: u16, progress: Progress) -> Event {
    let (sequence, operation) = (0, Operation::AllGather);
    let event = CollectiveEvent { progress, sequence, operation, group, units: 0.into(), bytes: 8, sent: 0 };
    Event { at, rank, what: What::Collective(event) }
}

/// Two groups of two neighbours: the other group does not count, whatever it has issued.
#[test]
fn only_members_of_a_group_are_waited_for() {
    let mut window = Window::new(&Snapshot::new(4, 1));
    for rank in 0..4 {
        let (group, first) = (rank as u16 / 2 + 1, rank / 2 * 2);
        let what = What::Joined { group, ranks: vec![first, first + 1] };
        window.apply(&Event { at: 0, rank, what });
    }
    let mut tell = |at, rank, how| window.apply(&progress(at, rank, 1, how));
    tell(10, 0, Progress::Issued);
    tell(40, 1, Progress::Issued);
    tell(40, 0, Progress::Started);
    tell(50, 0, Progress::Finished);
    assert_eq!(measure(&window, (0, 100))[0].waited_for, [0, 30, 0, 0]);
}

/// Both ranks have issued, and rank 1 keeps computing before it begins its share, which takes
/// 5.
#[test]
fn a_peer_that_has_not_begun_is_waited_for() {
    let mut window = Window::new(&Snapshot::new(2, 1));
    let mut tell = |at, rank, how| window.apply(&progress(at, rank, 0, how));
    for (rank, issued) in [(1, 10), (0, 20)] {
        tell(issued, rank, Progress::Issued);
    }
    tell(20, 0, Progress::Started);
    tell(80, 1, Progress::Started);
    [0, 1].into_iter().for_each(|rank| tell(85, rank, Progress::Finished));
    let [first, last] = measure(&window, (0, 100)).try_into().unwrap();
    assert_eq!((first.communication, first.exposed), (10, 10), "its own share, and that of rank 1");
    assert_eq!((first.waiting, &first.waited_for[..]), (55, &[0, 55][..]));
    assert_eq!((last.communication, last.waiting), (5, 10), "for rank 0 to issue, not for itself to begin");
    let collective = &window.lanes[0].collectives[0];
    assert_eq!(Meetings::of(&window).gap(collective, 100), Some(Gap { from: 25, to: 80, rank: 1 }));
}

/// A rank that is done before another one begins has not waited for it.
#[test]
fn a_rank_that_needs_no_work_of_others_does_not_wait() {
    let mut window = Window::new(&Snapshot::new(2, 1));
    let mut tell = |at, rank, how| window.apply(&progress(at, rank, 0, how));
    for (rank, issued, from) in [(0, 20, 20), (1, 10, 60)] {
        tell(issued, rank, Progress::Issued);
        tell(from, rank, Progress::Started);
        tell(from + 10, rank, Progress::Finished);
    }
    let first = measure(&window, (0, 100)).remove(0);
    assert_eq!((first.communication, first.waited_for), (10, vec![0, 0]));
}

/// A rank computes from 0 to 40 and waits within it for its disk (from 10 to 20) and for a copy
/// (from 15 to 25). Until 30 data moves to another rank.
#[test]
fn waits_for_transfers_are_no_computation() {
    let mut window = Window::new(&Snapshot::new(1, 1));
    let mut tell = |at, what| window.apply(&Event { at, rank: 0, what });
    let pass = (Pass::Step, 0, 0);
    tell(0, What::PassStarted { pass: pass.0, unit: pass.1, micro: pass.2 });
    for (at, route) in [(20, Route::DiskToHost), (25, Route::HostToDevice)] {
        tell(
            at,
            What::Transfer(TransferEvent {
                progress: Progress::Finished,
                sequence: at,
                route,
                class: Class::Optimizer,
                unit: 0,
                bytes: 1,
                moved: 1,
                began: 12,
                ended: 0,
                exposed: 10,
            }),
        );
    }
    tell(40, What::PassFinished { pass: pass.0, unit: pass.1, micro: pass.2 });
    for (at, progress) in [(5, Progress::Issued), (5, Progress::Started), (30, Progress::Finished)] {
        tell(at, self::progress(at, 0, 0, progress).what);
    }
    let of = measure(&window, (0, 100)).remove(0);
    assert_eq!((of.compute, of.disk, of.copies), (25, 10, 5));
    assert_eq!((of.communication, of.overlapped, of.exposed), (25, 10, 0));
}

/// The CPU adds gradients while a backward is in progress, and then updates. The updates are
/// reported when they begin, like passes of a device, or only once they have run.
#[test]
fn what_the_cpu_does_beside_the_device_is_no_computation() {
    let mut window = Window { updates_on_cpu: true, ..Window::new(&Snapshot::new(1, 1)) };
    let mut tell = |at, what| window.apply(&Event { at, rank: 0, what });
    let ran = |pass, unit, began| What::Ran { work: Work::Pass { pass, unit, micro: 0 }, began, ended: 0 };
    tell(0, What::PassStarted { pass: Pass::Backward, unit: 0, micro: 0 });
    tell(30, ran(Pass::Add, 1, 20));
    tell(40, What::PassFinished { pass: Pass::Backward, unit: 0, micro: 0 });
    tell(50, ran(Pass::Add, 0, 20));
    tell(50, What::PassStarted { pass: Pass::Step, unit: 0, micro: 0 });
    tell(60, What::PassFinished { pass: Pass::Step, unit: 0, micro: 0 });
    tell(60, ran(Pass::Step, 0, 10));
    tell(90, ran(Pass::Step, 1, 20));
    let spans = window.lanes[0].spans.iter().map(|span| (span.pass, span.from, span.to));
    let expected = [
        (Pass::Backward, 0, Some(40)),
        (Pass::Add, 10, Some(30)),
        (Pass::Add, 30, Some(50)),
        (Pass::Step, 50, Some(60)),
        (Pass::Step, 70, Some(90)),
    ];
    assert!(spans.eq(expected));
    let of = measure(&window, (0, 100)).remove(0);
    assert_eq!((of.compute, of.cpu), (40, 10 + 10 + 20));
}

/// Rank 0 computes, has a collective in flight and waits for rank 1 when it fails at 50.
#[test]
fn nothing_counts_after_a_failure() {
    let mut window = Window::new(&Snapshot::new(2, 1));
    let mut tell = |at, what| window.apply(&Event { at, rank: 0, what });
    for (at, sequence, progress) in
        [(10, 0, Progress::Issued), (20, 0, Progress::Started), (30, 1, Progress::Issued)]
    {
        let What::Collective(collective) = self::progress(at, 0, 0, progress).what else { return };
        tell(at, What::Collective(CollectiveEvent { sequence, ..collective.clone() }));
    }
    tell(40, What::PassStarted { pass: Pass::Forward, unit: 0, micro: 0 });
    tell(50, What::Failed { message: String::new() });
    let [first, other] = measure(&window, (0, 1000)).try_into().unwrap();
    assert_eq!((first.compute, first.communication, first.waiting), (10, 0, 30), "{first:?}");
    assert_eq!(other.waiting, 0);
}
