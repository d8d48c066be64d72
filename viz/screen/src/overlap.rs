//! Measures how much communication overlaps with computation, and how long each rank waits for
//! which other rank, for copies, for its disk and for the CPU.

use crate::intervals::{Interval, length, merged, without};
use crate::window::{CollectiveSpan, RankWindow, Window};
use std::collections::BTreeMap;

/// One rank's streams over a stretch of time, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Time during which the compute stream is busy. The CPU's work on offloaded states is not part
    /// of it.
    pub compute: u64,
    /// Time during which data moves.
    pub communication: u64,
    /// Time during which data moves and the compute stream is busy.
    pub overlapped: u64,
    /// Time during which data moves and the compute stream is idle for a reason other than a
    /// transfer or the CPU.
    pub exposed: u64,
    /// Time during which the rank is idle because it waits for copies between device and main
    /// memory.
    pub copies: u64,
    /// Time during which the rank is idle because it waits for its disk.
    pub disk: u64,
    /// Time during which the compute stream is idle while the CPU works on offloaded states.
    pub cpu: u64,
    /// Time during which both streams are idle because another rank has not issued a collective, or
    /// has not begun its share.
    pub waiting: u64,
    /// The waiting time for each rank, the last of its collective.
    pub waited_for: Vec<u64>,
}

/// Returns the intervals in which a rank is idle because it waits for its disk or, if not `disk`,
/// for copies.
fn stalls(lane: &RankWindow, disk: bool, range: Interval) -> Vec<Interval> {
    let such = lane.transfers.iter().filter(|span| span.event.route.touches_disk() == disk);
    within(range, such.filter_map(|span| span.stalled()))
}

/// Returns the union of `intervals` within a range.
fn within((start, end): Interval, intervals: impl Iterator<Item = Interval>) -> Vec<Interval> {
    merged(intervals.map(|(from, to)| (from.max(start), to.min(end))).collect())
}

/// Measures every rank's streams within `range`.
pub fn measure(window: &Window, range: (u64, u64)) -> Vec<Overlap> {
    let meetings = Meetings::of(window);
    (0..window.lanes.len()).map(|rank| measure_rank(window, &meetings, rank, range)).collect()
}

fn measure_rank(window: &Window, meetings: &Meetings<'_>, rank: usize, range: Interval) -> Overlap {
    let lane = &window.lanes[rank];
    let range = (range.0, lane.until(range.1));
    let disk = stalls(lane, true, range);
    let copies = without(&stalls(lane, false, range), &disk);
    let stalled = merged(disk.iter().chain(&copies).copied().collect());
    let passes = |on_cpu: bool| {
        let such = lane.spans.iter().filter(move |span| window.is_on_cpu(span) == on_cpu);
        within(range, such.map(|span| (span.from, span.to.unwrap_or(u64::MAX))))
    };
    let busy = without(&passes(false), &stalled);
    let cpu = without(&without(&passes(true), &stalled), &busy);
    let idle_for_offload = merged(stalled.iter().chain(&cpu).copied().collect());
    let moving =
        lane.collectives.iter().flat_map(|collective| moving(collective, meetings.gap(collective, range.1)));
    let moving = within(range, moving);
    let apart = without(&moving, &busy);
    let mut overlap = Overlap {
        compute: length(&busy),
        communication: length(&moving),
        overlapped: length(&moving) - length(&apart),
        exposed: length(&without(&apart, &idle_for_offload)),
        copies: length(&copies),
        disk: length(&disk),
        cpu: length(&cpu),
        waited_for: vec![0; window.lanes.len()],
        waiting: 0,
    };
    let occupied = merged(busy.into_iter().chain(moving).chain(idle_for_offload).collect());
    waiting(lane, meetings, (rank, range), &occupied, &mut overlap);
    overlap
}

/// Returns the intervals in which a collective moves data: from its start to its end, without the
/// gap.
pub(crate) fn moving(collective: &CollectiveSpan, gap: Option<Gap>) -> impl Iterator<Item = Interval> {
    let end = collective.finished.unwrap_or(u64::MAX);
    let first = collective.started.map(|started| (started, gap.map_or(end, |gap| gap.from)));
    first.into_iter().chain(gap.map(|gap| (gap.to, end)))
}

