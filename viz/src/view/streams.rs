//! Compute and communication of every rank on one time axis, and what hides behind what.

use super::axis::Axis;
use super::paint::{Paint, columns};
use crate::app::App;
use crate::overlap::{self, Overlap};
use crate::player::Scene;
use crate::theme::{self, ACCENT, DIM, FAINT, INK, WAITING, bold, ink, operation_colour, pass_colour};
use crate::window::Lane;
use crate::words;
use events::{Operation, Pass};
use ratatui::style::{Color, Style};

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
    let room = height.saturating_sub(table + 3);
    // Rows per stream: more only where the table of waits fits as well.
    let spacious = |tall: &u16| ranks as u16 * (2 * tall + 1) + ranks as u16 + 3 <= room;
    let tall = [3, 2].into_iter().find(spacious).unwrap_or(1);
    let each = if room >= ranks as u16 * 3 { 2 * tall + 1 } else { 2 };
    let shown = usize::from((room / each).max(1)).min(ranks);
    let first = if ranks > shown { (app.rank / shown * shown).min(ranks - shown) } else { 0 };
    let axis = Axis::last_steps(scene, app.player().clock(), 1, width.saturating_sub(LABELS));
    for (place, rank) in (first..first + shown).enumerate() {
        let y = 1 + place as u16 * each;
        lane(app, rank, axis, &mut paint.part(0, y, width, 2 * tall));
    }
    let y = 1 + shown as u16 * each;
    axis.draw(paint, LABELS, y);
    key(scene, &mut paint.part(0, y + 1, width, 1));
    let mut rest = paint.part(0, y + 2 + u16::from(height > y + table + 4), width, height);
    overlaps(app, axis, (first, first + shown), &mut rest);
}

/// What fills one column: how it looks and which span it belongs to.
#[derive(Clone, Copy, PartialEq)]
struct Fill {
    colour: Color,
    glyph: &'static str,
    solid: bool,
    span: usize,
}

/// A stream, column by column: each shows whatever takes most of its time.
struct Strip {
    axis: Axis,
    columns: Vec<(f64, Option<Fill>)>,
}

impl Strip {
    fn new(axis: Axis) -> Self {
        Strip { axis, columns: vec![(0.0, None); usize::from(axis.width)] }
    }

    fn add(&mut self, from: u64, to: u64, fill: Fill) {
        let (from, to) =
            (self.axis.column(from).max(0.0), self.axis.column(to).min(f64::from(self.axis.width)));
        let mut column = from.floor();
        while column < to {
            let covered = to.min(column + 1.0) - from.max(column);
            let slot = &mut self.columns[column as usize];
            if covered > slot.0 && covered > 0.08 {
                *slot = (covered, Some(fill));
            }
            column += 1.0;
        }
    }

    /// What is issued and does not move yet fills only columns in which nothing moves.
    fn add_pending(&mut self, from: u64, to: u64, span: usize) {
        let (from, to) =
            (self.axis.column(from).max(0.0), self.axis.column(to).min(f64::from(self.axis.width)));
        for column in from.floor() as usize..to.ceil().max(0.0) as usize {
            if let Some(slot) = self.columns.get_mut(column).filter(|slot| slot.1.is_none()) {
                slot.1 = Some(Fill { colour: FAINT, glyph: "╌", solid: false, span });
            }
        }
    }

    /// Draws it over the whole of `paint`; `labels` names a span, from the longest name to the shortest.
    fn draw(&self, paint: &mut Paint<'_>, labels: &dyn Fn(usize) -> Vec<String>) {
        let (mut x, height) = (0, paint.height());
        while x < self.columns.len() {
            let fill = self.columns[x].1;
            let same = self.columns[x..].iter().take_while(|column| column.1 == fill).count();
            match fill {
                Some(fill) => run(&mut paint.part(x as u16, 0, same as u16, height), fill, labels(fill.span)),
                None => paint.run(x as u16, height / 2, same as u16, "·", ink(FAINT)),
            }
            x += same;
        }
    }
}

