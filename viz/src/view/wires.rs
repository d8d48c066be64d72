//! The collective between the ranks: who sends what to whom.
//!
//! One lane per slice of the buffer. In an all-gather, slice r leaves rank r for everybody; in a reduce-scatter,
//! everybody's contribution to slice r arrives at rank r. A ring's lanes are its latest hops.

use super::paint::{Paint, columns, fitted};
use crate::narration::{self, leading_collective};
use crate::player::Scene;
use crate::theme::{DIM, FAINT, GOOD, WAITING, bold, ink, operation_colour};
use crate::words;
use events::event::NO_UNIT;
use events::snapshot::Hop;
use events::{Flight, Operation};
use ratatui::style::{Color, Style};

/// The collective to show: the one in flight, or the one that came last.
fn shown(scene: &Scene) -> Option<(Flight, bool)> {
    let ranks = &scene.now.ranks;
    let flying = leading_collective(scene);
    let landed =
        || ranks.iter().filter_map(|rank| rank.last_flight).max_by_key(|flight| flight.event.sequence);
    flying.map(|flight| (flight, true)).or_else(|| landed().map(|flight| (flight, false)))
}

/// How far the collective has come on a rank.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Absent,
    Issued,
    Moving,
    Done,
}

fn stage(scene: &Scene, rank: usize, sequence: u64, group: u16) -> Stage {
    let rank = &scene.now.ranks[rank];
    let flying = rank.flights.iter().find(|f| f.event.sequence == sequence && f.event.group == group);
    let done =
        rank.last_flight.is_some_and(|last| last.event.sequence >= sequence && last.event.group == group);
    match flying {
        Some(flight) if flight.started.is_some() => Stage::Moving,
        Some(_) => Stage::Issued,
        None if done => Stage::Done,
        None => Stage::Absent,
    }
}

/// One line of words about the collective.
pub(super) fn line(scene: &Scene, paint: &mut Paint<'_>) {
    let Some((flight, flying)) = shown(scene) else {
        paint.text(0, 0, "no collective yet", ink(DIM));
        return;
    };
    let event = flight.event;
    let colour = if flying { operation_colour(event.operation) } else { DIM };
    let mut x = paint.text(0, 0, if flying { "▶ " } else { "✓ " }, bold(colour));
    x = paint.text(x, 0, narration::name(scene, &flight), bold(colour));
    let ranks = scene.now.ranks.len();
    let slice = words::bytes(event.bytes / ranks.max(1) as u64);
    let size = format!("  {} in slices of {slice}", words::bytes(event.bytes));
    x = paint.text(x, 0, size, ink(DIM));
    let stages: Vec<Stage> = (0..ranks).map(|r| stage(scene, r, event.sequence, event.group)).collect();
    let counted = |wanted: Stage| stages.iter().filter(|stage| **stage == wanted).count();
    let (absent, done) = (counted(Stage::Absent), counted(Stage::Done));
    let moving = counted(Stage::Moving);
    let state = if absent > 0 && flying {
        (format!("  issued by {} of {ranks}", ranks - absent), WAITING)
    } else if done == ranks {
        ("  complete on every rank".into(), GOOD)
    } else if done + moving == 0 {
        ("  issued by every rank".into(), DIM)
    } else {
        (format!("  complete on {done} of {ranks}"), GOOD)
    };
    x = paint.text(x, 0, state.0, ink(state.1));
    let more: usize = scene.now.ranks.iter().map(data_flights).max().unwrap_or(0);
    if more > 1 {
        let text = format!("  + {} more in flight", more - 1);
        let room = paint.width().saturating_sub(x);
        paint.text(x, 0, fitted(&text, room), ink(DIM));
    }
}

fn data_flights(rank: &events::RankSnapshot) -> usize {
    rank.flights.iter().filter(|flight| flight.event.unit != NO_UNIT).count()
}

/// The lanes, below a line of words; `centres` are the columns of the ranks.
pub(super) fn draw(scene: &Scene, centres: &[u16], paint: &mut Paint<'_>) {
    line(scene, &mut paint.part(0, 0, paint.width(), 1));
    let Some((flight, flying)) = shown(scene) else { return };
    let ranks = scene.now.ranks.len();
    let stages: Vec<Stage> =
        (0..ranks).map(|rank| stage(scene, rank, flight.event.sequence, flight.event.group)).collect();
    let moving = flying && stages.iter().any(|stage| matches!(stage, Stage::Moving | Stage::Done));
    let ring = scene.header.algorithm == "ring";
    let lanes = Lanes { scene, flight: &flight, centres, stages: &stages, flying, moving };
    for lane in 0..ranks.min(usize::from(paint.height().saturating_sub(1))) {
        let mut row = paint.part(0, lane as u16 + 1, paint.width(), 1);
        if ring {
            let hop = scene.now.ranks[lane].last_hop.filter(|hop| hop.sequence == flight.event.sequence);
            lanes.hop(lane, hop, &mut row);
        } else {
            lanes.slice(lane, &mut row);
        }
    }
}

