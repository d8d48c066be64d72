//! How long a rank waits for others, and whom it may blame then.
//!
//! A rank that does not come because it waits itself, in another group or for what a third one does not take, is not to
//! blame: the one at the end of such a chain is. So whoever has waited for a while says for whom, and meanwhile the clocks
//! of those who wait for it stand still: the one in front loses patience first, and tells.

use super::excuses::Excuses;
use std::time::{Duration, Instant};

/// How often, at least, one who waits looks at the clock, whatever the patience.
const LOOK: Duration = Duration::from_secs(1);

/// The same with a patience of `timeout`: often enough that a stop, which looks like one such stretch of waiting, uses up little of it.
pub(crate) fn look(timeout: Duration) -> Duration {
    (timeout / 10).clamp(SHORTEST, LOOK)
}

/// The shortest wait between two looks.
const SHORTEST: Duration = Duration::from_millis(5);

/// How long a member waits for others. The clock stands still while the run is paused, and while a simulated link
/// delivers.
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Duration,
    /// Time for which the run was held so far.
    pub(crate) held: &'a dyn Fn() -> Duration,
    /// Time since a simulated link last delivered, zero while it does; without a link, since ever.
    pub(crate) delivered: &'a dyn Fn() -> Duration,
    pub(crate) excuses: &'a dyn Excuses,
}

/// A deadline that does not run while the run is held, a simulated link delivers or the whole process is stopped, as by a
/// shell.
pub(crate) struct Deadline<'a> {
    pub(crate) patience: &'a Patience<'a>,
    since: Instant,
    held: Duration,
    /// Run time from the start to the latest look.
    looked: Duration,
    /// Time in which nobody looked though somebody should have: the process stood still.
    stopped: Duration,
    /// Time in which all who were waited for were excused. As much as the patience: an excuse may be out of date.
    pardoned: Duration,
    /// Of whom the others know that this rank waits for it.
    told: Option<u32>,
    pub(crate) spun: bool,
}

impl<'a> Deadline<'a> {
    pub(crate) fn start(patience: &'a Patience<'a>) -> Self {
        let (since, held) = (Instant::now(), (patience.held)());
        let [looked, stopped, pardoned] = [Duration::ZERO; 3];
        Deadline { patience, since, held, looked, stopped, pardoned, told: None, spun: false }
    }

    /// How long to wait for `ranks`, of which there is one at least, before the next look. While the run is held it does
    /// not shrink, so at least a few milliseconds.
    ///
    /// # Errors
    /// Whom to blame, once the patience is over.
    pub(crate) fn left(&mut self, ranks: &[u32]) -> Result<Duration, u32> {
        let held = (self.patience.held)().saturating_sub(self.held);
        self.left_at(self.since.elapsed().saturating_sub(held), ranks)
    }

    /// The same after `run` of the run's time.
    fn left_at(&mut self, run: Duration, ranks: &[u32]) -> Result<Duration, u32> {
        let &Patience { timeout, excuses, delivered, .. } = self.patience;
        let look = look(timeout);
        let passed = run.saturating_sub(std::mem::replace(&mut self.looked, run));
        self.stopped += passed.saturating_sub(look);
        let waited = run.saturating_sub(self.stopped).min(delivered());
        let mut culprit = ranks[0];
        if waited >= look {
            match ranks.iter().find(|&&rank| !excuses.is_excused(rank)) {
                Some(&rank) => culprit = rank,
                None => self.pardoned = timeout.min(self.pardoned + passed.min(look)),
            }
            if self.told.replace(culprit) != Some(culprit) {
                excuses.waits_for(Some(culprit));
            }
        }
        let left = timeout.saturating_sub(waited.saturating_sub(self.pardoned));
        if left.is_zero() {
            // Whoever hears that this rank waits no longer shall know why by then.
            self.told = None;
            return Err(culprit);
        }
        Ok(left.clamp(SHORTEST, look))
    }
}

