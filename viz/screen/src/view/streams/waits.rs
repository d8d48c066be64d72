//! Tables of overlapped and exposed communication, and of the ranks' waiting times.

use super::super::axis::Axis;
use super::super::paint::Paint;
use super::LABELS;
use crate::app::App;
use crate::overlap::{self, Overlap};
use crate::player::Scene;
use crate::ranking::{self, RankOrder};
use crate::theme::{ACCENT, DIM, FAINT, WAITING, bold, ink};
use crate::{places, words};
use events::Place;
use ratatui::style::Color;

/// Draws how each rank spends its time, and how long it waited for each other rank.
pub(super) fn overlaps(app: &App, axis: Axis, shown: &[usize], paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let (from, to) = (axis.from, axis.now.min(axis.to));
    let measured = overlap::measure(&scene.window, (from, to));
    for (y, &rank) in (1u16..paint.height()).zip(shown) {
        let style = if rank == app.rank { bold(ACCENT) } else { ink(Color::Reset) };
        paint.text(0, y, format!("rank {rank}"), style);
    }
    match places::used(&scene.header) {
        [] => times(app, &measured, shown, paint),
        _ => shares(scene, &measured, to - from, shown, paint),
    }
    below(&measured, shown, paint);
}

/// Draws overlapped and exposed communication per rank, and the waiting times.
fn times(app: &App, measured: &[Overlap], shown: &[usize], paint: &mut Paint<'_>) {
    let wide = paint.width() >= 106;
    let ends = match paint.width() {
        106.. => [21, 35, 52, 69, 82],
        76.. => [15, 27, 42, 57, 67],
        // If not all columns fit, these say how much time a rank loses, and to which other rank.
        // The others are placed outside the screen.
        _ => [15, u16::MAX, u16::MAX, 31, 41],
    };
    paint.labels(ends, 0, &["compute", "communicate", "overlapped", "exposed", "waited"]);
    let after = ends[ends.len() - 1] + if wide { 3 } else { 2 };
    let delays = (app.order == RankOrder::Slowest).then(|| ranking::delays(app.player().scene()));
    let last = match (&delays, wide) {
        (Some(_), true) => "others waited for it",
        (Some(_), false) => "held up",
        (None, true) => "mostly for",
        (None, false) => "most for",
    };
    paint.text(after, 0, last, ink(DIM));
    for (y, &rank) in (1u16..paint.height()).zip(shown) {
        row(&measured[rank], y, ends, paint);
        let last = match &delays {
            Some(delays) => words::time(delays[rank]),
            None => waited_for(&measured[rank], wide),
        };
        paint.text(after, y, last, ink(WAITING));
    }
}

/// A part of a rank's time: a cause of waiting, or the computation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Collectives,
    OtherRanks,
    Copies,
    Disk,
    Cpu,
    Computes,
}

events::labels! {
    Share {
        Collectives => "collectives",
        OtherRanks => "other ranks",
        Copies => "copies",
        Disk => "disk",
        Cpu => "the CPU",
        Computes => "computes",
    }
}

impl Share {
    /// Returns the part's nanoseconds.
    const fn of(self, measured: &Overlap) -> u64 {
        match self {
            Share::Collectives => measured.exposed,
            Share::OtherRanks => measured.waiting,
            Share::Copies => measured.copies,
            Share::Disk => measured.disk,
            Share::Cpu => measured.cpu,
            Share::Computes => measured.compute,
        }
    }
}

/// Draws how long each rank waits, by cause, and how long it computes, as shares of `whole`.
fn shares(scene: &Scene, measured: &[Overlap], whole: u64, shown: &[usize], paint: &mut Paint<'_>) {
    let mut columns = Share::ALL.to_vec();
    columns.retain(|&share| match share {
        Share::Disk => places::used(&scene.header).contains(&Place::Disk),
        Share::Cpu => places::updates_on_cpu(&scene.header),
        _ => true,
    });
    let (start, each) = share_columns(&mut columns, paint.width());
    let ends = (1u16..).map(|column| start + column * each);
    paint.text(0, 0, "waits for", ink(DIM));
    paint.labels(ends.clone(), 0, &columns.iter().map(|share| share.label()).collect::<Vec<_>>());
    for (y, &rank) in (1u16..paint.height()).zip(shown) {
        let waits = Share::ALL.into_iter().filter(|&share| share != Share::Computes);
        let most = waits.map(|share| share.of(&measured[rank])).max().unwrap_or(0).max(1);
        for (end, &column) in ends.clone().zip(&columns) {
            let time = column.of(&measured[rank]);
            let share = format!(" {:>5}", words::percent(time as f64, whole as f64));
            let text = words::time(time) + if each >= 14 { &share } else { "" };
            let worst = time == most && column != Share::Computes;
            let style = if worst { bold(WAITING) } else { ink(Color::Reset) };
            paint.right(end, y, text, style);
        }
    }
}

/// Leaves out those of `columns` that do not fit into `width`, first the computation. Returns where
/// the columns start and how wide each is.
fn share_columns(columns: &mut Vec<Share>, width: u16) -> (u16, u16) {
    const START: u16 = 8;
    let fits = |columns: &[Share], each: u16| START + each * columns.len() as u16 <= width;
    columns.truncate(columns.len() - usize::from(!fits(columns, 14)));
    if let Some(each) = [18, 14].into_iter().find(|&each| fits(columns, each)) {
        return (START, each);
    }
    let (start, each) = (START + 2, 12);
    columns.truncate(usize::from(width.saturating_sub(start) / each));
    (start, each)
}

/// Draws how long each rank waited for each other one, if there is room below a table with a row
/// per rank.
fn below(measured: &[Overlap], shown: &[usize], paint: &mut Paint<'_>) {
    let ranks = shown.len() as u16;
    let y = 2 + ranks + u16::from(paint.height() > 2 * ranks + 6);
    let mut paint = paint.part(0, y, u16::MAX, u16::MAX);
    if ranks < 2 || paint.height() < ranks + 3 || paint.width() < LABELS + 10 * ranks {
        return;
    }
    paint.noted_heading("Waits between ranks", "the row's rank waited for the column's");
    for (place, other) in (1u16..).zip(shown) {
        paint.right(LABELS + 10 * place, 1, format!("rank {other}"), ink(DIM));
    }
    let most = measured.iter().flat_map(|overlap| &overlap.waited_for).copied().max().unwrap_or(0).max(1);
    for (y, &rank) in (2u16..).zip(shown) {
        paint.text(0, y, format!("rank {rank}"), ink(DIM));
        for (place, &other) in (1u16..).zip(shown) {
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
    for (end, value) in ends.into_iter().zip(values) {
        paint.right(end, y, value, ink(Color::Reset));
    }
}

/// Returns the rank for which this rank waited longest and, if `wide`, for how long.
fn waited_for(overlap: &Overlap, wide: bool) -> String {
    let most = overlap.waited_for.iter().enumerate().max_by_key(|(_, time)| **time);
    match most.filter(|(_, time)| **time > 0) {
        Some((rank, &time)) if wide => format!("rank {rank} ({})", words::time(time)),
        Some((rank, _)) => format!("rank {rank}"),
        None => "no rank".into(),
    }
}
