//! The collective between the ranks: which rank sends which slice to which rank.
//!
//! One lane per slice of the buffer. In an all-gather, rank r sends slice r to all ranks; in a
//! reduce-scatter, all ranks send slice r to rank r. Groups within the world are drawn side by
//! side. The lanes of a ring show its latest hops.

mod ring;
mod strip;

pub(super) use strip::strip;

use super::paint::Paint;
use crate::fit::{columns, fitted, fitting, whole_words};
use crate::groups::{self, Disagreement, RankGroup};
use crate::narration::{self, leading_collective};
use crate::player::Scene;
use crate::theme::{ALARM, DIM, FAINT, GOOD, WAITING, bold, ink, operation_colour};
use crate::words;
use events::{Flight, Operation};
use ratatui::style::{Color, Style};

/// The progress of the collective on one rank.
#[derive(Clone, Copy, PartialEq)]
enum MemberProgress {
    Absent,
    /// The rank has issued a different collective under the same number.
    Other,
    Issued,
    Moving,
    Done,
}

/// Returns each rank's progress with `flight`, or with its own group's collective of the same
/// number. The ranks of `odd` have issued a different one.
fn progress_of(scene: &Scene, groups: &[RankGroup], flight: &Flight, odd: &[usize]) -> Vec<MemberProgress> {
    let sequence = flight.event.sequence;
    let of = |number: usize| {
        let group = groups::of_rank(groups, number).map_or(flight.event.group, |group| group.number);
        let rank = &scene.now.ranks[number];
        let same = |f: &&Flight| f.event.sequence == sequence && f.event.group == group;
        match rank.flights.iter().find(same) {
            Some(_) if odd.contains(&number) => MemberProgress::Other,
            Some(flight) if flight.started.is_some() => MemberProgress::Moving,
            Some(_) => MemberProgress::Issued,
            None if rank.has_finished(group, sequence) => MemberProgress::Done,
            None => MemberProgress::Absent,
        }
    };
    (0..scene.now.ranks.len()).map(of).collect()
}

/// Draws a line of text about the collective.
pub(super) fn line(scene: &Scene, paint: &mut Paint<'_>) {
    let Some(lanes) = Lanes::of(scene, &[]) else {
        paint.text(0, 0, "no collective yet", ink(DIM));
        return;
    };
    lanes.line(paint);
}

/// Returns descriptions of the buffer's size and slices, from the longest to the shortest.
fn sizes(groups: &[RankGroup], bytes: u64) -> Vec<String> {
    let (members, whole) = (groups::members(groups), words::bytes(bytes));
    let slice = words::bytes(groups::slice(groups, bytes));
    let mut notes = vec![format!("  {whole} in slices of {slice}"), format!("  {whole}")];
    if groups.len() > 1 {
        let count = groups.len();
        notes.insert(0, format!("  in {count} groups of {members}, {whole} each, in slices of {slice}"));
        notes.insert(1, format!("  in {count} groups of {members}, {whole} each"));
    }
    notes
}

/// Returns the collective's progress in words, and their colour.
fn state(progress: &[MemberProgress], flying: bool, colour: Color) -> (String, Color) {
    let ranks = progress.len();
    let counted = |wanted: MemberProgress| progress.iter().filter(|member| **member == wanted).count();
    let (absent, done, moving) =
        (counted(MemberProgress::Absent), counted(MemberProgress::Done), counted(MemberProgress::Moving));
    if absent > 0 && flying {
        (format!("  issued by {} of {ranks}", ranks - absent), WAITING)
    } else if done == ranks {
        ("  complete on every rank".into(), GOOD)
    } else if done > 0 {
        (format!("  complete on {done} of {ranks}"), GOOD)
    } else if moving > 0 {
        ("  moving".into(), colour)
    } else {
        ("  issued by every rank".into(), DIM)
    }
}