impl Drop for Deadline<'_> {
    fn drop(&mut self) {
        if self.told.is_some() {
            self.patience.excuses.waits_for(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// What was told, and who is excused.
    #[derive(Default)]
    struct Told {
        told: RefCell<Vec<Option<u32>>>,
        /// Ranks below this one.
        excused: Cell<u32>,
    }

    impl Excuses for Told {
        fn waits_for(&self, rank: Option<u32>) {
            self.told.borrow_mut().push(rank);
        }

        fn is_excused(&self, rank: u32) -> bool {
            rank < self.excused.get()
        }
    }

    fn patience(timeout: Duration, excuses: &Told) -> Patience<'_> {
        Patience { timeout, held: &|| Duration::ZERO, delivered: &|| Duration::MAX, excuses }
    }

    fn wait(time: Duration) {
        let since = Instant::now();
        while since.elapsed() < time {}
    }

    const TINY: Duration = Duration::from_nanos(1);

    #[test]
    fn time_under_hold_does_not_count() {
        let (held, excuses) = (Cell::new(Duration::ZERO), Told::default());
        let patience = Patience { held: &|| held.get(), ..patience(TINY, &excuses) };
        let mut deadline = Deadline::start(&patience);
        wait(Duration::from_micros(1));
        assert_eq!(deadline.left(&[1]), Err(1));
        held.set(Duration::from_secs(60));
        assert!(deadline.left(&[1]).is_ok());
    }

    /// Ten seconds of patience, of which three pass before a stop of a minute.
    #[test]
    fn time_in_which_the_process_stands_still_does_not_count() {
        let (seconds, excuses) = (Duration::from_secs, Told::default());
        let patience = patience(seconds(10), &excuses);
        let mut deadline = Deadline::start(&patience);
        let mut left = |run: u64| deadline.left_at(seconds(run), &[1]);
        assert!((1..=3).all(|run| left(run) == Ok(LOOK)), "it looks again and again");
        assert!((63..69).all(|run| left(run) == Ok(LOOK)));
        assert_eq!(left(70), Err(1));
    }

    /// A second of patience, of which three tenths pass before a stop of a minute.
    #[test]
    fn a_stop_uses_up_little_of_a_short_patience() {
        let tenths = |count: u64| Duration::from_millis(100 * count);
        let excuses = Told::default();
        let patience = patience(tenths(10), &excuses);
        let mut deadline = Deadline::start(&patience);
        let mut left = |run: u64| deadline.left_at(tenths(run), &[1]);
        assert!((1..=3).all(|run| left(run) == Ok(tenths(1))), "it looks again and again");
        assert!((603..609).all(|run| left(run) == Ok(tenths(1))));
        assert_eq!(left(610), Err(1));
    }

    #[test]
    fn patience_is_whole_while_a_link_delivers() {
        let (since, excuses) = (Cell::new(Duration::ZERO), Told::default());
        let patience = Patience { delivered: &|| since.get(), ..patience(TINY, &excuses) };
        let mut deadline = Deadline::start(&patience);
        wait(Duration::from_micros(1));
        assert!(deadline.left(&[1]).is_ok());
        since.set(TINY);
        assert_eq!(deadline.left(&[1]), Err(1));
    }

    /// Who waits says for whom after a tenth of its patience, anew when it is another, and when it is over.
    #[test]
    fn who_waits_for_a_while_says_so() {
        let (seconds, excuses) = (Duration::from_secs, Told::default());
        let patience = patience(seconds(10), &excuses);
        let mut deadline = Deadline::start(&patience);
        for (run, rank) in [(0, 1), (1, 1), (2, 1), (3, 2)] {
            assert_eq!(deadline.left_at(seconds(run), &[rank]), Ok(LOOK));
        }
        drop(deadline);
        drop(Deadline::start(&patience));
        assert_eq!(*excuses.told.borrow(), [Some(1), Some(2), None]);
    }

    /// Ten seconds of patience, of which three are excused; and one whose excuse never ends.
    #[test]
    fn time_in_which_the_other_waits_itself_does_not_count() {
        let (seconds, excuses) = (Duration::from_secs, Told::default());
        let patience = patience(seconds(10), &excuses);
        let mut deadline = Deadline::start(&patience);
        let mut looks = |runs: std::ops::Range<u64>, excused: bool| {
            excuses.excused.set(if excused { 2 } else { 0 });
            runs.into_iter().all(|run| deadline.left_at(seconds(run), &[1]) == Ok(LOOK))
        };
        assert!(looks(1..9, false) && looks(9..12, true) && looks(12..13, false));
        assert_eq!(deadline.left_at(seconds(13), &[1]), Err(1));

        let mut deadline = Deadline::start(&patience);
        excuses.excused.set(2);
        assert!((1..20).all(|run| deadline.left_at(seconds(run), &[1]) == Ok(LOOK)));
        assert_eq!(deadline.left_at(seconds(20), &[1]), Err(1));
    }

    /// Of several who are late, whoever has no excuse is to blame, and at once.
    #[test]
    fn who_has_no_excuse_is_blamed() {
        let (seconds, excuses) = (Duration::from_secs, Told::default());
        let patience = patience(seconds(10), &excuses);
        let mut deadline = Deadline::start(&patience);
        excuses.excused.set(2);
        assert!((1..10).all(|run| deadline.left_at(seconds(run), &[0, 1, 2, 3]) == Ok(LOOK)));
        assert_eq!(deadline.left_at(seconds(10), &[0, 1, 2, 3]), Err(2));
    }

    /// Whoever waits for a rank that loses patience must hear of that, not of an excuse that is over.
    #[test]
    fn who_loses_patience_stays_excused() {
        let (seconds, excuses) = (Duration::from_secs, Told::default());
        let patience = patience(seconds(2), &excuses);
        let mut deadline = Deadline::start(&patience);
        while deadline.left_at(deadline.looked + Duration::from_millis(200), &[1]).is_ok() {}
        drop(deadline);
        assert_eq!(*excuses.told.borrow(), [Some(1)]);
    }
}
