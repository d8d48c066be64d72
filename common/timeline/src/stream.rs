//! What a link carries, one thing at a time.

/// When something begins and ends, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

/// A stream of collectives or transfers. One that is ready earlier goes first, also if it is issued
/// later: a run issues it when it is ready.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// When it is busy, in order.
    busy: Vec<Span>,
    /// When the latest that went first has crossed.
    first: f64,
    /// The seconds that went first beside `busy`, and that gaps in it make up for.
    beside: f64,
    /// How much later the next one begins, since gaps did not suffice.
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
        if at == self.busy.len() {
            self.delay = 0.0;
        }
        let span = Span { from, to: from + seconds };
        self.busy.insert(at, span);
        span
    }

    /// Returns when something crosses that goes before all that has not begun at `ready`. What has
    /// its time keeps it: the gaps that follow, and then what is issued next, make up for it.
    pub(crate) fn cross_first(&mut self, ready: f64, seconds: f64) -> Span {
        let under_way = self.busy.iter().rev().find(|span| span.from < ready);
        let from = under_way.map_or(ready, |span| span.to.max(ready)).max(self.first);
        let span = Span { from, to: from + seconds };
        self.first = span.to;
        let shared = |other: &Span| (other.to.min(span.to) - other.from.max(span.from)).max(0.0);
        let later = || self.busy.iter().rev().take_while(|other| other.to > from);
        let overlap: f64 = later().map(shared).sum();
        if overlap == 0.0 {
            return self.cross(from, seconds);
        }
        let gaps = self.end() - from - later().map(|other| other.to - other.from).sum::<f64>();
        let made_up = overlap.min((gaps - self.beside).max(0.0));
        self.beside += made_up;
        self.delay += overlap - made_up;
        span
    }

    /// Returns when it has carried all that has its time.
    fn end(&self) -> f64 {
        self.busy.last().map_or(0.0, |last| last.to)
    }

    /// Forgets what has crossed before `time`.
    pub(crate) fn forget_before(&mut self, time: f64) {
        self.busy.retain(|span| span.to > time);
        self.beside = 0.0;
    }
}