/// Returns which ranks have issued a different collective, and which one.
fn instead(scene: &Scene, found: &Disagreement) -> (String, Color) {
    let odd = narration::listed(&found.odd);
    (format!("  but {odd}: {}", narration::name(scene, &found.theirs)), ALARM)
}

fn data_flights(rank: &events::RankSnapshot) -> usize {
    rank.flights.iter().filter(|flight| !flight.event.units.is_empty()).count()
}

/// Draws a line of text and the lanes below it. `centres` are the columns of the ranks.
pub(super) fn draw(scene: &Scene, centres: &[u16], paint: &mut Paint<'_>) {
    let Some(lanes) = Lanes::of(scene, centres) else { return line(scene, paint) };
    lanes.line(&mut paint.part(0, 0, paint.width(), 1));
    for row in 0..scene.now.ranks.len().min(usize::from(paint.height().saturating_sub(1))) {
        let mut paint = paint.part(0, row as u16 + 1, paint.width(), 1);
        if scene.header.algorithm == "ring" {
            lanes.hop(row, &mut paint);
        } else {
            lanes.row(row, &mut paint);
        }
    }
}

struct Lanes<'a> {
    scene: &'a Scene,
    flight: Flight,
    centres: &'a [u16],
    progress: Vec<MemberProgress>,
    groups: Vec<RankGroup>,
    disagreement: Option<Disagreement>,
    flying: bool,
}

impl<'a> Lanes<'a> {
    /// Returns the lanes of the collective in flight or, if there is none, of the latest finished
    /// one.
    fn of(scene: &'a Scene, centres: &'a [u16]) -> Option<Self> {
        let landed = scene.now.ranks.iter().filter_map(|rank| rank.last_flight.as_ref());
        let leading = leading_collective(scene);
        let flying = leading.is_some();
        let leading = leading.or_else(|| landed.max_by_key(|flight| flight.event.sequence).cloned())?;
        let disagreement = groups::disagreement(scene, &leading);
        let flight = disagreement.as_ref().filter(|_| flying).map_or(leading, |found| found.usual.clone());
        let groups = groups::created_with(&scene.now, flight.event.group);
        let odd = disagreement.as_ref().map_or(&[][..], |found| &found.odd);
        let progress = progress_of(scene, &groups, &flight, odd);
        Some(Lanes { scene, flight, centres, progress, groups, disagreement, flying })
    }

    fn line(&self, paint: &mut Paint<'_>) {
        let (scene, event) = (self.scene, &self.flight.event);
        let colour = if self.flying { operation_colour(event.operation) } else { DIM };
        let mut x = paint.text(0, 0, if self.flying { "▶ " } else { "✓ " }, bold(colour));
        let name = narration::name(scene, &self.flight);
        x = paint.text(x, 0, fitted(&name, paint.width().saturating_sub(x)), bold(colour));
        let state = match &self.disagreement {
            Some(found) => instead(scene, found),
            None => state(&self.progress, self.flying, colour),
        };
        let more: usize = scene.now.ranks.iter().map(data_flights).max().unwrap_or(0);
        let more = if more > 1 { format!("  + {} more in flight", more - 1) } else { String::new() };
        let room = paint.width().saturating_sub(x);
        let notes = sizes(&self.groups, event.bytes);
        let beside = |others: &str| fitting(&notes, room.saturating_sub(columns(&state.0) + columns(others)));
        let note = Some(beside(&more)).filter(|note| !note.is_empty()).unwrap_or_else(|| beside(""));
        x = paint.text(x, 0, note, ink(DIM));
        x = paint.text(x, 0, whole_words(&state.0, paint.width().saturating_sub(x)), ink(state.1));
        if x + columns(&more) <= paint.width() {
            paint.text(x, 0, more, ink(DIM));
        }
    }

    fn style(&self) -> Style {
        let colour = operation_colour(self.flight.event.operation);
        if self.flying { ink(colour) } else { ink(FAINT) }
    }

