//! Step times of a run: the median, the spread, and speeds that the spread cannot tell apart.

use events::say::counted;
use report::Report;

/// Number of steps that are excluded because caches, pools and threads are still warming up.
pub(super) const WARM_UP: usize = 2;
/// Minimum number of timed steps whose spread can tell speeds apart.
pub(super) const FEWEST: usize = 3;
/// Minimum number of timed steps for using the middle half. With fewer, the spread covers all of
/// them.
const HALVED: usize = 8;

/// A range that contains half of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let cut = if values.len() < HALVED { 0 } else { values.len() / 4 };
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        let last = values.len().saturating_sub(1 + cut);
        Spread { low: at(cut), median: at(values.len() / 2), high: at(last) }
    }

    /// Returns half the distance from `low` to `high`, as a fraction of the median.
    pub(super) fn width(self) -> f64 {
        (self.high - self.low) / 2.0 / self.median
    }

    fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Steps {
    pub(super) count: usize,
    pub(super) seconds: Spread,
}

impl Steps {
    /// Returns the timed steps of `report`'s run: all but the first two, if more than two exist.
    pub(super) fn of(report: &Report) -> Self {
        let seconds: Vec<f64> =
            report.steps[skipped(report.steps.len())..].iter().map(|step| step.seconds).collect();
        Steps { count: seconds.len(), seconds: Spread::of(seconds) }
    }

    pub(super) fn speed(self, report: &Report) -> Spread {
        let tokens = report.steps.first().map_or(0.0, |step| step.tokens as f64);
        let Spread { low, median, high } = self.seconds;
        Spread { low: tokens / high, median: tokens / median, high: tokens / low }
    }

    /// True if the steps of two runs may be equally fast, because there are too few to tell or
    /// their spreads overlap.
    pub(super) fn equal(self, other: Self) -> bool {
        self.count.min(other.count) < FEWEST || self.seconds.overlaps(other.seconds)
    }
}

/// Returns how many of `steps` steps are excluded.
fn skipped(steps: usize) -> usize {
    if steps > WARM_UP { WARM_UP } else { 0 }
}

/// Describes the median and the spread of a run of `steps` steps.
pub(super) fn words(steps: usize) -> String {
    let timed = steps - skipped(steps);
    let median = match skipped(steps) {
        0 => "Medians are of all steps, also of those that warm up.".to_string(),
        skipped => format!("Medians leave out the first {skipped} steps, which warm up."),
    };
    let spread = match timed {
        HALVED.. => "± is half the width of the middle half of the steps.".to_string(),
        _ => format!(
            "± is half the distance from the fastest to the slowest of {}.",
            counted(timed, "timed step", "timed steps")
        ),
    };
    let equal = match timed {
        FEWEST.. => "Speeds that the spread cannot tell apart count as equal.",
        _ => "So few steps do not tell speeds apart: all count as equal.",
    };
    format!("{median}\n{spread}\n{equal}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(seconds: &[f64]) -> Steps {
        Steps { count: seconds.len(), seconds: Spread::of(seconds.to_vec()) }
    }

    #[test]
    fn the_middle_half_leaves_out_what_lies_far_off() {
        let eight = Spread::of(vec![1.0, 90.0, 2.0, 6.0, 3.0, 5.0, 4.0, 100.0]);
        assert_eq!(eight, Spread { low: 3.0, median: 5.0, high: 6.0 });
        assert_eq!(eight.width(), 0.3);
        assert_eq!(Spread::of(vec![2.0, 9.0, 1.0]), Spread { low: 1.0, median: 2.0, high: 9.0 });
    }

    #[test]
    fn words_are_true_of_short_runs_too() {
        let (all, later) = ("of all steps", "leave out the first 2 steps");
        let (few, enough) = ("So few steps do not tell", "the spread cannot tell apart");
        for (steps, median, spread, equal) in [
            (1, all, "slowest of 1 timed step.", few),
            (2, all, "slowest of 2 timed steps.", few),
            (4, later, "slowest of 2 timed steps.", few),
            (5, later, "slowest of 3 timed steps.", enough),
            (9, later, "slowest of 7 timed steps.", enough),
            (10, later, "the middle half of the steps.", enough),
        ] {
            let words = words(steps);
            assert!([median, spread, equal].iter().all(|part| words.contains(part)), "{steps}: {words}");
        }
    }

    #[test]
    fn steps_are_equal_unless_their_spreads_are_apart() {
        let slow = steps(&[4.0, 5.0, 6.0]);
        assert!(slow.equal(steps(&[1.0, 2.0, 4.0])) && slow.equal(slow));
        assert!(!slow.equal(steps(&[1.0, 2.0, 3.0])) && !steps(&[1.0, 2.0, 3.0]).equal(slow));
        assert!(slow.equal(steps(&[1.0, 2.0])), "two steps tell nothing");
    }
}
