//! One rank's memory over the last steps, such as ZeRO-3's saw-tooth of gathered units.

mod tables;

use super::area::{self, Area, Column, SCALE, Written};
use super::axis::Axis;
use super::pages::RankPage;
use super::paint::Paint;
use crate::app::App;
use crate::fit::columns;
use crate::player::Scene;
use crate::theme::{self, ACCENT, ALARM, DIM, FAINT, GOOD, INK, bold, ink};
use crate::{places, words};
use events::{Class, Pass, Place};
use ratatui::style::{Color, Style};
use tables::{Figures, predicted_total};

pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let rank = app.rank.min(app.player().scene().now.ranks.len().saturating_sub(1));
    if paint.width() >= 116 { wide(app, rank, paint) } else { narrow(app, rank, paint) }
}

/// Draws the charts, and at their right the tables of all places and the other ranks.
fn wide(app: &App, rank: usize, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let (width, height) = (paint.width(), paint.height());
    let (table, chart_width) = (48, width - 51);
    charts(app, rank, &mut paint.part(0, 0, chart_width, height));
    let mut side = paint.part(chart_width + 3, 0, table, height);
    let figures = Figures::new(table);
    let places = places::used(&scene.header).iter();
    let used = places.fold(tables::on_device(scene, rank, &mut side), |y, &place| {
        let mut part = side.part(0, y + 1, table, height);
        y + 1 + tables::classes_in(scene, (rank, place), figures, &mut part)
    });
    others(app, &mut side.part(0, used + 2, table, height));
}

/// Draws the charts, and below them the tables: that of other places next to the device's, or only
/// its totals if there is no room.
fn narrow(app: &App, rank: usize, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let (width, height) = (paint.width(), paint.height());
    let places = places::used(&scene.header);
    let used = tables::rows(scene, rank, Place::Device);
    let elsewhere: u16 = places.iter().map(|&place| tables::rows(scene, rank, place)).sum();
    let totals = if elsewhere > 0 && width < NARROW + ELSEWHERE { places.len() as u16 } else { 0 };
    let used = if totals > 0 { used + totals } else { used.max(elsewhere) };
    // If the chart would leave the table no room for a class, only the heading is above it.
    let above = if height < CHART + 3 { 1 } else { CHART };
    let used = used.min(height.saturating_sub(above));
    let y = height.saturating_sub(used);
    charts(app, rank, &mut paint.part(0, 0, width, y));
    if totals > 0 {
        let mut table = paint.part(0, y, width, used);
        let used = tables::on_device(scene, rank, &mut table);
        tables::totals_elsewhere(scene, rank, &mut table.part(0, used, width, totals));
    } else {
        let room = if elsewhere > 0 { NARROW } else { width };
        tables::on_device(scene, rank, &mut paint.part(0, y, room, used));
        let mut right = paint.part(NARROW + 1, y, width, used);
        let figures = Figures { ends: [18, 23, 28], format: words::short_bytes };
        places.iter().fold(0, |y, &place| {
            let mut part = right.part(0, y, u16::MAX, used.saturating_sub(y));
            y + tables::classes_in(scene, (rank, place), figures, &mut part)
        });
    }
}

/// Minimum number of rows of a chart.
const CHART: u16 = 6;
/// The width of the table of classes if the table of other places is next to it.
const NARROW: u16 = 47;
/// The width of the table of other places, with the gap before it.
const ELSEWHERE: u16 = 31;

/// Rows of the chart of sharded states, with the blank row before it, and the fewest rows of the
/// chart above it.
const STATES: u16 = 12;
const LEAST: u16 = 14;