/// Adds the time during which a rank was idle because it waited for another rank: from its own
/// issue to the last rank's, and in the gap. If it waits for several collectives at once, the time
/// counts for the one issued first.
fn waiting(
    lane: &RankWindow,
    meetings: &Meetings<'_>,
    (rank, range): (usize, Interval),
    occupied: &[Interval],
    overlap: &mut Overlap,
) {
    let mut seen = range.0;
    for collective in &lane.collectives {
        let started = collective.started.unwrap_or(u64::MAX);
        let issues = meetings.meeting(collective).map(|meeting| meeting.issues);
        let before = issues.map(|(last, issued)| (collective.issued, started.min(issued), last));
        let within = meetings.gap(collective, range.1).map(|gap| (gap.from, gap.to, gap.rank));
        for (from, to, last) in before.into_iter().chain(within) {
            let (from, to) = (from.max(seen), to.min(range.1));
            if from >= to {
                continue;
            }
            seen = to;
            let idle = length(&without(&[(from, to)], occupied));
            if last != rank {
                overlap.waiting += idle;
                overlap.waited_for[last] += idle;
            }
        }
    }
}

/// The time within a collective from the end of a rank's own share to the start of the last rank's
/// share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Time at which the rank's own share was done.
    pub from: u64,
    /// Time at which the last rank began.
    pub to: u64,
    /// The last rank.
    pub rank: usize,
}

/// The last rank of every collective, by its group and number, in ascending order.
pub struct Meetings<'a>(Vec<((u16, u64), Meeting<'a>)>);

/// The last members of a collective.
struct Meeting<'a> {
    /// The last rank to issue it, and the time: `u64::MAX` if it has not yet.
    issues: (usize, u64),
    /// The last rank to begin its share, and the collective on that rank, if known.
    begins: (usize, Option<&'a CollectiveSpan>),
}

impl<'a> Meetings<'a> {
    /// Finds the last ranks of all collectives in the window.
    pub fn of(window: &'a Window) -> Self {
        let mut known: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (rank, lane) in window.lanes.iter().enumerate() {
            for collective in &lane.collectives {
                let key = (collective.event.group, collective.event.sequence);
                known.entry(key).or_default().push((rank, collective));
            }
        }
        let meeting = |(key, known): ((u16, u64), Vec<_>)| Some((key, Meeting::of(window, key.0, &known)?));
        Meetings(known.into_iter().filter_map(meeting).collect())
    }

    fn meeting(&self, collective: &CollectiveSpan) -> Option<&Meeting<'a>> {
        let key = (collective.event.group, collective.event.sequence);
        self.0.binary_search_by_key(&key, |(key, _)| *key).ok().map(|place| &self.0[place].1)
    }

    /// Returns the gap in a collective, according to the events up to `now`. No event says when a
    /// rank's share is done: it is assumed to take as long as the share of the last rank, which
    /// waits for no other rank.
    pub fn gap(&self, collective: &CollectiveSpan, now: u64) -> Option<Gap> {
        let started = collective.started?;
        let (rank, last) = self.meeting(collective)?.begins;
        let begun = last.and_then(|last| last.started);
        let ended = last.and_then(|last| last.finished).unwrap_or(now);
        let share = begun.map_or(0, |begun| ended.saturating_sub(begun));
        let gap = Gap { from: started.saturating_add(share), to: begun.unwrap_or(now), rank };
        // A rank that needs only the other ranks' data, not their work, is done before they begin.
        let waits = collective.finished.is_none_or(|finished| finished >= gap.to);
        Some(gap).filter(|gap| waits && gap.from < gap.to)
    }
}

impl<'a> Meeting<'a> {
    /// Finds the last members of a collective of `group`. `known` are its spans, in the order of
    /// their ranks.
    fn of(window: &Window, group: u16, known: &[(usize, &'a CollectiveSpan)]) -> Option<Self> {
        let members = (0..window.lanes.len()).filter(|&rank| window.lanes[rank].is_member(group));
        let of =
            |rank| known.binary_search_by_key(&rank, |(other, _)| *other).ok().map(|place| known[place].1);
        let members: Vec<(usize, Option<&'a CollectiveSpan>)> =
            members.map(|rank| (rank, of(rank))).collect();
        // A rank that has not issued it yet counts as later than all others.
        let last = |when: fn(&CollectiveSpan) -> Option<u64>| {
            members
                .iter()
                .max_by_key(|(_, collective)| collective.and_then(when).unwrap_or(u64::MAX))
                .copied()
        };
        let (rank, latest) = last(|collective| Some(collective.issued))?;
        Some(Meeting {
            issues: (rank, latest.map_or(u64::MAX, |collective| collective.issued)),
            begins: last(|collective| collective.started)?,
        })
    }
}
