//! The queue of transfers on one route: between two places in one direction, one at a time.

use collectives::local::Link;
use std::collections::HashMap;
use std::time::Duration;

/// When a transfer begins and ends.
pub(crate) type Times = (Duration, Duration);

/// The transfers on one route, which take it one after the other. Times are the run's, without
/// pauses.
#[derive(Default)]
pub(crate) struct RouteQueue {
    /// The speed of a simulated link; `None` for a real one.
    pub(crate) link: Option<Link>,
    /// When a simulated link has delivered the transfers that have begun.
    free: Duration,
    /// Transfers that have not begun yet, in the order in which they were booked.
    waiting: Vec<Booking>,
    /// Transfers that have begun and are not delivered, by number.
    begun: HashMap<u64, Times>,
    /// Number of transfers booked so far.
    booked: u64,
}

/// The place of a transfer among those that wait for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Before all others.
    First,
    /// In the order of booking.
    InOrder,
}

/// A transfer that waits for a simulated link.
#[derive(Clone, Copy)]
struct Booking {
    number: u64,
    ready: Duration,
    takes: Duration,
    priority: Priority,
}

impl RouteQueue {
    /// Returns the queue of a route that is simulated as `link`; of a real one for `None`.
    pub(crate) fn new(link: Option<Link>) -> Self {
        RouteQueue { link, ..RouteQueue::default() }
    }

    /// Returns when `bytes` bytes that are ready at `ready` cross the route; `moved` is when they
    /// were really copied. A simulated link carries them for latency + bytes / bandwidth, as soon
    /// as it is free.
    pub(crate) fn cross(&mut self, ready: Duration, bytes: u64, moved: Times) -> Times {
        let booked = self.book(ready, ready, bytes, Priority::InOrder);
        self.deliver(ready, booked, moved)
    }

    /// Books a simulated link at `now` for `bytes` bytes that are ready at `ready`. Ready transfers
    /// begin in the order of booking, but those of [`Priority::First`] before all others. Returns
    /// the transfer's number.
    pub(crate) fn book(
        &mut self,
        now: Duration,
        ready: Duration,
        bytes: u64,
        priority: Priority,
    ) -> Option<u64> {
        let Link { latency, bandwidth } = self.link?;
        self.begin_until(now);
        let carried = Duration::try_from_secs_f64(bytes as f64 / bandwidth).unwrap_or(Duration::MAX / 4);
        self.booked += 1;
        let takes = latency.saturating_add(carried);
        self.waiting.push(Booking { number: self.booked, ready, takes, priority });
        Some(self.booked)
    }

    /// Returns when transfer `number` crosses, if nothing else is booked before it begins.
    pub(crate) fn crosses(&self, number: u64) -> Option<Times> {
        let waits = || self.schedule().into_iter().find(|(next, _)| *next == number);
        self.begun.get(&number).copied().or_else(|| waits().map(|(_, times)| times))
    }

    /// Returns when transfer `booked` has crossed, as known at `now`; `moved` are the times at
    /// which it was really moved. The rank waits for it next, so that nothing else is booked before
    /// it has begun.
    pub(crate) fn deliver(&mut self, now: Duration, booked: Option<u64>, moved: Times) -> Times {
        let crosses = booked.and_then(|number| Some((number, self.crosses(number)?)));
        let Some((number, (began, due))) = crosses else { return moved };
        self.forget(now.max(began), number);
        let ended = due.max(moved.1);
        self.free = self.free.max(ended);
        (began, ended)
    }

    /// Drops transfer `number` at `now`. If it has begun, the route is busy until it ends.
    pub(crate) fn forget(&mut self, now: Duration, number: u64) {
        self.begin_until(now);
        self.begun.remove(&number);
        self.waiting.retain(|booking| booking.number != number);
    }

    /// Marks the transfers that have begun before `now`: their times are final.
    fn begin_until(&mut self, now: Duration) {
        for (number, times) in self.schedule().into_iter().take_while(|(_, (began, _))| *began < now) {
            self.waiting.retain(|booking| booking.number != number);
            self.begun.insert(number, times);
            self.free = times.1;
        }
    }