/// Draws all classes over the last two steps and, if there is room, the classes that sharding
/// changes over the last step.
fn charts(app: &App, rank: usize, paint: &mut Paint<'_>) {
    let (width, height) = (paint.width(), paint.height());
    let lower = if height >= STATES + LEAST { STATES.max(height * 2 / 5) } else { 0 };
    everything(app, rank, Place::Device, &mut paint.part(0, 0, width, height - lower));
    if lower > 0 {
        let mut part = paint.part(0, height - lower + 1, width, lower - 1);
        match places::used(&app.player().scene().header) {
            [] => states(app, rank, &mut part),
            _ => everything(app, rank, Place::Host, &mut part),
        }
    }
}

/// Draws a rank's memory in `place`, the device or main memory.
fn everything(app: &App, rank: usize, place: Place, paint: &mut Paint<'_>) {
    let (player, scene) = (app.player(), app.player().scene());
    let width = paint.width().saturating_sub(SCALE);
    let on_device = place == Place::Device;
    let title = if on_device { "Memory" } else { "Main memory" };
    let title = format!("{title} of rank {rank}");
    if width < 8 || paint.height() < CHART {
        paint.heading(0, 0, &title);
        return;
    }
    paint.noted_heading(&title, "the last two steps, by class");
    let axis = Axis::last_steps(player, 2, width);
    let predicted = predicted_total(scene, rank, place);
    let peak = scene.now.ranks[rank].peak_in(place);
    let top = peak.max(predicted.unwrap_or(0)).max(1);
    let columns = Column::memory(&scene.window.lanes[rank].memory[place.index()], axis);
    let area = Area { columns, top: top + top / 12, look: area::class };
    passes(scene, rank, axis, paint);
    let mut inside = area.chart(axis, 2, paint);
    let mut written = Vec::new();
    let label = predicted != Some(peak) && !scene.header.is_predicted();
    peak_mark(&area, peak, label, &mut written, &mut inside);
    if let Some(predicted) = predicted {
        let (long, short) = prediction(peak, predicted, scene.header.is_predicted());
        let style = if peak == predicted { ink(GOOD) } else { ink(Color::Reset) };
        area.rule(predicted, (&[&long, &short], style), &mut written, &mut inside);
    }
    if let Some(capacity) = scene.header.capacity.filter(|&capacity| on_device && capacity <= area.top) {
        area.rule(capacity, (&["capacity"], ink(ALARM)), &mut written, &mut inside);
    }
}

/// Returns a long and a short comparison of the predicted with the measured peak. In a predicted
/// run nothing is measured.
fn prediction(peak: u64, predicted: u64, is_predicted: bool) -> (String, String) {
    let bytes = words::bytes(predicted);
    if peak == predicted && !is_predicted {
        (format!("predicted peak {bytes} = measured ✓"), format!("{bytes}, as predicted ✓"))
    } else {
        (format!("predicted peak {bytes}"), bytes)
    }
}

/// Draws the model states, gathered parameters and buckets on a scale of their own, without
/// activations and workspace.
fn states(app: &App, rank: usize, paint: &mut Paint<'_>) {
    const CLASSES: [Class; 5] = [
        Class::Parameters,
        Class::Gradients,
        Class::Optimizer,
        Class::GatheredParameters,
        Class::CommunicationBuckets,
    ];
    let (player, scene) = (app.player(), app.player().scene());
    paint.noted_heading("What sharding changes", "the last step, without activations");
    let axis = Axis::last_steps(player, 1, paint.width().saturating_sub(SCALE));
    let columns = Column::longest_state(scene.window.lanes[rank].on_device(), axis, &CLASSES);
    let top = columns.iter().map(Column::total).max().unwrap_or(0).max(1);
    let area = Area { columns, top: top + top / 12, look: area::class };
    passes(scene, rank, axis, paint);
    area.chart(axis, 2, paint);
}

