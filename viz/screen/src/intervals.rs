//! Stretches of time, as sets.

/// A stretch of time, from its start to its end.
pub type Interval = (u64, u64);

/// Returns the union of `intervals`, sorted and disjoint.
pub fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
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

/// Returns the length of `intervals`, which are disjoint.
pub fn length(intervals: &[Interval]) -> u64 {
    intervals.iter().map(|(from, to)| to - from).sum()
}

/// Returns `a` without `b`. Both are sorted and disjoint.
pub fn without(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (mut out, mut rest) = (Vec::new(), b);
    for &(mut from, to) in a {
        rest = &rest[rest.partition_point(|(_, end)| *end <= from)..];
        for &(start, end) in rest.iter().take_while(|(start, _)| *start < to) {
            out.push((from, start));
            from = end;
        }
        out.push((from, to));
    }
    merged(out)
}
