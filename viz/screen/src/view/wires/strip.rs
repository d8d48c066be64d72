//! The collective in one row, for screens without a row of cards: every rank's number, the slices
//! that it sends, receives or sums, and the wire to the next rank.

use super::{Lanes, MemberProgress};
use crate::fit::{columns, fitting};
use crate::groups;
use crate::player::Scene;
use crate::theme::{ALARM, DIM, FAINT, GOOD, WAITING, bold, ink, operation_colour};
use crate::view::paint::Paint;
use events::Operation;
use ratatui::style::Style;

/// The narrowest place with more than a symbol.
const NARROWEST: u16 = 7;

/// Draws the row. Draws nothing if there are more ranks than columns.
pub(in crate::view) fn strip(scene: &Scene, paint: &mut Paint<'_>) {
    let Some(lanes) = Lanes::of(scene, &[]) else { return };
    let ranks = scene.now.ranks.len() as u16;
    let each = paint.width() / ranks.max(1);
    for rank in 0..ranks {
        lanes.place(usize::from(rank), &mut paint.part(rank * each, 0, each, 1));
    }
}

impl Lanes<'_> {
    /// Draws one rank's place.
    fn place(&self, rank: usize, paint: &mut Paint<'_>) {
        let (symbol, style) = self.symbol(rank);
        if paint.width() < NARROWEST {
            paint.put(0, 0, symbol, style);
            return;
        }
        let number = if self.flying { ink(DIM) } else { ink(FAINT) };
        let digits = columns(&(self.progress.len() - 1).to_string());
        let x = paint.right(digits, 0, rank.to_string(), number) + 1;
        if self.scene.header.algorithm == "ring" {
            paint.put(x, 0, symbol, style);
            self.link_to_next(rank, x + 1, paint);
        } else {
            let (left, right) = self.sides(rank);
            paint.pieces(x, 0, &[left, symbol, right].map(|symbol| (symbol, style)));
            if self.next(rank) == Some(rank + 1) {
                let end = paint.width().saturating_sub(1);
                paint.run(x + 3, 0, end.saturating_sub(x + 3), self.wire(rank), self.wire_style(rank));
            }
        }
    }

    fn symbol(&self, rank: usize) -> (&'static str, Style) {
        let operation = self.flight.event.operation;
        let sums = matches!(operation, Operation::AllReduce | Operation::ReduceScatter);
        let own = if sums { "Σ" } else { "●" };
        match self.progress[rank] {
            _ if !self.flying => (own, ink(FAINT)),
            MemberProgress::Absent => ("○", ink(WAITING)),
            MemberProgress::Other => ("✗", bold(ALARM)),
            MemberProgress::Done => ("✓", ink(GOOD)),
            MemberProgress::Issued | MemberProgress::Moving => (own, bold(operation_colour(operation))),
        }
    }

    /// Returns the symbols left and right of a rank: slices leave it, arrive, or both.
    fn sides(&self, rank: usize) -> (&'static str, &'static str) {
        if self.flying && self.progress[rank] != MemberProgress::Moving {
            return (" ", " ");
        }
        match self.flight.event.operation {
            Operation::AllGather => ("◀", "▶"),
            Operation::ReduceScatter => ("▶", "◀"),
            _ => ("◆", "◆"),
        }
    }

    fn wire_style(&self, rank: usize) -> Style {
        if self.progress[rank] == MemberProgress::Absent { ink(FAINT) } else { self.style() }
    }

    /// Returns the next member of the rank's group; after the last, the first.
    pub(super) fn next(&self, rank: usize) -> Option<usize> {
        let members = &groups::of_rank(&self.groups, rank)?.ranks;
        let place = members.iter().position(|&member| member == rank)?;
        Some(members[(place + 1) % members.len()])
    }

    /// Draws the ring's link from `rank`, with the latest slice sent on it.
    fn link_to_next(&self, rank: usize, x: u16, paint: &mut Paint<'_>) {
        let Some(next) = self.next(rank) else { return };
        let hop = self.last_hop(rank);
        let wire = if hop.is_some() { self.wire(rank) } else { "╌" };
        let style = self.wire_style(rank);
        let (mut end, name) = (paint.width().saturating_sub(2), next.to_string());
        if next != rank + 1 {
            // The next rank is not the neighbour at the right, so its number is written at the
            // wire's end.
            let gap = u16::from(rank + 1 < self.progress.len());
            end = paint.width().saturating_sub(1 + gap + columns(&name));
            paint.text(end + 1, 0, name, ink(FAINT));
        }
        paint.run(x, 0, end.saturating_sub(x), wire, style);
        paint.put(end, 0, "▶", style);
        let Some(hop) = hop else { return };
        let words = [format!("slice {}", hop.chunk), hop.chunk.to_string()];
        let room = end.saturating_sub(x);
        paint.centred(x, room, 0, fitting(&words, room.saturating_sub(2)), ink(DIM));
    }
}
