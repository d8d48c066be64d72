//! Compute and communication of every rank on one time axis, and what hides behind what.

mod strip;
mod waits;

use super::axis::Axis;
use super::paint::{Paint, columns};
use crate::app::App;
use crate::player::Scene;
use crate::theme::{ACCENT, DIM, FAINT, WAITING, bold, ink, operation_colour, pass_colour};
use crate::window::Lane;
use crate::words;
use events::{Operation, Pass};
use ratatui::style::Color;
use strip::{Fill, Strip};

const LABELS: u16 = 10;

/// Draws the view.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let ranks = scene.now.ranks.len();
    let (width, height) = (paint.width(), paint.height());
    let x = paint.heading(0, 0, "Streams");
    let note = if words::simulated(&scene.header) {
        "the last step: each rank's computation above, the SIMULATED link's transfers below"
    } else {
        "the last step: each rank's computation above, its communication below"
    };
    paint.text(x + 2, 0, note, ink(DIM));
    let table = (ranks as u16 + 2).min(height / 3);
    let top = 1 + u16::from(height >= 28 && ranks <= 8);
    let room = height.saturating_sub(table + 2 + top);
    // Rows per stream: more only where the table of waits fits as well.
    let spacious = |tall: &u16| ranks as u16 * (2 * tall + 1) + ranks as u16 + 3 <= room;
    let tall = [3, 2].into_iter().find(spacious).unwrap_or(1);
    let each = if room >= ranks as u16 * 3 { 2 * tall + 1 } else { 2 };
    let shown = usize::from((room / each).max(1)).min(ranks);
    let first = if ranks > shown { (app.rank / shown * shown).min(ranks - shown) } else { 0 };
    let axis = Axis::last_steps(scene, app.player().clock(), 1, width.saturating_sub(LABELS));
    for (place, rank) in (first..first + shown).enumerate() {
        let y = top + place as u16 * each;
        lane(app, rank, axis, &mut paint.part(0, y, width, 2 * tall));
    }
    let y = top + shown as u16 * each;
    axis.draw(paint, LABELS, y);
    key(scene, &mut paint.part(0, y + 1, width, 1));
    let mut rest = paint.part(0, y + 2 + u16::from(height > y + table + 4), width, height);
    waits::overlaps(app, axis, (first, first + shown), &mut rest);
}

/// Two shades of a colour, so that neighbours stay apart.
fn shaded(colour: Color, number: usize) -> Color {
    match colour {
        Color::Rgb(r, g, b) if number % 2 == 1 => {
            let darker = |v: u8| (u16::from(v) * 4 / 5) as u8;
            Color::Rgb(darker(r), darker(g), darker(b))
        }
        other => other,
    }
}

fn lane(app: &App, rank: usize, axis: Axis, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let style = if rank == app.rank { bold(ACCENT) } else { bold(Color::Reset) };
    let tall = paint.height() / 2;
    paint.text(0, tall / 2, format!("rank {rank}"), style);
    let lane = &scene.window.lanes[rank];
    let now = app.player().clock();
    let width = axis.width;
    let busy = compute(scene, lane, axis, now, &mut paint.part(LABELS, 0, width, tall));
    communication(scene, lane, axis, now, &busy, &mut paint.part(LABELS, tall, width, tall));
}

/// Draws the compute stream and returns which columns are busy.
fn compute(scene: &Scene, lane: &Lane, axis: Axis, now: u64, paint: &mut Paint<'_>) -> Vec<bool> {
    let mut strip = Strip::new(axis);
    for (number, span) in lane.spans.iter().enumerate() {
        let glyph = pass_glyph(span.pass);
        let colour = shaded(pass_colour(span.pass), usize::from(span.unit));
        strip.add(span.from, span.to.unwrap_or(now), Fill { colour, glyph, solid: true, span: number });
    }
    strip.draw(paint, &|number| {
        let span = &lane.spans[number];
        unit_labels(words::unit(&scene.header, span.unit), words::pass(span.pass))
    });
    strip.columns.iter().map(|column| column.1.is_some()).collect()
}

/// Labels from the longest to the shortest.
fn unit_labels(unit: &str, verb: &str) -> Vec<String> {
    let mut labels = vec![format!("{verb} {unit}"), unit.to_string()];
    labels.extend(unit.strip_prefix("block ").map(String::from));
    labels
}

/// Draws the communication stream: what moves, what is issued and pending, and where the rank waits for others because
/// its compute stream is idle.
fn communication(scene: &Scene, lane: &Lane, axis: Axis, now: u64, busy: &[bool], paint: &mut Paint<'_>) {
    let mut strip = Strip::new(axis);
    for (number, transfer) in lane.transfers.iter().enumerate() {
        let colour = operation_colour(transfer.event.operation);
        if let Some(started) = transfer.started {
            let colour = shaded(colour, usize::from(transfer.event.unit));
            let finished = transfer.finished.unwrap_or(now);
            strip.add(started, finished, Fill { colour, glyph: "=", solid: true, span: number });
        }
        strip.add_pending(transfer.issued, transfer.started.unwrap_or(now), number);
    }
    for (column, busy) in strip.columns.iter_mut().zip(busy) {
        if let (Some(fill), false) = (&mut column.1, busy) {
            fill.colour = if fill.solid { fill.colour } else { WAITING };
        }
    }
    strip.draw(paint, &|number| {
        let event = &lane.transfers[number].event;
        if event.unit == events::event::NO_UNIT {
            return Vec::new();
        }
        unit_labels(&words::units(&scene.header, event.unit, event.units), event.operation.label())
    });
}

fn key(scene: &Scene, paint: &mut Paint<'_>) {
    let colours = paint.theme().colours();
    let symbol = |glyph| if colours { "█" } else { glyph };
    let used = |operation: Operation| {
        scene.now.ranks.iter().any(|rank| rank.sent.by_operation[operation.index()] > 0)
    };
    let seen = |pass: Pass| {
        let lanes = &scene.window.lanes;
        lanes.iter().any(|lane| lane.spans.iter().any(|span| span.pass == pass))
    };
    let mut entries: Vec<(&str, Color, &str)> = [Pass::Forward, Pass::Recompute, Pass::Backward, Pass::Step]
        .into_iter()
        .filter(|&pass| pass != Pass::Recompute || seen(pass))
        .map(|pass| (symbol(pass_glyph(pass)), pass_colour(pass), words::pass(pass)))
        .collect();
    let operations = [Operation::AllGather, Operation::ReduceScatter, Operation::AllReduce];
    entries.extend(
        operations.iter().filter(|&&o| used(o)).map(|&o| (symbol("="), operation_colour(o), o.label())),
    );
    entries.extend([("╌", FAINT, "issued"), ("╌", WAITING, "waits")]);
    let mut x = if paint.width() >= 100 { LABELS } else { 0 };
    let length: u16 = entries.iter().map(|(_, _, label)| columns(label) + 4).sum();
    let gap = if x + length <= paint.width() + 2 { 2 } else { 1 };
    for (glyph, colour, label) in entries {
        x = paint.text(x, 0, glyph, ink(colour));
        x = paint.text(x + 1, 0, label, ink(DIM)) + gap;
    }
}

fn pass_glyph(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "f",
        Pass::Backward => "b",
        Pass::Step => "u",
        Pass::Evaluate => "e",
        Pass::Recompute => "r",
    }
}