    /// Returns when the waiting transfers cross if nothing else is booked, in that order.
    fn schedule(&self) -> Vec<(u64, Times)> {
        let (mut waiting, mut free) = (self.waiting.clone(), self.free);
        let mut order = Vec::with_capacity(waiting.len());
        while let Some(next) =
            (0..waiting.len()).min_by_key(|&i| (waiting[i].ready.max(free), waiting[i].priority))
        {
            let Booking { number, ready, takes, .. } = waiting.remove(next);
            let began = ready.max(free);
            free = began.saturating_add(takes);
            order.push((number, (began, free)));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn transfers_queue_on_a_simulated_route() {
        let mut queue = RouteQueue::new(Some(Link { latency: MS, bandwidth: 1e6 }));
        let none = (Duration::ZERO, Duration::ZERO);
        assert_eq!(queue.cross(10 * MS, 2000, none), (10 * MS, 13 * MS));
        assert_eq!(queue.cross(11 * MS, 1000, none), (13 * MS, 15 * MS), "it waits for the one before");
        assert_eq!(queue.cross(20 * MS, 0, none), (20 * MS, 21 * MS), "the route was idle");
        assert_eq!(queue.cross(21 * MS, 0, (MS, 30 * MS)), (21 * MS, 30 * MS), "no faster than in truth");
    }

    #[test]
    fn what_is_first_goes_before_what_has_not_begun() {
        let mut queue = RouteQueue::new(Some(Link { latency: Duration::ZERO, bandwidth: 1e6 }));
        let mut book = |now: u32, priority| queue.book(now * MS, now * MS, 1000, priority).unwrap();
        let patient: [u64; 3] = std::array::from_fn(|_| book(0, Priority::InOrder));
        let first = book(1, Priority::First);
        let second = book(1, Priority::First);
        // The second of the patient ones would have begun in this very moment.
        let times = |queue: &RouteQueue, number| queue.crosses(number).unwrap().0;
        assert_eq!(patient.map(|number| times(&queue, number)), [Duration::ZERO, 3 * MS, 4 * MS]);
        assert_eq!([first, second].map(|number| times(&queue, number)), [MS, 2 * MS]);
        queue.forget(MS, second);
        assert_eq!(times(&queue, patient[1]), 2 * MS, "what is dropped before it begins takes no time");
        // Later by 1 ms than the queue promised.
        assert_eq!(queue.deliver(MS, Some(first), (MS, 3 * MS)), (MS, 3 * MS));
        assert_eq!(times(&queue, patient[1]), 3 * MS);
        assert_eq!(queue.deliver(MS, Some(patient[0]), (Duration::ZERO, MS)), (Duration::ZERO, MS));
        assert_eq!(queue.deliver(MS, Some(patient[2]), (MS, MS)), (4 * MS, 5 * MS));
        assert_eq!(times(&queue, patient[1]), 3 * MS, "it began before that");
    }

    #[test]
    fn what_has_begun_keeps_its_times() {
        let mut queue = RouteQueue::new(Some(Link { latency: Duration::ZERO, bandwidth: 1e6 }));
        let booked: [u64; 3] = std::array::from_fn(|_| {
            queue.book(Duration::ZERO, Duration::ZERO, 1000, Priority::InOrder).unwrap()
        });
        let [late, dropped, last] = booked;
        queue.forget(MS + MS / 2, dropped);
        assert_eq!(queue.crosses(last), Some((2 * MS, 3 * MS)), "what is dropped had begun");
        // At 5 ms the last one has crossed, too.
        assert_eq!(queue.deliver(5 * MS, Some(late), (Duration::ZERO, 5 * MS)), (Duration::ZERO, 5 * MS));
        assert_eq!(queue.deliver(5 * MS, Some(last), (MS, MS)), (2 * MS, 3 * MS));
    }

    #[test]
    fn a_real_route_takes_what_it_takes() {
        assert_eq!(RouteQueue::default().cross(MS, 1 << 30, (2 * MS, 3 * MS)), (2 * MS, 3 * MS));
    }
}
