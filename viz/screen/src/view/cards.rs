//! Ranks as cards, for up to eight ranks.

use super::activity::{Activity, activity};
use super::bar::{self, Bar};
use super::paint::Paint;
use crate::app::App;
use crate::fit::{columns, fitted, fitting};
use crate::player::Scene;
use crate::theme::{self, ACCENT, DIM, FAINT, bold, class_colour, class_glyph, class_name, ink};
use crate::{places, words};
use events::{Class, Place, RankSnapshot, Route};
use ratatui::style::Color;

/// Maximum number of ranks that are shown as cards. More ranks are shown as a table.
pub(super) const MOST: usize = 8;
/// The narrowest readable card.
const NARROWEST: u16 = 19;
/// Rows of the tallest card without blank rows, and the rows below two rows of cards.
const TALL: u16 = FRAME + Class::ALL.len() as u16;
const REST: u16 = 7;
/// Rows of a card in addition to those of its classes: edges, activity, bar.
const FRAME: u16 = 4;
/// Additional rows where there is room: a bar of two rows, and a blank row below it.
const ROOMY: u16 = 2;

/// Returns the number of cards in a row: all, or half of them if all would be too narrow; `None` if
/// neither fits.
pub(super) fn per_row(ranks: usize, (width, height): (u16, u16)) -> Option<usize> {
    let wide = |cards: usize| width / cards.max(1) as u16 >= NARROWEST;
    let half = ranks.div_ceil(2);
    if ranks > MOST || height < LOWEST {
        None
    } else if wide(ranks) {
        Some(ranks)
    } else {
        Some(half).filter(|&half| wide(half) && height >= 2 * TALL + REST)
    }
}

/// Minimum number of rows of a screen that has room for cards and for the wires between them.
const LOWEST: u16 = 16;

/// Returns the columns of the cards' middles on a screen of `width` columns.
pub(super) fn centres(ranks: usize, width: u16) -> Vec<u16> {
    (0..ranks).map(|rank| place(rank, ranks, width)).map(|(x, width)| x + width / 2).collect()
}

/// Returns the first column and the width of a rank's card. Where there is little room, neighbours
/// share an edge.
pub(super) fn place(rank: usize, ranks: usize, width: u16) -> (u16, u16) {
    let (ranks, rank) = (ranks.max(1) as u16, rank as u16);
    if share_edges(ranks, width) {
        let each = width.saturating_sub(1) / ranks;
        return ((width.saturating_sub(1) - each * ranks) / 2 + rank * each, each + 1);
    }
    let each = (width + 1) / ranks;
    let margin = (width + 1 - each * ranks) / 2;
    (margin + rank * each, each - 1)
}

/// Returns the rank whose card is at `x`, `y`, where `ranks` cards, `per_row` in a row, fill as
/// many columns as `size` has and each as many rows.
pub(super) fn at(ranks: usize, per_row: usize, size: (u16, u16), (x, y): (u16, u16)) -> Option<usize> {
    let covers = |&rank: &usize| {
        let (start, length) = place(rank % per_row, per_row, size.0);
        (start..start + length).contains(&x) && (rank / per_row) as u16 == y / size.1.max(1)
    };
    (0..ranks).find(covers)
}

fn share_edges(cards: u16, width: u16) -> bool {
    width / cards < 24
}

/// Returns the rows of a card, with the additional ones if `room` suffices.
pub(super) fn height(scene: &Scene, room: u16) -> u16 {
    let least = FRAME + (0..scene.now.ranks.len()).map(|rank| rows(scene, rank)).max().unwrap_or(0);
    if least + ROOMY <= room { least + ROOMY } else { least }
}

/// Returns the number of rows of a card's classes and places.
fn rows(scene: &Scene, number: usize) -> u16 {
    (classes_used(scene, number).count() + places::used(&scene.header).len()) as u16
}

/// Returns the bar with the scale that all ranks share, so that their bars can be compared.
pub(super) fn bar_scale(scene: &Scene) -> Bar {
    let ghost = highest(&scene.header.replicated_total);
    let places = places::used(&scene.header).iter().copied().chain([Place::Device]);
    let peaks = places.map(|place| scene.now.most(|rank| rank.peak_in(place)));
    bar(scene, ghost, ghost.max(peaks.max().unwrap_or(0)))
}