/// Marks where the area touches the measured peak, with a name if `label`. Adds the text to
/// `written`.
fn peak_mark(area: &Area, peak: u64, label: bool, written: &mut Vec<Written>, paint: &mut Paint<'_>) {
    let Some(x) = area.columns.iter().position(|column| column.total() == peak && peak > 0) else { return };
    let x = x as u16;
    let y = area.row(peak, paint.height()).saturating_sub(1);
    paint.put(x, y, "▼", bold(GOOD));
    written.push((y, x..x + 1));
    let text = format!("measured peak {}", words::bytes(peak));
    let after = x + 2 + columns(&text) <= paint.width();
    let start = if after { x + 2 } else { x.saturating_sub(1 + columns(&text)) };
    if label {
        written.push((y, start..paint.text(start, y, text, bold(GOOD))));
    }
}

/// Draws the pass of every column of a chart, and its unit below, above the chart's axis.
fn passes(scene: &Scene, rank: usize, axis: Axis, paint: &mut Paint<'_>) {
    let paint = &mut paint.part(SCALE, paint.height() - 3, axis.width, 2);
    let lane = &scene.window.lanes[rank];
    let (spans, now) = (&lane.spans, lane.until(scene.now.at));
    let mut runs: Vec<(Pass, u16, u16)> = Vec::new();
    for (number, span) in spans.iter().enumerate() {
        let (from, to) = (axis.column(span.from), axis.column(span.to.unwrap_or(now)));
        if to <= 0.0 || from >= f64::from(axis.width) {
            continue;
        }
        let from = from.max(0.0) as u16;
        let to = (to.ceil() as u16).min(axis.width).max(from);
        match runs.last_mut() {
            Some(run) if run.0 == span.pass && run.2 + 3 >= from => run.2 = run.2.max(to),
            last => {
                // Two passes can share a column, which then shows the later one.
                last.into_iter().for_each(|run| run.2 = run.2.min(from).max(run.1));
                runs.push((span.pass, from, to));
            }
        }
        let shade = if number.is_multiple_of(2) { DIM } else { FAINT };
        unit(words::unit(&scene.header, span.unit), (from, to), shade, paint);
    }
    for (pass, from, to) in runs {
        let label = words::pass(pass);
        let (fill, label, style) = if paint.theme().colours() {
            (" ", label.to_string(), Style::new().bg(theme::pass_colour(pass)).fg(INK))
        } else {
            // Among letters a name needs a space on both sides.
            (theme::pass_glyph(pass), format!(" {label} "), Style::new())
        };
        paint.run(from, 0, to - from, fill, style);
        if columns(&label) <= to - from {
            paint.centred(from, to - from, 0, &label, style);
        }
    }
}

/// Draws a unit's name, or as much of it as fits.
fn unit(name: &str, (from, to): (u16, u16), shade: Color, paint: &mut Paint<'_>) {
    let short = name.strip_prefix("block ").unwrap_or(name);
    // Neighbours may share a column.
    let label = if columns(name) + 1 < to - from { name } else { short };
    // Labels of several letters leave a gap to their neighbours.
    if columns(label) + u16::from(columns(label) > 1) <= to - from {
        paint.centred(from, to - from, 1, label, ink(shade));
    } else {
        paint.run(from, 1, to - from, "·", ink(shade));
    }
}

/// Draws small charts of all ranks, with the selected one marked.
fn others(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let ranks = scene.now.ranks.len();
    let each = (paint.height().saturating_sub(1) / ranks.max(1) as u16).clamp(4, 9);
    let fitting = usize::from(paint.height().saturating_sub(1) / each);
    if fitting == 0 {
        return;
    }
    let page = RankPage::new(app, fitting);
    let x = paint.heading(0, 0, "All ranks");
    paint.text(x + 2, 0, page.label(), ink(ACCENT));
    let top = scene.now.most(|rank| rank.total_peak).max(1);
    let width = paint.width().saturating_sub(9);
    for (place, rank) in (0u16..).zip(page.ranks) {
        let y = 1 + place * each;
        let style = if rank == app.rank { bold(ACCENT) } else { ink(DIM) };
        paint.text(0, y + each - 2, format!("rank {rank}"), style);
        Area::draw_memory(app.player(), rank, top, &mut paint.part(9, y, width, each - 1));
    }
}