struct Lanes<'a> {
    scene: &'a Scene,
    flight: &'a Flight,
    centres: &'a [u16],
    stages: &'a [Stage],
    flying: bool,
    moving: bool,
}

impl Lanes<'_> {
    fn style(&self) -> Style {
        let colour = operation_colour(self.flight.event.operation);
        if self.flying { ink(colour) } else { ink(FAINT) }
    }

    fn wire(&self) -> &'static str {
        if self.moving || !self.flying { "━" } else { "╌" }
    }

    fn label(&self, lane: usize, paint: &mut Paint<'_>) {
        let style = if self.flying { ink(DIM) } else { ink(FAINT) };
        let first = self.centres.first().copied().unwrap_or(0);
        if first >= 9 {
            paint.text(first.saturating_sub(9), 0, format!("slice {lane}"), style);
        }
    }

    /// Slice `lane` on its way from or to rank `lane`.
    fn slice(&self, lane: usize, paint: &mut Paint<'_>) {
        let (Some(&left), Some(&right)) = (self.centres.first(), self.centres.last()) else { return };
        self.label(lane, paint);
        paint.run(left, 0, right - left, self.wire(), self.style());
        let inward = matches!(self.flight.event.operation, Operation::ReduceScatter);
        let both = matches!(self.flight.event.operation, Operation::AllReduce);
        let strong =
            if self.flying { bold(operation_colour(self.flight.event.operation)) } else { ink(FAINT) };
        for (rank, &column) in self.centres.iter().enumerate() {
            let away = rank != lane;
            let symbol = match (away, inward || both) {
                (true, false) => {
                    if rank < lane {
                        "◀"
                    } else {
                        "▶"
                    }
                }
                (true, true) => "●",
                (false, true) => "Σ",
                (false, false) => "●",
            };
            paint.put(column, 0, symbol, strong);
            if inward && away {
                let (arrow, x) =
                    if rank < lane { ("▶", column + 2) } else { ("◀", column.saturating_sub(2)) };
                paint.put(x, 0, arrow, strong);
            }
            if both && away {
                paint.put(column, 0, "◆", strong);
            }
            self.state(rank, column, paint);
        }
        self.bytes(paint, right);
    }

    /// A rank that has not issued yet leaves a gap; one that is done a tick.
    fn state(&self, rank: usize, column: u16, paint: &mut Paint<'_>) {
        match self.stages[rank] {
            Stage::Absent if self.flying => paint.put(column, 0, "○", ink(WAITING)),
            Stage::Done if self.flying => {
                paint.put(column + 1, 0, "✓", ink(GOOD));
            }
            _ => {}
        }
    }

    fn bytes(&self, paint: &mut Paint<'_>, right: u16) {
        let ranks = self.scene.now.ranks.len().max(1) as u64;
        let style = if self.flying { ink(Color::Reset) } else { ink(FAINT) };
        paint.text(right + 3, 0, words::short_bytes(self.flight.event.bytes / ranks), style);
    }

    /// The latest hop that rank `lane` sent to its neighbour on the ring.
    fn hop(&self, lane: usize, hop: Option<Hop>, paint: &mut Paint<'_>) {
        for &column in self.centres {
            paint.put(column, 0, "·", ink(FAINT));
        }
        let (first, last) = (self.centres.first().copied(), self.centres.last().copied());
        let (Some(first), Some(last)) = (first, last) else { return };
        let Some(Hop { to, chunk, bytes, number, .. }) = hop else {
            paint.put(self.centres[lane], 0, "○", ink(if self.flying { WAITING } else { FAINT }));
            return;
        };
        let (start, end) = (self.centres[lane], self.centres.get(usize::from(to)).copied().unwrap_or(first));
        let (left, right) = (start.min(end), start.max(end));
        paint.run(left, 0, right - left, self.wire(), self.style());
        paint.put(start, 0, "●", self.style());
        paint.put(end, 0, if end > start { "▶" } else { "◀" }, self.style());
        if first >= 9 {
            paint.text(first.saturating_sub(9), 0, format!("chunk {chunk}"), ink(DIM));
        }
        let x = paint.text(last + 3, 0, words::short_bytes(bytes), ink(Color::Reset));
        let rounds = if self.flight.event.operation == Operation::AllReduce { 2 } else { 1 };
        let hops = rounds * self.centres.len().saturating_sub(1);
        let count = format!("hop {number} of {hops}");
        if x + 2 + columns(&count) <= paint.width() {
            paint.text(x + 2, 0, count, ink(if number as usize >= hops { GOOD } else { DIM }));
        } else {
            paint.text(x + 1, 0, format!("{number}/{hops}"), ink(DIM));
        }
    }
}
