//! Tables of overlapped and exposed communication, and of the ranks' waiting times.

use super::super::axis::Axis;
use super::super::paint::Paint;
use super::LABELS;
use crate::app::App;
use crate::overlap::{self, Overlap};
use crate::ranking::{self, RankOrder};
use crate::theme::{self, ACCENT, DIM, FAINT, WAITING, bold, ink};
use crate::{places, words};
use events::Place;
use ratatui::style::Color;

/// Draws overlapped and exposed communication per rank, and the waiting times.
pub(super) fn overlaps(app: &App, axis: Axis, shown: &[usize], paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let range = (axis.from, axis.now.min(axis.to));
    let measured = overlap::measure(&scene.window, range);
    if !places::used(&scene.header).is_empty() {
        return shares(app, &measured, range.1 - range.0, shown, paint);
    }
    let labels = ["compute", "communicate", "overlapped", "exposed", "waited"];
    let wide = paint.width() >= 106;
    // A column that ends at 0 is left out.
    let ends = match paint.width() {
        106.. => [21, 35, 52, 69, 82],
        76.. => [15, 27, 42, 57, 67],
        // Where not all columns fit, these tell what a rank loses and to which other one.
        _ => [15, 0, 0, 31, 41],
    };
    for (end, label) in ends.into_iter().zip(labels).filter(|(end, _)| *end > 0) {
        paint.right(end, 0, label, ink(DIM));
    }
    let after = ends[ends.len() - 1] + if wide { 3 } else { 2 };
    let delays = (app.order == RankOrder::Slowest).then(|| ranking::delays(scene));
    let last = match (&delays, wide) {
        (Some(_), true) => "others waited for it",
        (Some(_), false) => "held up",
        (None, true) => "mostly for",
        (None, false) => "most for",
    };
    paint.text(after, 0, last, ink(DIM));
    for (y, rank) in (1u16..paint.height()).zip(shown.iter().copied()) {
        let style = if rank == app.rank { bold(ACCENT) } else { ink(Color::Reset) };
        paint.text(0, y, format!("rank {rank}"), style);
        row(&measured[rank], y, ends, paint);
        let last = match &delays {
            Some(delays) => words::time(delays[rank]),
            None => waited_for(&measured[rank], wide),
        };
        paint.text(after, y, last, ink(theme::WAITING));
    }
    below(&measured, shown, paint);
}

/// Draws what each rank waits for and how long it computes, as shares of `whole`.
fn shares(app: &App, measured: &[Overlap], whole: u64, shown: &[usize], paint: &mut Paint<'_>) {
    let disk = places::used(&app.player().scene().header).contains(&Place::Disk);
    let mut labels = vec!["collectives", "other ranks", "copies", "disk", "computes"];
    labels.retain(|&label| disk || label != "disk");
    let (start, each) = share_columns(&mut labels, paint.width());
    paint.text(0, 0, "waits for", ink(DIM));
    let ends = (1u16..).map(|column| start + column * each);
    for (end, label) in ends.clone().zip(&labels) {
        paint.right(end, 0, label, ink(DIM));
    }
    for (y, rank) in (1u16..paint.height()).zip(shown.iter().copied()) {
        let style = if rank == app.rank { bold(ACCENT) } else { ink(Color::Reset) };
        paint.text(0, y, format!("rank {rank}"), style);
        let of = &measured[rank];
        let mut times = vec![of.exposed, of.waiting, of.copies, of.disk, of.compute];
        if !disk {
            times.remove(3);
        }
        let most = times[..times.len() - 1].iter().copied().max().unwrap_or(0).max(1);
        for ((end, &time), label) in ends.clone().zip(&times).zip(&labels) {
            let share = format!(" {:>5}", words::percent(time as f64, whole as f64));
            let text = words::time(time) + if each >= 14 { &share } else { "" };
            let style = if time == most && *label != "computes" { bold(WAITING) } else { ink(Color::Reset) };
            paint.right(end, y, text, style);
        }
    }
    below(measured, shown, paint);
}

/// Leaves out the columns of `labels` that do not fit into `width`, first what a rank does while it
/// does not wait. Returns where the columns start and how wide each is.
fn share_columns(labels: &mut Vec<&str>, width: u16) -> (u16, u16) {
    const START: u16 = 8;
    let fits = |labels: &[&str], each: u16| START + each * labels.len() as u16 <= width;
    labels.truncate(labels.len() - usize::from(!fits(labels, 14)));
    if let Some(each) = [18, 14].into_iter().find(|&each| fits(labels, each)) {
        return (START, each);
    }
    let (start, each) = (START + 2, 12);
    labels.truncate(usize::from(width.saturating_sub(start) / each));
    (start, each)
}

/// Draws how long each rank waited for each other one, if there is room below a table with a row per
/// rank.
fn below(measured: &[Overlap], shown: &[usize], paint: &mut Paint<'_>) {
    let ranks = shown.len() as u16;
    let y = 2 + ranks + u16::from(paint.height() > 2 * ranks + 6);
    let mut paint = paint.part(0, y, u16::MAX, u16::MAX);
    if ranks < 2 || paint.height() < ranks + 3 || paint.width() < LABELS + 10 * ranks {
        return;
    }
    paint.noted_heading("Waits between ranks", "the row's rank waited for the column's");
    for (place, other) in (1u16..).zip(shown.iter().copied()) {
        paint.right(LABELS + 10 * place, 1, format!("rank {other}"), ink(DIM));
    }
    let most = measured.iter().flat_map(|overlap| &overlap.waited_for).copied().max().unwrap_or(0).max(1);
    for (y, rank) in (2u16..).zip(shown.iter().copied()) {
        paint.text(0, y, format!("rank {rank}"), ink(DIM));
        for (place, other) in (1u16..).zip(shown.iter().copied()) {
            let time = measured[rank].waited_for[other];
            let text = if time == 0 { "·".into() } else { words::time(time) };
            let short = if time > 0 { Color::Reset } else { FAINT };
            let style = if time * 2 > most { bold(WAITING) } else { ink(short) };
            paint.right(LABELS + 10 * place, y, text, style);
        }
    }
}

fn row(overlap: &Overlap, y: u16, ends: [u16; 5], paint: &mut Paint<'_>) {
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
    for (end, value) in ends.into_iter().zip(values).filter(|(end, _)| *end > 0) {
        paint.right(end, y, value, ink(Color::Reset));
    }
}

/// Returns the rank that was waited for most and, if `wide`, for how long.
fn waited_for(overlap: &Overlap, wide: bool) -> String {
    let most = overlap.waited_for.iter().enumerate().max_by_key(|(_, time)| **time);
    match most.filter(|(_, time)| **time > 0) {
        Some((rank, &time)) if wide => format!("rank {rank} ({})", words::time(time)),
        Some((rank, _)) => format!("rank {rank}"),
        None => "no rank".into(),
    }
}
