//! The lanes of a ring: the latest hop of every rank.

use super::{Lanes, MemberProgress};
use crate::fit::columns;
use crate::groups;
use crate::theme::{DIM, FAINT, GOOD, ink};
use crate::view::paint::Paint;
use crate::words;
use events::snapshot::Hop;
use ratatui::style::{Color, Style};

impl Lanes<'_> {
    /// Returns the latest hop that `rank` sent in this collective.
    pub(super) fn last_hop(&self, rank: usize) -> Option<Hop> {
        let group = groups::of_rank(&self.groups, rank)?.number;
        let event = &self.flight.event;
        let same = |hop: &Hop| (hop.group, hop.sequence) == (group, event.sequence);
        self.scene.now.ranks[rank].last_hop.filter(same)
    }

    /// Draws a link of the ring, from the column of its sender to that of its receiver.
    fn link(&self, start: u16, end: u16, (source, wire): (&str, &str), style: Style, paint: &mut Paint<'_>) {
        let (left, right) = (start.min(end), start.max(end));
        paint.run(left, 0, right - left, wire, style);
        paint.put(start, 0, source, style);
        paint.put(end, 0, if end > start { "▶" } else { "◀" }, style);
    }

    /// Draws the link that rank `lane`'s first hop will use.
    fn no_hop_yet(&self, lane: usize, paint: &mut Paint<'_>) {
        let Some(next) = self.next(lane) else { return };
        let issued = self.flying && self.progress[lane] != MemberProgress::Absent;
        let (source, style) = if issued { ("●", self.style()) } else { ("○", ink(FAINT)) };
        self.link(self.centres[lane], self.centres[next], (source, "╌"), style, paint);
    }

    /// Draws the latest hop that rank `lane` sent to its neighbour on the ring.
    pub(super) fn hop(&self, lane: usize, paint: &mut Paint<'_>) {
        for &column in self.centres {
            paint.put(column, 0, "·", ink(FAINT));
        }
        let (first, last) = (self.centres.first().copied(), self.centres.last().copied());
        let (Some(first), Some(last)) = (first, last) else { return };
        let Some(Hop { to, chunk, bytes, number, .. }) = self.last_hop(lane) else {
            return self.no_hop_yet(lane, paint);
        };
        let end = self.centres.get(usize::from(to)).copied().unwrap_or(first);
        self.link(self.centres[lane], end, ("●", self.wire(lane)), self.style(), paint);
        self.label(chunk.into(), ink(DIM), paint);
        let x = paint.text(last + 3, 0, words::short_bytes(bytes), ink(Color::Reset));
        let others = groups::members(&self.groups).saturating_sub(1) as u64;
        let hops = self.flight.event.operation.rounds() * others;
        let count = format!("hop {number} of {hops}");
        if x + 2 + columns(&count) <= paint.width() {
            paint.text(x + 2, 0, count, ink(if u64::from(number) >= hops { GOOD } else { DIM }));
        } else {
            paint.text(x + 1, 0, format!("{number}/{hops}"), ink(DIM));
        }
    }
}
