//! Compute, communication and transfers of every rank on one time axis, and how much of it
//! overlaps.

mod key;
mod strip;
mod waits;

use super::axis::Axis;
use super::pages::RankPage;
use super::paint::Paint;
use crate::app::App;
use crate::fit::{columns, fitting};
use crate::overlap::{self, Meetings};
use crate::player::Scene;
use crate::theme::{
    ACCENT, DIM, Depth, Theme, WAITING, bold, class_colour, class_name, ink, operation_colour,
    operation_glyph, pass_colour, pass_glyph,
};
use crate::window::RankWindow;
use crate::{places, words};
use events::Place;
use ratatui::style::Color;
use strip::{Look, Strip};

const LABELS: u16 = 10;

/// How the view's rows are used.
struct StreamRows {
    /// The number of ranks on a page.
    shown: usize,
    /// Rows per stream.
    tall: u16,
    /// Rows from a rank to the next.
    each: u16,
    /// Rows of all lanes.
    lanes: u16,
    /// Rows left over.
    spare: u16,
}

impl StreamRows {
    /// Returns the rows for `ranks` ranks with `streams` streams each. The other rows are for
    /// heading, axis, key and a table with a row per rank.
    fn new(ranks: usize, streams: u16, height: u16) -> Self {
        let room = |shown: usize| height.saturating_sub(4 + shown as u16);
        let fits = |&shown: &usize| shown as u16 * streams <= room(shown);
        let shown = (1..=ranks).map(|pages| ranks.div_ceil(pages)).find(fits).unwrap_or(1);
        let (count, room) = (shown as u16, room(shown));
        let lanes = |tall: u16, gap: u16| (count * (streams * tall + gap)).saturating_sub(gap);
        // Taller lanes only if the table of waiting times fits as well.
        let tall = [3, 2].into_iter().find(|&tall| lanes(tall, 1) + count + 6 <= room).unwrap_or(1);
        let gap = u16::from(lanes(tall, 1) <= room);
        let lanes = lanes(tall, gap);
        StreamRows { shown, tall, each: streams * tall + gap, lanes, spare: room.saturating_sub(lanes) }
    }
}

pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let (ranks, width) = (scene.now.ranks.len(), paint.width());
    let StreamRows { shown, tall, each, lanes, spare } =
        StreamRows::new(ranks, streams(scene), paint.height());
    let page = RankPage::new(app, shown);
    heading(scene, &page, paint);
    let axis = Axis::last_steps(app.player(), 1, width.saturating_sub(LABELS));
    let meetings = Meetings::of(&scene.window);
    let top = 1 + u16::from(spare > 1);
    for (place, &rank) in (0u16..).zip(&page.ranks) {
        lane(
            app,
            rank,
            (axis, &meetings),
            &mut paint.part(0, top + place * each, width, streams(scene) * tall),
        );
    }
    let y = top + lanes;
    axis.draw(paint, LABELS, y);
    key::draw(scene, &mut paint.part(0, y + 1, width, 1));
    let mut rest = paint.part(0, y + 2 + u16::from(spare > 0), width, u16::MAX);
    waits::overlaps(app, axis, &page.ranks, &mut rest);
}

/// Returns the number of streams per rank: computation, communication, the CPU's work and those of
/// transfers.
fn streams(scene: &Scene) -> u16 {
    let on_cpu = u16::from(places::updates_on_cpu(&scene.header));
    2 + on_cpu + places::used(&scene.header).len() as u16
}

fn heading(scene: &Scene, page: &RankPage, paint: &mut Paint<'_>) {
    let width = paint.width();
    let x = paint.heading(0, 0, "Streams") + 2;
    let page = page.label();
    paint.right(width, 0, &page, ink(ACCENT));
    let header = &scene.header;
    let below = if words::simulated_communication(header) {
        "the SIMULATED link's transfers"
    } else {
        "its communication"
    };
    let notes = if places::used(header).is_empty() {
        vec![
            format!("the last step: each rank's computation above, {below} below"),
            format!("computation above, {below} below"),
        ]
    } else {
        let simulated = if words::simulated_transfers(header) { "SIMULATED " } else { "" };
        let cpu = if places::updates_on_cpu(header) { "the CPU, " } else { "" };
        let disk = if places::used(header).contains(&Place::Disk) { " and disk" } else { "" };
        let streams = format!("computation, {below}, {cpu}{simulated}copies{disk}");
        vec![format!("the last step: {streams}"), streams, "the streams of each rank".into()]
    };
    let room = width.saturating_sub(x + columns(&page) + 2);
    paint.text(x, 0, fitting(&notes, room), ink(DIM));
}

/// Returns one of two shades of a colour, to tell neighbours apart on terminals with enough
/// colours.
fn shaded(colour: Color, number: u16, theme: Theme) -> Color {
    match colour {
        Color::Rgb(r, g, b) if number % 2 == 1 && theme.depth != Depth::Named => {
            let darker = |v: u8| (u16::from(v) * 4 / 5) as u8;
            Color::Rgb(darker(r), darker(g), darker(b))
        }
        other => other,
    }
}

