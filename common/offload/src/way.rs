//! The way between two places in one direction: one transfer at a time, and its counters.

use collectives::local::Link;
use std::time::Duration;

/// A way that transfers take one after the other. Times are the run's, without pauses.
#[derive(Default)]
pub(crate) struct Way {
    /// How fast it is, if it is simulated.
    pub(crate) link: Option<Link>,
    /// When it has delivered what was issued before.
    pub(crate) free: Duration,
    /// Payload bytes of finished transfers.
    pub(crate) bytes: u64,
    /// Finished transfers.
    pub(crate) calls: u64,
    /// How long the rank was idle because it waited for them.
    pub(crate) waited: Duration,
}

impl Way {
    /// When `bytes` bytes cross that are ready at `ready` and take from `began` to `ended` in
    /// truth. A simulated way carries them for latency + bytes / bandwidth, as soon as it is free.
    pub(crate) fn cross(
        &mut self,
        ready: Duration,
        bytes: u64,
        moved: (Duration, Duration),
    ) -> (Duration, Duration) {
        let booked = self.book(ready, bytes);
        self.deliver(booked, moved)
    }

    /// When a simulated way carries `bytes` bytes that are ready at `ready`, after all that was
    /// booked before.
    pub(crate) fn book(&mut self, ready: Duration, bytes: u64) -> Option<(Duration, Duration)> {
        let Link { latency, bandwidth } = self.link?;
        let began = ready.max(self.free);
        let carried = Duration::try_from_secs_f64(bytes as f64 / bandwidth).unwrap_or(Duration::MAX / 4);
        self.free = began.saturating_add(latency).saturating_add(carried);
        Some((began, self.free))
    }

    /// When what was `booked`, and took from `began` to `ended` in truth, has crossed.
    pub(crate) fn deliver(
        &mut self,
        booked: Option<(Duration, Duration)>,
        moved: (Duration, Duration),
    ) -> (Duration, Duration) {
        let Some((began, due)) = booked else { return moved };
        let ended = due.max(moved.1);
        self.free = self.free.max(ended);
        (began, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn transfers_queue_on_a_simulated_way() {
        let link = Some(Link { latency: MS, bandwidth: 1e6 });
        let mut way = Way { link, ..Way::default() };
        let none = (Duration::ZERO, Duration::ZERO);
        assert_eq!(way.cross(10 * MS, 2000, none), (10 * MS, 13 * MS));
        assert_eq!(way.cross(11 * MS, 1000, none), (13 * MS, 15 * MS), "it waits for the one before");
        assert_eq!(way.cross(20 * MS, 0, none), (20 * MS, 21 * MS), "the way was idle");
        assert_eq!(way.cross(21 * MS, 0, (MS, 30 * MS)), (21 * MS, 30 * MS), "no faster than in truth");
    }

    #[test]
    fn a_real_way_takes_what_it_takes() {
        assert_eq!(Way::default().cross(MS, 1 << 30, (2 * MS, 3 * MS)), (2 * MS, 3 * MS));
    }
}
