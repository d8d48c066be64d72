//! How much communication hides behind computation, and who waits for whom.

use crate::window::{Lane, Window};

/// One rank's streams over a stretch of time, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// The compute stream is busy.
    pub compute: u64,
    /// Data moves.
    pub communication: u64,
    /// Data moves while the compute stream is busy.
    pub overlapped: u64,
    /// Data moves while the compute stream is idle.
    pub exposed: u64,
    /// Neither computes nor moves data: waits for other ranks to issue.
    pub waiting: u64,
    /// The waiting by the rank that issued last.
    pub waited_for: Vec<u64>,
}

type Interval = (u64, u64);

/// Sorted and disjoint.
fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.retain(|(from, to)| from < to);
    intervals.sort_unstable();
    let mut out: Vec<Interval> = Vec::with_capacity(intervals.len());
    for (from, to) in intervals {
        match out.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

fn length(intervals: &[Interval]) -> u64 {
    intervals.iter().map(|(from, to)| to - from).sum()
}

/// What is in both.
fn common(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (from, to) = (x.0.max(y.0), x.1.min(y.1));
        if from < to {
            out.push((from, to));
        }
        if x.1 < y.1 { i += 1 } else { j += 1 }
    }
    out
}

fn clipped(from: u64, to: u64, (start, end): Interval) -> Interval {
    (from.max(start), to.min(end))
}

fn compute(lane: &Lane, range: Interval) -> Vec<Interval> {
    let spans = lane.spans.iter().map(|span| clipped(span.from, span.to.unwrap_or(u64::MAX), range));
    merged(spans.collect())
}

/// Every rank's streams within `range`.
pub fn measure(window: &Window, range: (u64, u64)) -> Vec<Overlap> {
    (0..window.lanes.len()).map(|rank| measure_rank(window, rank, range)).collect()
}

fn measure_rank(window: &Window, rank: usize, range: Interval) -> Overlap {
    let lane = &window.lanes[rank];
    let busy = compute(lane, range);
    let moving = lane.transfers.iter().filter_map(|transfer| {
        let started = transfer.started?;
        Some(clipped(started, transfer.finished.unwrap_or(u64::MAX), range))
    });
    let moving = merged(moving.collect());
    let overlapped = length(&common(&busy, &moving));
    let mut overlap = Overlap {
        compute: length(&busy),
        communication: length(&moving),
        overlapped,
        exposed: length(&moving) - overlapped,
        waited_for: vec![0; window.lanes.len()],
        waiting: 0,
    };
    let occupied = merged(busy.into_iter().chain(moving).collect());
    waiting(window, rank, range, &occupied, &mut overlap);
    overlap
}

/// Adds the time between a rank's own issue and the last rank's in which it had nothing else to do. Collectives
/// waited for at the same time count once, for the one that was issued first.
fn waiting(window: &Window, rank: usize, range: Interval, occupied: &[Interval], overlap: &mut Overlap) {
    let mut seen = range.0;
    for transfer in &window.lanes[rank].transfers {
        let end = transfer.started.unwrap_or(u64::MAX).min(range.1);
        let (from, to) = (transfer.issued.max(seen), end);
        if from >= to {
            continue;
        }
        seen = to;
        let idle = (to - from) - length(&common(&[(from, to)], occupied));
        let Some(last) = last_to_issue(window, transfer.event.group, transfer.event.sequence) else {
            continue;
        };
        if last != rank {
            overlap.waiting += idle;
            overlap.waited_for[last] += idle;
        }
    }
}

fn last_to_issue(window: &Window, group: u16, sequence: u64) -> Option<usize> {
    let issued = |lane: &Lane| {
        // A group's collectives are in the order of their numbers, and the window is short.
        let found =
            lane.transfers.iter().rev().find(|t| t.event.sequence == sequence && t.event.group == group);
        found.map_or(u64::MAX, |transfer| transfer.issued)
    };
    let members = (0..window.lanes.len()).filter(|&rank| window.lanes[rank].is_member(group));
    members.max_by_key(|&rank| issued(&window.lanes[rank]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::{CollectiveEvent, Event, Operation, Progress, Snapshot, What};

    /// Two groups of two neighbours: the others' do not count, whatever they have issued.
    #[test]
    fn only_members_of_a_group_are_waited_for() {
        let mut window = Window::new(&Snapshot::new(4, 1));
        for rank in 0..4 {
            let (group, first) = (rank as u16 / 2 + 1, rank / 2 * 2);
            let what = What::Joined { group, ranks: vec![first, first + 1] };
            window.apply(&Event { at: 0, rank, what });
        }
        let mut tell = |at, rank, progress| {
            let (sequence, operation, group) = (0, Operation::AllGather, 1);
            let event = CollectiveEvent {
                progress,
                sequence,
                operation,
                group,
                unit: 0,
                units: 1,
                bytes: 8,
                sent: 0,
            };
            window.apply(&Event { at, rank, what: What::Collective(event) });
        };
        tell(10, 0, Progress::Issued);
        tell(40, 1, Progress::Issued);
        tell(40, 0, Progress::Started);
        tell(50, 0, Progress::Finished);
        assert_eq!(measure(&window, (0, 100))[0].waited_for, [0, 30, 0, 0]);
    }

    #[test]
    fn intervals_merge_and_intersect() {
        let a = merged(vec![(5, 9), (0, 2), (1, 4), (4, 4)]);
        assert_eq!(a, [(0, 4), (5, 9)]);
        assert_eq!(common(&a, &[(3, 6), (8, 20)]), [(3, 4), (5, 6), (8, 9)]);
        assert_eq!(length(&a), 8);
    }
}