fn lane(app: &App, rank: usize, (axis, meetings): (Axis, &Meetings<'_>), paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let style = if rank == app.rank { bold(ACCENT) } else { bold(Color::Reset) };
    let tall = paint.height() / streams(scene);
    paint.text(0, tall / 2, format!("rank {rank}"), style);
    let lane = &scene.window.lanes[rank];
    let width = axis.width;
    let busy = passes(scene, lane, false, axis, &mut paint.part(LABELS, 0, width, tall));
    let streams = (lane, meetings, &busy[..]);
    communication(scene, streams, axis, &mut paint.part(LABELS, tall, width, tall));
    let mut y = 2 * tall;
    if places::updates_on_cpu(&scene.header) {
        paint.text(0, y + tall / 2, "  CPU", ink(DIM));
        passes(scene, lane, true, axis, &mut paint.part(LABELS, y, width, tall));
        y += tall;
    }
    for (y, place) in (y..).step_by(tall.into()).zip(places::used(&scene.header)) {
        let disk = *place == Place::Disk;
        paint.text(0, y + tall / 2, if disk { "  disk" } else { "  copies" }, ink(DIM));
        transfers(scene, streams, disk, axis, &mut paint.part(LABELS, y, width, tall));
    }
}

/// Draws the passes on the CPU or, if not `on_cpu`, on the compute stream. Returns which columns
/// are busy.
fn passes(scene: &Scene, lane: &RankWindow, on_cpu: bool, axis: Axis, paint: &mut Paint<'_>) -> Vec<bool> {
    let mut strip = Strip::new(axis);
    let such = lane.spans.iter().enumerate().filter(|(_, span)| scene.window.is_on_cpu(span) == on_cpu);
    for (number, span) in such {
        let colour = shaded(pass_colour(span.pass), span.unit, paint.theme());
        let look = (colour, pass_glyph(span.pass));
        strip.add(span.from, span.to.unwrap_or(lane.until(axis.now)), number, look);
    }
    strip.draw(paint, &|number| {
        let span = &lane.spans[number];
        unit_labels(words::unit(&scene.header, span.unit), words::pass(span.pass))
    });
    strip.columns.iter().map(|column| column.fill.is_some_and(|fill| fill.look == Look::Block)).collect()
}

/// Returns labels, from the longest to the shortest.
fn unit_labels(unit: &str, verb: &str) -> Vec<String> {
    let mut labels = vec![format!("{verb} {unit}"), unit.to_string()];
    labels.extend(unit.strip_prefix("block ").map(String::from));
    labels
}

/// A rank's window, the last ranks of collectives, and the columns in which the rank is busy.
type Streams<'a> = (&'a RankWindow, &'a Meetings<'a>, &'a [bool]);

/// Draws the communication stream: collectives that move data, that are issued and pending, and
/// that the rank waits for because its compute stream is idle.
fn communication(scene: &Scene, (lane, meetings, busy): Streams<'_>, axis: Axis, paint: &mut Paint<'_>) {
    let (mut strip, now) = (Strip::new(axis), lane.until(axis.now));
    let theme = paint.theme();
    for (number, collective) in lane.collectives.iter().enumerate() {
        let event = &collective.event;
        let colour =
            shaded(operation_colour(event.operation), event.units.first().unwrap_or_default(), theme);
        let gap = meetings.gap(collective, now);
        for (from, to) in overlap::moving(collective, gap) {
            strip.add(from, to.min(now), number, (colour, operation_glyph(event.operation)));
        }
        if let Some(gap) = gap {
            strip.add_pending(gap.from, gap.to.min(now), number);
        }
        strip.add_pending(collective.issued, collective.started.unwrap_or(now), number);
    }
    mark_waits(&mut strip, busy, theme);
    strip.draw(paint, &|number| {
        let event = &lane.collectives[number].event;
        if event.units.is_empty() {
            return Vec::new();
        }
        unit_labels(&words::units(&scene.header, &event.units), event.operation.label())
    });
}

/// Marks the columns in which a stream is pending and the compute stream is idle.
fn mark_waits(strip: &mut Strip, busy: &[bool], theme: Theme) {
    for (column, busy) in strip.columns.iter_mut().zip(busy) {
        if let Some(fill) = column.fill.as_mut().filter(|fill| fill.look == Look::Dashes && !busy) {
            (fill.colour, fill.glyph) = (WAITING, waiting(theme));
        }
    }
}

/// Draws the stream of reads and writes or, if not `disk`, that of copies between device and main
/// memory.
fn transfers(scene: &Scene, (lane, _, busy): Streams<'_>, disk: bool, axis: Axis, paint: &mut Paint<'_>) {
    let (mut strip, now) = (Strip::new(axis), lane.until(axis.now));
    let theme = paint.theme();
    for (number, span) in lane.transfers.iter().enumerate() {
        let event = &span.event;
        if event.route.touches_disk() != disk {
            continue;
        }
        let colour = shaded(class_colour(event.class), event.unit, theme);
        let (from, to) = span.moving().unwrap_or((now, now));
        strip.add(from, to, number, (colour, places::arrow(event.route)));
        strip.add_pending(span.issued, from, number);
    }
    mark_waits(&mut strip, busy, theme);
    strip.draw(paint, &|number| {
        let event = &lane.transfers[number].event;
        let arrow = places::arrow(event.route);
        let unit = places::unit(&scene.header, event);
        let mut labels =
            vec![format!("{arrow} {} {unit}", class_name(event.class)), format!("{arrow} {unit}")];
        labels.extend(unit.strip_prefix("block ").map(|number| format!("{arrow}{number}")));
        labels.push(arrow.into());
        labels
    });
}

fn waiting(theme: Theme) -> &'static str {
    if theme.colours() { "╍" } else { "w" }
}
