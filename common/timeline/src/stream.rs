//! What a link carries, one thing at a time.

/// When something begins and ends, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

/// A stream of collectives or transfers. Each is booked when the script issues it, which may be
/// long before it is ready.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// When it is booked, in order.
    busy: Vec<Span>,
    /// When the latest that went first has crossed.
    first: f64,
    /// The seconds by which what went first delays the next booking.
    delay: f64,
}

impl Stream {
    /// Returns when something crosses that is ready at `ready` and takes `seconds`: as soon as the
    /// stream is free for so long.
    pub(crate) fn cross(&mut self, ready: f64, seconds: f64) -> Span {
        let mut at = self.busy.len();
        let mut from = ready.max(self.end() + self.delay);
        for (next, span) in self.busy.iter().enumerate().rev() {
            if span.from <= ready {
                break;
            }
            let before = next.checked_sub(1).map_or(ready, |before| self.busy[before].to.max(ready));
            if span.from - before >= seconds {
                (at, from) = (next, before);
            }
        }
        let to = from + seconds;
        if at == self.busy.len() {
            // What went first crosses where the next booking is late.
            self.busy.push(Span { from: from - std::mem::take(&mut self.delay), to });
        } else {
            self.busy.insert(at, Span { from, to });
        }
        Span { from, to }
    }

    /// Returns when something crosses that goes before all that has not begun at `ready`. Bookings
    /// are not moved: the next one is later instead.
    pub(crate) fn cross_first(&mut self, ready: f64, seconds: f64) -> Span {
        let under_way = self.busy.iter().rev().find(|span| span.from < ready && self.first < ready);
        let from = under_way.map_or(ready, |span| span.to.max(ready)).max(self.first);
        let span = Span { from, to: from + seconds };
        if from >= self.end() + self.delay {
            self.delay = 0.0;
            self.busy.push(span);
            return span;
        }
        self.first = span.to;
        self.delay += seconds;
        span
    }

    /// Returns the end of the last booking.
    fn end(&self) -> f64 {
        self.busy.last().map_or(0.0, |last| last.to)
    }

    /// Forgets what has crossed before `time`.
    pub(crate) fn forget_before(&mut self, time: f64) {
        self.busy.retain(|span| span.to > time);
    }
}
