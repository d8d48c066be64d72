//! The overview: a card per rank, the collective between them, the loss.

use super::area::Area;
use super::paint::Paint;
use super::progress::progress;
use super::{cards, table, transfers, wires};
use crate::app::App;
use crate::player::Scene;
use crate::theme::{FAINT, ink};
use crate::words;

/// Minimum number of rows of the loss and the run's metrics.
const LEAST: u16 = 3;

pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let ranks = app.player().scene().now.ranks.len();
    match cards::per_row(ranks, (paint.width(), paint.height())) {
        Some(all) if all == ranks => one_row(app, paint),
        Some(per_row) => two_rows(app, per_row, paint),
        None => table(app, paint),
    }
}

/// Returns the rank that is drawn at `x`, `y` of the view, which has `size` columns and rows;
/// `None` if there is none.
pub(super) fn rank_at(app: &App, size: (u16, u16), (x, y): (u16, u16)) -> Option<usize> {
    let scene = app.player().scene();
    let ranks = scene.now.ranks.len();
    match cards::per_row(ranks, size) {
        Some(all) if all == ranks => cards::at(ranks, all, (size.0, one_row_height(scene, size.1)), (x, y)),
        Some(per_row) => cards::at(ranks, per_row, (size.0, cards::height(scene, 0)), (x, y)),
        None => table::at(app, (size.0, table_room(ranks, size)), (x, y)),
    }
}

/// Returns the gap between the parts of a view of `height` rows.
fn gap(height: u16) -> u16 {
    u16::from(height >= 28)
}

/// Returns the rows of cards that are all in one row, in a view of `height` rows.
fn one_row_height(scene: &Scene, height: u16) -> u16 {
    let (wires, gap) = (scene.now.ranks.len() as u16 + 1, gap(height));
    let rest = wires + (height / 4).clamp(4, 14) + 2 * gap;
    let cards_height = cards::height(scene, height.saturating_sub(rest));
    cards_height.min(height.saturating_sub(wires + LEAST + 2 * gap))
}

/// Draws all cards in one row, and the wires between them below.
fn one_row(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let (ranks, width, height) = (scene.now.ranks.len(), paint.width(), paint.height());
    let (wires, gap) = (ranks as u16 + 1, gap(height));
    let cards_height = one_row_height(scene, height);
    let mut bottom = height.saturating_sub(cards_height + wires + 2 * gap);
    let moving = transfers::rows(scene).min(bottom.saturating_sub(LEAST));
    bottom -= moving;
    cards::draw(app, ranks, cards_height, &mut paint.part(0, 0, width, cards_height));
    let y = cards_height + gap;
    transfers::line(scene, &mut paint.part(0, y, width, moving));
    let y = y + moving;
    wires::draw(scene, &cards::centres(ranks, width), &mut paint.part(0, y, width, wires));
    let y = y + wires + gap;
    let areas = if bottom >= 22 { bottom - 14 } else { 0 };
    memories(app, &mut paint.part(0, y, width, areas.saturating_sub(1)));
    progress(app.player(), &mut paint.part(0, y + areas, width, bottom - areas));
}

/// Draws two rows of cards, and below them the collective in words and in one row.
fn two_rows(app: &App, per_row: usize, paint: &mut Paint<'_>) {
    let width = paint.width();
    let each = cards::height(app.player().scene(), 0);
    cards::draw(app, per_row, each, &mut paint.part(0, 0, width, 2 * each));
    below(app, 2 * each, paint);
}

/// Returns the rows for a table of `ranks` ranks in a view of `width` columns and `height` rows.
fn table_room(ranks: usize, (width, height): (u16, u16)) -> u16 {
    let room = height.saturating_sub((height / 4).clamp(4, 12) + 2);
    match height {
        _ if table::fits(ranks, width, room) => room,
        // There is no room for anything else.
        0..8 => height,
        _ => height.saturating_sub(1 + LEAST),
    }
}

fn table(app: &App, paint: &mut Paint<'_>) {
    let width = paint.width();
    let room = table_room(app.player().scene().now.ranks.len(), (width, paint.height()));
    let used = table::draw(app, &mut paint.part(0, 0, width, room));
    below(app, used, paint);
}

/// Draws, from row `y` on, the collective in words and the run's progress. If there is room, adds a
/// row with the collective and blank rows.
fn below(app: &App, y: u16, paint: &mut Paint<'_>) {
    let (width, height) = (paint.width(), paint.height());
    let mut spare = height.saturating_sub(y + 1 + LEAST);
    let mut y = y + u16::from(spare > 4);
    if transfers::rows(app.player().scene()) > 0 && spare > 1 {
        transfers::line(app.player().scene(), &mut paint.part(0, y, width, 1));
        (y, spare) = (y + 1, spare - 1);
    }
    wires::line(app.player().scene(), &mut paint.part(0, y, width, 1));
    if spare > 0 {
        wires::strip(app.player().scene(), &mut paint.part(2, y + 1, width.saturating_sub(2), 1));
    }
    let y = y + 1 + u16::from(spare > 0) + u16::from(spare > 1);
    progress(app.player(), &mut paint.part(0, y, width, height.saturating_sub(y)));
}

/// Draws every rank's memory over the last two steps, below its card and on one scale.
fn memories(app: &App, paint: &mut Paint<'_>) {
    let (scene, width, height) = (app.player().scene(), paint.width(), paint.height());
    if height < 4 {
        return;
    }
    let ranks = scene.now.ranks.len();
    let top = scene.now.most(|rank| rank.total_peak).max(1);
    let note = format!("the last two steps of every rank · top {}", words::bytes(top));
    paint.noted_heading("Memory", note);
    for rank in 0..ranks {
        // As wide as the inside of the card.
        let (x, width) = cards::place(rank, ranks, width);
        let (x, width) = (x + 2, width.saturating_sub(4));
        Area::draw_memory(app.player(), rank, top, &mut paint.part(x, 1, width, height - 2));
        paint.run(x, height - 1, width, "─", ink(FAINT));
    }
}
