//! Tables of one rank's classes: live bytes, peaks and predictions, on the device and elsewhere.

use super::super::paint::{Paint, fitted};
use crate::player::Scene;
use crate::theme::{ALARM, DIM, GOOD, bold, class_colour, class_glyph, class_name, ink};
use crate::{places, words};
use events::{Class, Place};
use ratatui::style::{Color, Style};

pub(super) fn predicted_total(scene: &Scene, rank: usize, place: Place) -> Option<u64> {
    let header = &scene.header;
    let found = match place {
        Place::Device => header.predicted_total.get(rank).copied(),
        _ => header.offload.predicted(rank, place).map(|predicted| predicted.total),
    };
    found.filter(|&bytes| bytes > 0)
}

pub(super) fn used_classes(scene: &Scene, rank: usize) -> impl Iterator<Item = Class> + '_ {
    Class::ALL.iter().copied().filter(move |&class| scene.now.ranks[rank].peak_of(class) > 0)
}

/// Returns where the columns of figures end in a table of `width` columns.
fn ends(width: u16) -> [u16; 3] {
    [32, 42, 54].map(|end| if width < 54 { end - 9 } else { end })
}

/// Draws a row per place beside the device, below the table of classes.
pub(super) fn totals_elsewhere(scene: &Scene, rank: usize, paint: &mut Paint<'_>) {
    let (now, ends) = (&scene.now.ranks[rank], ends(paint.width()));
    for (y, &place) in (0u16..).zip(places::used(&scene.header)) {
        paint.text(2, y, places::name(place), bold(Color::Reset));
        let bytes = [now.live_in(place), now.peak_in(place)];
        figures(paint, y, ends, words::bytes, bytes, predicted_total(scene, rank, place), Style::new());
    }
}

/// Draws each class with its live bytes, peak and prediction. Returns the rows used.
pub(super) fn classes(scene: &Scene, rank: usize, paint: &mut Paint<'_>) -> u16 {
    let now = &scene.now.ranks[rank];
    let ends = ends(paint.width());
    paint.text(0, 0, "class", ink(DIM));
    for (end, label) in ends.iter().zip(["now", "peak", "predicted"]) {
        paint.right(*end, 0, label, ink(DIM));
    }
    let predicted_of = |class: Class| {
        let found = scene.header.predicted_memory.iter().find(|p| p.rank as usize == rank && p.of == class);
        found.map(|predicted| predicted.bytes)
    };
    let mut y = 1;
    for class in used_classes(scene, rank) {
        paint.text(0, y, class_glyph(class), ink(class_colour(class)));
        let name = if ends[0] < 30 { class_name(class) } else { class.label() };
        paint.text(2, y, name, ink(Color::Reset));
        let bytes = [now.live_of(class), now.peak_of(class)];
        figures(paint, y, ends, words::bytes, bytes, predicted_of(class), Style::new());
        y += 1;
    }
    paint.text(2, y, "total", bold(Color::Reset));
    let predicted = predicted_total(scene, rank, Place::Device);
    let total = [now.live_total(), now.total_peak];
    figures(paint, y, ends, words::bytes, total, predicted, bold(Color::Reset));
    y + 1
        + scene.header.capacity.map_or(0, |capacity| {
            paint.text(2, y + 1, format!("of {}", words::bytes(capacity)), ink(DIM));
            let parts = [Some(now.live_total()), Some(now.total_peak), predicted];
            for (end, part) in ends.into_iter().zip(parts) {
                let share = part.map_or(String::new(), |part| words::percent(part as f64, capacity as f64));
                paint.right(end, y + 1, share, ink(DIM));
            }
            1
        })
}

/// Returns the classes that a rank has held in a place beside its device.
fn used_in(scene: &Scene, rank: usize, place: Place) -> impl Iterator<Item = Class> + '_ {
    let peaks = &scene.now.ranks[rank].peak[place.index()];
    Class::ALL.iter().copied().filter(move |class| peaks[class.index()] > 0)
}

pub(super) fn place_rows(scene: &Scene, rank: usize, place: Place) -> u16 {
    let classes = used_in(scene, rank, place).count() as u16;
    1 + classes + u16::from(classes > 1)
}

/// Draws the classes that a rank holds in a place beside its device. Columns end at `ends`. Returns
/// the rows used.
pub(super) fn elsewhere_table(
    scene: &Scene,
    (rank, place): (usize, Place),
    ends: [u16; 3],
    format: fn(u64) -> String,
    paint: &mut Paint<'_>,
) -> u16 {
    let now = &scene.now.ranks[rank];
    let predicted = scene.header.offload.predicted(rank, place);
    paint.text(0, 0, places::name(place), bold(Color::Reset));
    let mut y = 1;
    for class in used_in(scene, rank, place) {
        let index = class.index();
        paint.text(0, y, class_glyph(class), ink(class_colour(class)));
        let room = ends[0].saturating_sub(7);
        paint.text(2, y, fitted(class_name(class), room), ink(Color::Reset));
        let planned = predicted.and_then(|predicted| predicted.peaks.get(index).copied());
        let bytes = [now.live[place.index()][index], now.peak[place.index()][index]];
        figures(paint, y, ends, format, bytes, planned, Style::new());
        y += 1;
    }
    if y > 2 {
        paint.text(2, y, "total", bold(Color::Reset));
        let planned = predicted_total(scene, rank, place);
        figures(
            paint,
            y,
            ends,
            format,
            [now.live_in(place), now.peak_in(place)],
            planned,
            bold(Color::Reset),
        );
        y += 1;
    }
    y
}

fn figures(
    p: &mut Paint<'_>,
    y: u16,
    ends: [u16; 3],
    format: fn(u64) -> String,
    [live, peak]: [u64; 2],
    predicted: Option<u64>,
    style: Style,
) {
    p.right(ends[0], y, if live == 0 { "–".into() } else { format(live) }, style);
    p.right(ends[1], y, format(peak), style);
    let Some(predicted) = predicted else { return };
    p.right(ends[2], y, format(predicted), ink(DIM));
    let (symbol, colour) = match peak.cmp(&predicted) {
        std::cmp::Ordering::Equal => ("✓", GOOD),
        std::cmp::Ordering::Less => ("<", DIM),
        std::cmp::Ordering::Greater => ("✗", ALARM),
    };
    p.text(ends[2] + 1, y, symbol, ink(colour));
}
