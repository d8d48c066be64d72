//! Each rank's own metrics of the latest step, before anything is summed over ranks. Runs are side
//! by side, and values that differ from the first run's are marked.

use super::frame;
use super::pages::RankPage;
use super::paint::Paint;
use crate::app::App;
use crate::fit::{columns, fitted};
use crate::player::{Player, Scene};
use crate::theme::{ACCENT, ALARM, DIM, bold, ink};
use crate::words;
use events::LocalMetrics;
use ratatui::style::Color;

/// Minimum number of rows of the table: heading, labels and the selected rank.
pub(super) const LEAST: u16 = 3;
const LABEL: u16 = 8;
const CELL: u16 = 9;
/// The columns before the label of the first cell.
const BEFORE: u16 = 4;

/// A metric: its label, its format, and whether it is the same in every healthy run.
type MetricColumn = (&'static str, fn(&LocalMetrics) -> String, bool);

const CELLS: [MetricColumn; 4] = [
    ("loss", |part| format!("{:.4}", part.loss), true),
    ("norm", |part| format!("{:.4}", part.grad_norm), true),
    ("params", |part| format!("{:04x}", part.parameters >> 48), true),
    ("waited", |part| words::time((part.waited * 1e9) as u64), false),
];

/// Returns the run with the most ranks; the one shown if several have as many.
fn largest(app: &App) -> &Scene {
    let ranks = |scene: &Scene| scene.now.ranks.len();
    let larger = app.players.iter().map(Player::scene).max_by_key(|scene| ranks(scene));
    larger.filter(|scene| ranks(scene) > ranks(app.player().scene())).unwrap_or(app.player().scene())
}

/// Returns the rows that the table needs for all ranks: 0 if no run reports its ranks' own metrics.
pub(super) fn rows(app: &App) -> u16 {
    let ranks = largest(app).now.ranks.len();
    let told = app.players.iter().any(|player| (0..ranks).any(|rank| part(player, rank).is_some()));
    if told { 2 + ranks as u16 } else { 0 }
}

fn part(player: &Player, rank: usize) -> Option<&LocalMetrics> {
    player.scene().now.ranks.get(rank)?.contribution.as_ref()
}

/// Draws a row per rank: of the page that holds the selected one if not all fit.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let Some(first) = app.players.first() else { return };
    let page = RankPage::of(app, largest(app), paint.height().saturating_sub(LEAST - 1).into());
    let (all, label) = (paint.width(), page.label());
    paint.right(all, 0, &label, ink(ACCENT));
    let step = part(first, app.rank).map_or(String::new(), |part| format!("step {}, ", part.step));
    let star = if app.players.len() > 1 { "; * differs from the first run" } else { "" };
    let heading = all.saturating_sub(if label.is_empty() { 0 } else { columns(&label) + 2 });
    let note = format!("{step}before the sum{star}");
    paint.part(0, 0, heading, 1).noted_heading("Each rank's own part", note);
    let each = paint.width().saturating_sub(LABEL) / app.players.len() as u16;
    let cells = &CELLS[..usize::from(each / CELL).min(CELLS.len())];
    let width = cells.len() as u16 * CELL;
    // The name precedes the labels, and the cells move right to make room for it.
    let names: Vec<String> = app.players.iter().map(|player| app.short_name(player)).collect();
    let longest = names.iter().map(|name| columns(name)).max().filter(|_| names.len() > 1);
    let needed = longest.map_or(0, |longest| (longest + 2).saturating_sub(BEFORE));
    let shift = needed.min(each.saturating_sub(width + 1));
    for ((place, player), name) in (0u16..).zip(&app.players).zip(&names) {
        let mut column = paint.part(LABEL + place * each, 1, shift + width, u16::MAX);
        let style = ink(frame::stage_colour(&player.scene().header));
        let x = column.text(0, 0, "▌", style);
        if names.len() > 1 {
            column.text(x, 0, fitted(name, (shift + BEFORE).saturating_sub(x + 1)), style);
        }
        let mut table = column.part(shift, 0, width, u16::MAX);
        labels(cells, &mut table);
        for (y, &rank) in (1u16..).zip(&page.ranks) {
            let mut row = table.part(0, y, width, 1);
            parts([player, first].map(|player| part(player, rank)), cells, &mut row);
        }
    }
    for (y, &rank) in (2u16..).zip(&page.ranks) {
        let style = if rank == app.rank { bold(Color::Reset) } else { ink(DIM) };
        paint.text(0, y, format!("rank {rank}"), style);
    }
}

fn labels(cells: &[MetricColumn], paint: &mut Paint<'_>) {
    for (end, (label, ..)) in (1u16..).zip(cells) {
        paint.right(end * CELL - 1, 0, label, ink(DIM));
    }
}

/// Draws one rank's values. A star marks a constant metric that differs from the first run's.
fn parts([own, first]: [Option<&LocalMetrics>; 2], cells: &[MetricColumn], paint: &mut Paint<'_>) {
    for (end, (_, of, constant)) in (1u16..).zip(cells) {
        let Some(own) = own else {
            paint.right(end * CELL - 1, 0, "–", ink(DIM));
            continue;
        };
        let other = first.is_some_and(|first| first.step == own.step && of(first) != of(own));
        let style = if *constant && other { bold(ALARM) } else { ink(Color::Reset) };
        let x = paint.right(end * CELL - 1, 0, of(own), style);
        if *constant && other {
            paint.text(x, 0, "*", style);
        }
    }
}