    /// Returns the line between `rank` and the other members of its group: a solid one once data of
    /// the collective moves on any of them.
    fn wire(&self, rank: usize) -> &'static str {
        let begun =
            |member: &usize| matches!(self.progress[*member], MemberProgress::Moving | MemberProgress::Done);
        let group = groups::of_rank(&self.groups, rank);
        let moving = group.is_some_and(|group| group.ranks.iter().any(begun));
        if moving || !self.flying { "━" } else { "╌" }
    }

    /// Names a lane's slice, if there is room before the first rank.
    fn label(&self, slice: usize, style: Style, paint: &mut Paint<'_>) {
        if let Some(x) = self.centres.first().and_then(|first| first.checked_sub(9)) {
            paint.text(x, 0, format!("slice {slice}"), style);
        }
    }

    /// Draws one row of lanes. Groups of neighbours share a row; other groups alternate.
    fn row(&self, row: usize, paint: &mut Paint<'_>) {
        let shared = groups::are_neighbours(&self.groups);
        let (lane, groups) = if shared {
            (row, &self.groups[..])
        } else {
            let turn = row % self.groups.len();
            (row / self.groups.len(), &self.groups[turn..=turn])
        };
        if lane >= groups::members(&self.groups) {
            return;
        }
        self.label(lane, if self.flying { ink(DIM) } else { ink(FAINT) }, paint);
        groups.iter().for_each(|group| self.slice(group, lane, paint));
        self.bytes(paint, self.centres.last().copied().unwrap_or(0));
    }

    /// Draws the lane of slice `lane`, which the group's member of that number sends or receives.
    fn slice(&self, group: &RankGroup, lane: usize, paint: &mut Paint<'_>) {
        let column = |rank: &usize| self.centres.get(*rank).copied();
        let ends = [group.ranks.first(), group.ranks.last()].map(|rank| rank.and_then(column));
        let [Some(left), Some(right)] = ends else { return };
        paint.run(left, 0, right - left, self.wire(group.ranks[0]), self.style());
        for (member, &rank) in group.ranks.iter().enumerate() {
            let Some(column) = column(&rank) else { return };
            self.member(member, lane, column, paint);
            self.state(rank, column, paint);
        }
    }

    /// Draws what a member does with slice `lane`: it sends, receives or sums it.
    fn member(&self, member: usize, lane: usize, column: u16, paint: &mut Paint<'_>) {
        let operation = self.flight.event.operation;
        let style = if self.flying { bold(operation_colour(operation)) } else { ink(FAINT) };
        let (away, before) = (member != lane, member < lane);
        let symbol = match (operation, away) {
            (Operation::AllReduce, true) => "◆",
            (Operation::AllReduce | Operation::ReduceScatter, false) => "Σ",
            (Operation::ReduceScatter, true) | (_, false) => "●",
            (_, true) if before => "◀",
            (_, true) => "▶",
        };
        paint.put(column, 0, symbol, style);
        if operation == Operation::ReduceScatter && away {
            let (arrow, x) = if before { ("▶", column + 2) } else { ("◀", column.saturating_sub(2)) };
            paint.put(x, 0, arrow, style);
        }
    }

    /// Marks a rank that has not issued the collective, has issued a different one, or is done.
    fn state(&self, rank: usize, column: u16, paint: &mut Paint<'_>) {
        match self.progress[rank] {
            MemberProgress::Absent if self.flying => paint.put(column, 0, "○", ink(WAITING)),
            MemberProgress::Other if self.flying => paint.put(column, 0, "✗", bold(ALARM)),
            MemberProgress::Done if self.flying => paint.put(column + 1, 0, "✓", ink(GOOD)),
            _ => {}
        }
    }

    fn bytes(&self, paint: &mut Paint<'_>, right: u16) {
        let style = if self.flying { ink(Color::Reset) } else { ink(FAINT) };
        let slice = groups::slice(&self.groups, self.flight.event.bytes);
        paint.text(right + 3, 0, words::short_bytes(slice), style);
    }
}