/// One span, over the whole of `paint`.
fn run(paint: &mut Paint<'_>, fill: Fill, labels: Vec<String>) {
    let (width, middle) = (paint.width(), paint.height() / 2);
    if !fill.solid {
        return paint.run(0, middle, width, fill.glyph, ink(fill.colour));
    }
    let colours = paint.theme().colours();
    let style = if colours { Style::new().bg(fill.colour).fg(INK) } else { Style::new() };
    for y in 0..paint.height() {
        paint.run(0, y, width, if colours { " " } else { fill.glyph }, style);
    }
    if let Some(label) = labels.iter().find(|label| columns(label) + 1 < width) {
        paint.centred(0, width, middle, label, style);
    }
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
    for (glyph, colour, label) in entries {
        x = paint.text(x, 0, glyph, ink(colour));
        x = paint.text(x + 1, 0, label, ink(DIM)) + 2;
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

/// Overlapped and exposed communication per rank, and who waited for whom.
fn overlaps(app: &App, axis: Axis, shown: (usize, usize), paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let measured = overlap::measure(&scene.window, (axis.from, app.player().clock().min(axis.to)));
    let labels = ["compute", "communicate", "overlapped", "exposed", "waited"];
    let wide = paint.width() >= 100;
    let step = if wide { 16 } else { 14 };
    for (number, label) in (0u16..).zip(labels) {
        paint.right(LABELS + step * (number + 1) - 2, 0, label, ink(DIM));
    }
    let last = LABELS + step * 5;
    if wide {
        paint.text(last + 2, 0, "mostly for", ink(DIM));
    }
    for (y, rank) in (1u16..paint.height()).zip(shown.0..shown.1) {
        let style = if rank == app.rank { bold(ACCENT) } else { ink(Color::Reset) };
        paint.text(0, y, format!("rank {rank}"), style);
        row(&measured[rank], y, step, paint);
        if wide {
            paint.text(last + 2, y, waited_for(&measured[rank]), ink(theme::WAITING));
        }
    }
    let y = 3 + (shown.1 - shown.0) as u16;
    let rest = paint.height().saturating_sub(y);
    waits(&measured, shown, &mut paint.part(0, y, paint.width(), rest));
}

/// Who waited for whom, rank by rank, if there is room.
fn waits(measured: &[Overlap], (first, end): (usize, usize), paint: &mut Paint<'_>) {
    let ranks = end - first;
    if paint.height() < ranks as u16 + 3 || paint.width() < LABELS + 10 * ranks as u16 {
        return;
    }
    let x = paint.heading(0, 0, "Who waited for whom");
    paint.text(x + 2, 0, "a row waits, a column is waited for", ink(DIM));
    for (place, other) in (1u16..).zip(first..end) {
        paint.right(LABELS + 10 * place, 1, format!("rank {other}"), ink(DIM));
    }
    let most = measured.iter().flat_map(|overlap| &overlap.waited_for).copied().max().unwrap_or(0).max(1);
    for (y, rank) in (2u16..).zip(first..end) {
        paint.text(0, y, format!("rank {rank}"), ink(DIM));
        for (place, other) in (1u16..).zip(first..end) {
            let time = measured[rank].waited_for[other];
            let text = if time == 0 { "·".into() } else { words::time(time) };
            let style = if time * 2 > most {
                bold(WAITING)
            } else {
                ink(if time > 0 { Color::Reset } else { FAINT })
            };
            paint.right(LABELS + 10 * place, y, text, style);
        }
    }
}

fn row(overlap: &Overlap, y: u16, step: u16, paint: &mut Paint<'_>) {
    let communication = overlap.communication as f64;
    let share =
        |part: u64| format!("{} {:>5}", words::time(part), words::percent(part as f64, communication));
    let values = [
        words::time(overlap.compute),
        words::time(overlap.communication),
        share(overlap.overlapped),
        share(overlap.exposed),
        words::time(overlap.waiting),
    ];
    for (number, value) in (0u16..).zip(values) {
        paint.right(LABELS + step * (number + 1) - 2, y, value, ink(Color::Reset));
    }
}

fn waited_for(overlap: &Overlap) -> String {
    let most = overlap.waited_for.iter().enumerate().max_by_key(|(_, time)| **time);
    match most.filter(|(_, time)| **time > 0) {
        Some((rank, &time)) => format!("rank {rank} ({})", words::time(time)),
        None => "nobody".into(),
    }
}
