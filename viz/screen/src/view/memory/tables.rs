//! Tables of one rank's classes: live bytes, peaks and predictions, on the device and elsewhere.

use super::super::paint::Paint;
use crate::fit::fitted;
use crate::player::Scene;
use crate::theme::{ALARM, DIM, GOOD, bold, class_colour, class_glyph, class_name, ink};
use crate::{places, words};
use events::{Class, Place};
use ratatui::style::{Color, Style};
use std::cmp::Ordering;

/// The columns of figures.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    /// Where the live bytes, the peaks and the predictions end.
    pub(super) ends: [u16; 3],
    pub(super) format: fn(u64) -> String,
}

impl Figures {
    /// Returns the columns of a table of `width` columns. Columns that do not fit are placed
    /// outside the screen.
    pub(super) fn new(width: u16) -> Self {
        let ends = [32, 42, 54].map(|end| if width < 54 { end - 9 } else { end });
        let ends = ends.map(|end| if end <= width { end } else { u16::MAX });
        Figures { ends, format: words::bytes }
    }

    fn draw(self, y: u16, bytes: (u64, u64, Option<u64>), style: Style, paint: &mut Paint<'_>) {
        let (Figures { ends, format }, (live, peak, predicted)) = (self, bytes);
        paint.right(ends[0], y, if live == 0 { "–".into() } else { format(live) }, style);
        paint.right(ends[1], y, format(peak), style);
        let Some(predicted) = predicted else { return };
        paint.right(ends[2], y, format(predicted), ink(DIM));
        let (symbol, colour) = match peak.cmp(&predicted) {
            Ordering::Equal => ("✓", GOOD),
            Ordering::Less => ("<", DIM),
            Ordering::Greater => ("✗", ALARM),
        };
        paint.text(ends[2].saturating_add(1), y, symbol, ink(colour));
    }
}

pub(super) fn predicted_total(scene: &Scene, rank: usize, place: Place) -> Option<u64> {
    let header = &scene.header;
    let found = match place {
        Place::Device => header.predicted_total.get(rank).copied(),
        _ => header.offload.predicted(rank, place).map(|predicted| predicted.total),
    };
    found.filter(|&bytes| bytes > 0)
}

/// Returns the classes that a rank has held in `place`: of more than `most`, those with the highest
/// peaks.
fn highest(scene: &Scene, rank: usize, place: Place, most: usize) -> Vec<Class> {
    let peaks = &scene.now.ranks[rank].peak[place.index()];
    let mut classes: Vec<Class> = used_in(scene, rank, place).collect();
    while classes.len() > most {
        let lowest = (0..classes.len()).rev().min_by_key(|&at| peaks[classes[at].index()]);
        lowest.map(|at| classes.remove(at));
    }
    classes
}

/// Returns the classes that a rank has held in `place`.
fn used_in(scene: &Scene, rank: usize, place: Place) -> impl Iterator<Item = Class> + '_ {
    let peaks = &scene.now.ranks[rank].peak[place.index()];
    Class::ALL.into_iter().filter(move |class| peaks[class.index()] > 0)
}

/// Returns the rows of [`classes_in`]; on the device, with the capacity's.
pub(super) fn rows(scene: &Scene, rank: usize, place: Place) -> u16 {
    let classes = used_in(scene, rank, place).count() as u16;
    match place {
        Place::Device => 2 + classes + u16::from(scene.header.capacity.is_some()),
        _ => 1 + classes + u16::from(classes > 1),
    }
}

/// Draws a row each for main memory and disk, below the table of the device's classes.
pub(super) fn totals_elsewhere(scene: &Scene, rank: usize, paint: &mut Paint<'_>) {
    let (now, figures) = (&scene.now.ranks[rank], Figures::new(paint.width()));
    for (y, &place) in (0u16..).zip(places::used(&scene.header)) {
        paint.text(2, y, places::name(place), bold(Color::Reset));
        let bytes = (now.live_in(place), now.peak_in(place), predicted_total(scene, rank, place));
        figures.draw(y, bytes, Style::new(), paint);
    }
}

/// Draws the device's classes, and their shares of its capacity. Returns the rows used.
pub(super) fn on_device(scene: &Scene, rank: usize, paint: &mut Paint<'_>) -> u16 {
    let (now, figures) = (&scene.now.ranks[rank], Figures::new(paint.width()));
    paint.labels(figures.ends, 0, &["now", "peak", "predicted"]);
    let y = classes_in(scene, (rank, Place::Device), figures, paint);
    let Some(capacity) = scene.header.capacity else { return y };
    paint.text(2, y, format!("of {}", words::bytes(capacity)), ink(DIM));
    let predicted = predicted_total(scene, rank, Place::Device);
    let parts = [Some(now.live_total()), Some(now.total_peak), predicted];
    let share = |part: u64| words::percent(part as f64, capacity as f64);
    let shares = parts.map(|part| part.map_or(String::new(), share));
    paint.labels(figures.ends, y, &shares);
    y + 1
}

/// Draws the classes that a rank holds in `place`, and the total if it is the device or has several
/// classes. Returns the rows used.
pub(super) fn classes_in(
    scene: &Scene,
    (rank, place): (usize, Place),
    figures: Figures,
    paint: &mut Paint<'_>,
) -> u16 {
    let (now, at) = (&scene.now.ranks[rank], place.index());
    let beside = (places::name(place), bold(Color::Reset));
    paint.pieces(0, 0, &[if place == Place::Device { ("class", ink(DIM)) } else { beside }]);
    let mut y = 1;
    // The total needs a row below.
    let most = usize::from(paint.height().saturating_sub(2).max(1));
    for class in highest(scene, rank, place, most) {
        paint.text(0, y, class_glyph(class), ink(class_colour(class)));
        let name = if figures.ends[0] < 30 { class_name(class) } else { class.label() };
        paint.text(2, y, fitted(name, figures.ends[0].saturating_sub(7)), ink(Color::Reset));
        let (live, peak) = (now.live[at][class.index()], now.peak[at][class.index()]);
        figures.draw(y, (live, peak, scene.header.predicted_peak(rank, place, class)), Style::new(), paint);
        y += 1;
    }
    if place == Place::Device || y > 2 {
        paint.text(2, y, "total", bold(Color::Reset));
        let total = (now.live_in(place), now.peak_in(place), predicted_total(scene, rank, place));
        figures.draw(y, total, bold(Color::Reset), paint);
        y += 1;
    }
    y
}
