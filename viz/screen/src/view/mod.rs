//! Draws the screen. It reads the program's state and writes the cells of a buffer, nothing else.

mod activity;
mod area;
mod axis;
mod bar;
mod cards;
mod closing;
pub mod compare;
mod contributions;
pub mod frame;
mod help;
mod legend;
mod memory;
mod overview;
mod pages;
mod paint;
mod pairs;
mod plot;
mod progress;
mod shards;
mod streams;
mod table;
mod theory;
mod traffic;
mod transfers;
mod wires;

use crate::app::App;
use crate::input::{Action, View};
use crate::theme::Theme;
use paint::Paint;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Draws the whole screen.
pub fn draw(app: &App, theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    let mut paint = Paint::new(buffer, area, theme);
    if area.width < frame::SMALLEST.0 || area.height < frame::SMALLEST.1 {
        frame::too_small(app, &mut paint);
    } else {
        let body = frame::draw(app, &mut paint);
        view(app, &mut paint.part(body.x, body.y, body.width, body.height));
        let (y, height) = frame::overlay(area.height);
        closing::draw(app, &mut paint.part(0, y, area.width, height));
        if app.help {
            help::keys(&mut paint.part(0, 0, area.width, area.height));
        }
        if app.confirming_quit {
            help::question(&mut paint.part(0, 0, area.width, area.height));
        }
    }
    theme.adapt(buffer);
}

/// Returns the action of a click on `column`, `row` of a screen of `size` columns and rows. A click
/// outside the list of keys closes it.
pub fn clicked(app: &App, size: (u16, u16), (column, row): (u16, u16)) -> Option<Action> {
    if app.help {
        let inside = help::area(size).contains((column, row).into());
        return (!inside).then_some(Action::Dismiss);
    }
    let body = frame::body(size);
    let covered = app.confirming_quit || app.shows_ending() || !body.contains((column, row).into());
    let rank = match app.view {
        View::Overview if !covered => {
            overview::rank_at(app, (body.width, body.height), (column - body.x, row - body.y))
        }
        _ => None,
    };
    rank.map(Action::SelectRank).or_else(|| frame::clicked(app, size, (column, row)))
}

fn view(app: &App, paint: &mut Paint<'_>) {
    if app.player().scene().now.ranks.is_empty() {
        return;
    }
    match app.view {
        View::Overview => overview::draw(app, paint),
        View::Shards => shards::draw(app, paint),
        View::Memory => memory::draw(app, paint),
        View::Streams => streams::draw(app, paint),
        View::Traffic => traffic::draw(app, paint),
        View::Compare => compare::draw(app, paint),
    }
}

/// Returns a picture of the screen, `width` × `height`.
pub fn picture(app: &App, theme: Theme, width: u16, height: u16) -> Buffer {
    let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width, height });
    draw(app, theme, &mut buffer);
    buffer
}