/// Returns the bar that all ranks share where bars have few columns. It ends at the highest peak on
/// a device, measured or predicted: at the scale of DDP, a sharded rank would have too few columns.
pub(super) fn short_bar(scene: &Scene) -> Bar {
    let peak = scene.now.most(|rank| rank.total_peak);
    bar(scene, 0, highest(&scene.header.predicted_total).max(peak))
}

fn highest(bytes: &[u64]) -> u64 {
    bytes.iter().copied().max().unwrap_or(0)
}

/// Returns a bar that has room for `needed` bytes.
fn bar(scene: &Scene, ghost: u64, needed: u64) -> Bar {
    let needed = needed.max(1);
    // A capacity far above all peaks would make the bars too short to read, so it is written as a
    // number only.
    let capacity = scene.header.capacity.filter(|&capacity| capacity <= needed * 3 / 2);
    let scale = capacity.map_or(needed, |capacity| needed.max(capacity + capacity / 50));
    Bar { scale, ghost, capacity }
}

/// Draws a card per rank, `per_row` in a row, each `height` rows tall.
pub(super) fn draw(app: &App, per_row: usize, height: u16, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let (bar, width) = (bar_scale(scene), paint.width());
    let corner =
        |number: usize| (place(number % per_row, per_row, width), (number / per_row) as u16 * height);
    let ranks = 0..scene.now.ranks.len();
    // The selected card is drawn last, so that shared edges have its colour.
    let selected = |number: &usize| *number == app.rank;
    for number in ranks.clone().filter(|number| !selected(number)).chain(ranks.filter(selected)) {
        let ((x, width), y) = corner(number);
        card(app, number, &bar, &mut paint.part(x, y, width, height));
    }
    let shared = |number: &usize| !number.is_multiple_of(per_row) && share_edges(per_row as u16, width);
    for number in (0..scene.now.ranks.len()).filter(shared) {
        let ((x, _), y) = corner(number);
        let chosen = [number, number - 1].contains(&app.rank);
        let style = ink(if chosen { ACCENT } else { FAINT });
        paint.put(x, y, "┬", style);
        paint.put(x, y + height - 1, "┴", style);
    }
}

fn card(app: &App, number: usize, bar: &Bar, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let rank = &scene.now.ranks[number];
    let chosen = app.rank == number;
    let border = if chosen { ink(ACCENT) } else { ink(FAINT) };
    let name = format!(" rank {number} ");
    let (width, height) = (paint.width(), paint.height());
    let total = format!(" {} ", summary(scene, number, rank, width));
    let title = if chosen { theme::selected(paint.theme()) } else { bold(Color::Reset) };
    let mut inside = paint.card(&[(&name, title)], border);
    let Activity { text, style, .. } = activity(scene, number);
    let roomy = inside.width() >= 22;
    let (x, inner) = (u16::from(roomy), inside.width().saturating_sub(2 * u16::from(roomy)));
    inside.text(x, 0, fitted(&text, inner), style);
    let parts = rank.live[Place::Device.index()];
    bar.draw(&mut inside, (x, 1, inner), &parts);
    let mut y = 2;
    if height >= FRAME + ROOMY + rows(scene, number) {
        bar.draw(&mut inside, (x, 2, inner), &parts);
        y += ROOMY;
    }
    let below = places::used(&scene.header).len() as u16;
    let end = inside.height().saturating_sub(below).max(y);
    classes(scene, number, bar, &mut inside.part(x, y, inner, end - y));
    for (y, &place) in (end..).zip(places::used(&scene.header)) {
        beside(rank, place, bar, &mut inside.part(x, y, inner, 1));
    }
    let length = columns(&total);
    paint.text(width.saturating_sub(length + 1), height.saturating_sub(1), total, bold(Color::Reset));
    let capacity = scene.header.capacity.map_or(Vec::new(), capacities);
    let text = fitting(&capacity, width.saturating_sub(columns(&name) + 3));
    paint.right(width.saturating_sub(1), 0, text, ink(DIM));
}

/// Returns labels of a capacity for a card's upper edge, from the longest to the shortest.
fn capacities(bytes: u64) -> Vec<String> {
    let (long, short) = (words::bytes(bytes), words::round_bytes(bytes));
    vec![format!(" of {long} "), format!(" of {short} "), format!(" {short} ")]
}

/// Returns the label of a card's lower edge: the live bytes, and the peak so far with its share of
/// the peak that DDP would have.
fn summary(scene: &Scene, number: usize, rank: &RankSnapshot, width: u16) -> String {
    let live = rank.live_total();
    let ghost = scene.header.replicated_total.get(number).copied().unwrap_or(0);
    let share = words::percent(rank.total_peak as f64, ghost as f64);
    let (live, peak) = (words::bytes(live), words::bytes(rank.total_peak));
    let forms = [
        format!("{live} live · peak {peak}, {share} of DDP's"),
        format!("{live} ≤ {share} of DDP"),
        format!("{live} ≤ {share}"),
        live,
    ];
    fitting(&forms, width.saturating_sub(4)).into()
}

/// Returns the classes that a rank has used or is predicted to use.
fn classes_used(scene: &Scene, number: usize) -> impl Iterator<Item = Class> + '_ {
    let planned = move |class: Class| scene.header.predicted_peak(number, Place::Device, class) > Some(0);
    let rank = &scene.now.ranks[number];
    Class::ALL.into_iter().filter(move |&class| rank.peak_of(class) > 0 || planned(class))
}

fn classes(scene: &Scene, number: usize, bar: &Bar, paint: &mut Paint<'_>) {
    let (width, height) = (paint.width(), usize::from(paint.height()));
    let rank = &scene.now.ranks[number];
    let bars = width >= 34;
    for (y, class) in (0u16..).zip(classes_used(scene, number).take(height)) {
        let live = rank.live_of(class);
        let style = if live > 0 { ink(class_colour(class)) } else { ink(FAINT) };
        paint.text(0, y, class_glyph(class), style);
        let label = if live > 0 { ink(Color::Reset) } else { ink(FAINT) };
        let value = if live == 0 { "–".into() } else { words::short_bytes(live) };
        let start = width.saturating_sub(columns(&value));
        let room = if bars { 12 } else { start.saturating_sub(2) };
        paint.part(2, y, room, 1).text(0, 0, class_name(class), label);
        if bars {
            let scale = bar.scale as f64;
            bar::plain(paint, (15, y, width.saturating_sub(22)), live as f64, scale, class_colour(class));
        }
        paint.text(start, y, value, label);
    }
}

/// Draws the bytes that a rank holds in main memory or on disk: the classes' glyphs, an arrow for
/// each direction in which bytes are in flight, and if there is room a bar.
fn beside(rank: &RankSnapshot, place: Place, bar: &Bar, paint: &mut Paint<'_>) {
    let (width, parts) = (paint.width(), &rank.live[place.index()]);
    let live = rank.live_in(place);
    let value = if live == 0 { "–".into() } else { words::short_bytes(live) };
    let start = width.saturating_sub(columns(&value));
    paint.text(start, 0, value, bold(Color::Reset));
    paint.text(0, 0, place.label(), bold(Color::Reset));
    let bars = width >= 34;
    let arrows = if bars { 12 } else { start.saturating_sub(3) };
    let mut glyphs = paint.part(5, 0, arrows.saturating_sub(6), 1);
    let held = Class::ALL.iter().filter(|class| parts[class.index()] > 0);
    held.fold(0, |x, &class| glyphs.text(x, 0, class_glyph(class), ink(class_colour(class))));
    for (x, leaves) in [(arrows, true), (arrows + 1, false)] {
        let here = |route: Route| route.touches_disk() == (place == Place::Disk) && route.leaves() == leaves;
        if let Some(flight) = places::flight(rank, |event| here(event.route)) {
            paint.put(x, 0, places::arrow(flight.event.route), bold(class_colour(flight.event.class)));
        }
    }
    if bars {
        Bar { ghost: 0, capacity: None, ..*bar }.draw(paint, (15, 0, width.saturating_sub(22)), parts);
    }
}
