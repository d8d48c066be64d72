//! Ranks as cards (up to eight), or as rows of a compact table (up to 64 and beyond).

use super::bar::{self, Bar};
use super::paint::{Paint, columns, fitted};
use crate::app::App;
use crate::groups;
use crate::player::Scene;
use crate::theme::{
    self, ACCENT, ALARM, DIM, FAINT, GOOD, WAITING, bold, class_colour, class_glyph, class_name, ink,
};
use crate::words;
use events::{Class, Flight, Outcome, Place, RankSnapshot};
use ratatui::style::{Color, Style};

/// More ranks than this are shown as a table.
pub(super) const MOST: usize = 8;
/// Narrower cards are unreadable.
const NARROWEST: u16 = 19;
/// Rows of a card with a row per class, and what a screen with two rows of cards shows below them.
pub(super) const TALL: u16 = 11;
const REST: u16 = 7;

/// How many cards stand beside each other: all, or half of them where all would be too narrow; none where neither fits.
pub(super) fn per_row(ranks: usize, (width, height): (u16, u16)) -> Option<usize> {
    let wide = |cards: usize| width / cards.max(1) as u16 >= NARROWEST;
    let half = ranks.div_ceil(2);
    if ranks > MOST {
        None
    } else if wide(ranks) {
        Some(ranks)
    } else {
        Some(half).filter(|&half| wide(half) && height >= 2 * TALL + REST)
    }
}

/// The columns in which `ranks` cards' middles are on a screen of `width` columns.
pub(super) fn centres(ranks: usize, width: u16) -> Vec<u16> {
    (0..ranks).map(|rank| place(rank, ranks, width)).map(|(x, width)| x + width / 2).collect()
}

/// The first column and the width of a rank's card.
pub(super) fn place(rank: usize, ranks: usize, width: u16) -> (u16, u16) {
    let (ranks, rank) = (ranks.max(1) as u16, rank as u16);
    let gap = u16::from(width / ranks >= 24);
    let each = (width + gap) / ranks;
    let margin = (width + gap - each * ranks) / 2;
    (margin + rank * each, each - gap)
}

/// The bytes at the right end of every bar, the same for all ranks so that bars can be compared.
pub(super) fn bar_scale(scene: &Scene) -> Bar {
    let ghost = scene.header.replicated_total.iter().copied().max().unwrap_or(0);
    let peak = scene.now.ranks.iter().map(|rank| rank.total_peak).max().unwrap_or(0);
    let needed = ghost.max(peak).max(1);
    // A capacity far above everything would leave the bars too short to read: it is given in words then.
    let capacity = scene.header.capacity.filter(|&capacity| capacity <= needed * 3 / 2);
    let scale = capacity.map_or(needed, |capacity| needed.max(capacity + capacity / 50));
    Bar { scale, ghost, capacity }
}

/// Draws a card per rank, so many beside each other, each `height` rows tall.
pub(super) fn draw(app: &App, per_row: usize, height: u16, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let (bar, width) = (bar_scale(scene), paint.width());
    for (number, rank) in scene.now.ranks.iter().enumerate() {
        let (x, width) = place(number % per_row, per_row, width);
        let y = (number / per_row) as u16 * height;
        card(app, number, rank, &bar, &mut paint.part(x, y, width, height));
    }
}

fn card(app: &App, number: usize, rank: &RankSnapshot, bar: &Bar, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let chosen = app.rank == number;
    let border = if chosen { ink(ACCENT) } else { ink(FAINT) };
    let name = format!(" rank {number} ");
    let (width, height) = (paint.width(), paint.height());
    let total = format!(" {} ", summary(scene, number, rank, width));
    let mut inside = paint.card(&[(&name, bold(if chosen { ACCENT } else { Color::Reset }))], border);
    let (text, style) = activity(scene, number);
    let roomy = inside.width() >= 24;
    let (x, inner) = (u16::from(roomy), inside.width().saturating_sub(2 * u16::from(roomy)));
    inside.text(x, 0, fitted(&text, inner), style);
    let parts = rank.live[Place::Device.index()];
    bar.draw(&mut inside, (x, 1, inner), &parts);
    let mut y = 2;
    if inside.height() >= TALL {
        bar.draw(&mut inside, (x, 2, inner), &parts);
        y = 4;
    }
    classes(scene, number, bar, &mut inside.part(x, y, inner, u16::MAX));
    let length = columns(&total);
    paint.text(width.saturating_sub(length + 1), height.saturating_sub(1), total, bold(Color::Reset));
}

/// What is live, and what that is of DDP's need: written on the card's lower edge.
fn summary(scene: &Scene, number: usize, rank: &RankSnapshot, width: u16) -> String {
    let live = rank.live_total();
    let ghost = scene.header.replicated_total.get(number).copied().unwrap_or(0);
    let share = words::percent(live as f64, ghost as f64);
    if width >= 40 {
        format!("{} live · {share} of DDP · peak {}", words::bytes(live), words::bytes(rank.total_peak))
    } else if width >= 26 {
        format!("{} · {share} of DDP", words::bytes(live))
    } else {
        format!("{} · {share}", words::bytes(live))
    }
}

/// What a rank is doing, in a few words.
pub(super) fn activity(scene: &Scene, number: usize) -> (String, Style) {
    let rank = &scene.now.ranks[number];
    match &rank.outcome {
        Outcome::Failed(_) => return failed(scene, number),
        Outcome::Finished => return ("✓ finished".into(), bold(GOOD)),
        Outcome::Failing => return ("✗ failing".into(), bold(ALARM)),
        Outcome::Running => {}
    }
    if let Some(pass) = rank.pass {
        let unit = words::unit(&scene.header, pass.unit);
        return (format!("{} {unit}", words::pass(pass.pass)), bold(theme::pass_colour(pass.pass)));
    }
    match rank.flights.first() {
        Some(flight) if flight.started.is_none() && is_awaited(scene, flight) => {
            (format!("waits: {}", flight.event.operation), bold(WAITING))
        }
        Some(flight) => {
            let operation = flight.event.operation;
            (operation.label().into(), bold(theme::operation_colour(operation)))
        }
        None => ("between passes".into(), ink(DIM)),
    }
}

/// Whether some rank has not issued the collective yet.
fn is_awaited(scene: &Scene, flight: &Flight) -> bool {
    let event = &flight.event;
    let parts = groups::beside(&scene.now, event.group);
    let members = parts.iter().filter(|part| part.number == event.group).flat_map(|part| &part.ranks);
    members.into_iter().any(|&rank| !scene.now.ranks[rank].has_issued(event.group, event.sequence))
}

/// What a rank was at when it failed, or when another one's failure stopped it.
fn failed(scene: &Scene, number: usize) -> (String, Style) {
    let rank = &scene.now.ranks[number];
    let at = match (rank.pass, rank.flights.first()) {
        (Some(pass), _) => format!("{} {}", words::pass(pass.pass), words::unit(&scene.header, pass.unit)),
        (None, Some(flight)) => flight.event.operation.to_string(),
        (None, None) => "failed".into(),
    };
    match scene.now.failure {
        Some((culprit, _)) if culprit as usize != number => {
            (if at == "failed" { "stopped".into() } else { format!("‖ {at}") }, bold(WAITING))
        }
        _ => (format!("✗ {at}"), bold(ALARM)),
    }
}

/// A row per class that is or will be used.
fn classes(scene: &Scene, number: usize, bar: &Bar, paint: &mut Paint<'_>) {
    let (width, height) = (paint.width(), usize::from(paint.height()));
    let rank = &scene.now.ranks[number];
    let planned = |class: Class| {
        let mut predicted = scene.header.predicted_memory.iter();
        predicted.any(|p| p.rank as usize == number && p.class == class && p.bytes > 0)
    };
    let used = |class: &&Class| rank.peak_of(**class) > 0 || planned(**class);
    let bars = width >= 34;
    for (y, &class) in (0u16..).zip(Class::ALL.iter().filter(used).take(height)) {
        let live = rank.live_of(class);
        let style = if live > 0 { ink(class_colour(class)) } else { ink(FAINT) };
        paint.text(0, y, class_glyph(class), style);
        let label = if live > 0 { ink(Color::Reset) } else { ink(FAINT) };
        let value = if live == 0 { "–".into() } else { words::short_bytes(live) };
        let start = width.saturating_sub(columns(&value));
        // The longest name and value leave no room for a blank on the narrowest cards.
        let name = 1 + u16::from(width >= 18);
        let room = if bars { 12 } else { start.saturating_sub(name) };
        paint.part(name, y, room, 1).text(0, 0, class_name(class), label);
        if bars {
            let scale = bar.scale as f64;
            bar::plain(paint, (15, y, width - 22), live as f64, scale, class_colour(class));
        }
        paint.text(start, y, value, label);
    }
}

/// Draws ranks as a table, in as many columns as it takes. Returns the rows used.
pub(super) fn table(app: &App, paint: &mut Paint<'_>) -> u16 {
    let scene = app.player().scene();
    let ranks = scene.now.ranks.len().max(1);
    let rows = usize::from(paint.height().saturating_sub(1)).max(1);
    let fitting = usize::from(paint.width() / 16).max(1);
    let columns_needed = ranks.div_ceil(rows).clamp(1, fitting);
    let rows = ranks.div_ceil(columns_needed).min(rows);
    let shown = rows * columns_needed;
    // Where not all ranks fit, the chosen one stays visible.
    let first = if ranks > shown { (app.rank / shown) * shown } else { 0 };
    let each = (paint.width() + 2) / columns_needed as u16;
    legend(&[scene], paint);
    if ranks > shown {
        let text = format!("ranks {first} to {} of {ranks} ↓ ↑", (first + shown).min(ranks) - 1);
        paint.right(paint.width(), 0, text, ink(ACCENT));
    }
    let bar = bar_scale(scene);
    for (place, number) in (first..ranks.min(first + shown)).enumerate() {
        let x = (place / rows) as u16 * each;
        let y = (place % rows) as u16 + 1;
        row(app, number, &bar, &mut paint.part(x, y, each.saturating_sub(2), 1));
    }
    rows as u16 + 1
}

/// Which glyph and colour is which class; only classes that are used.
pub(super) fn legend(scenes: &[&Scene], paint: &mut Paint<'_>) {
    let ranks = || scenes.iter().flat_map(|scene| &scene.now.ranks);
    let used = |class: Class| ranks().any(|rank| rank.peak_of(class) > 0);
    let classes: Vec<Class> = Class::ALL.iter().copied().filter(|&class| used(class)).collect();
    let room = |name: fn(Class) -> &'static str| classes.iter().map(|&c| columns(name(c)) + 5).sum::<u16>();
    let ghost = "what DDP would need";
    let long = room(Class::label) + columns(ghost) + 2 <= paint.width();
    let spacious = room(class_name) + columns(ghost) + 2 <= paint.width();
    let gap = if spacious { 3 } else { 1 };
    let close = room(class_name) > 2 * classes.len() as u16 + 1 + paint.width();
    let mut x = 0;
    for &class in &classes {
        x = paint.text(x, 0, class_glyph(class), ink(class_colour(class)));
        let name = if long { class.label() } else { class_name(class) };
        x = paint.text(x + u16::from(!close), 0, name, ink(DIM)) + gap;
    }
    if spacious {
        let fill = if paint.theme().colours() { "░" } else { "·" };
        x = paint.text(x, 0, fill, ink(FAINT));
        paint.text(x + 1, 0, ghost, ink(DIM));
    }
}

fn row(app: &App, number: usize, bar: &Bar, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let rank = &scene.now.ranks[number];
    let width = paint.width();
    let style = if app.rank == number { bold(ACCENT) } else { ink(DIM) };
    paint.right(3, 0, number.to_string(), style);
    let wide = width >= 50;
    let live = rank.live_total();
    let value = if wide { words::bytes(live) } else { words::short_bytes(live) };
    paint.right(width, 0, &value, ink(Color::Reset));
    let (text, activity_style) = activity(scene, number);
    let words = if width >= 100 { 26 } else { 20 * u16::from(wide) };
    if words > 0 {
        paint.part(4, 0, words - 1, 1).text(0, 0, fitted(&text, words - 1), activity_style);
    } else {
        paint.put(4, 0, "▌", activity_style);
    }
    let start = 5 + words;
    let length = width.saturating_sub(start + if wide { 9 } else { 5 + u16::from(width >= 20) });
    bar.draw(paint, (start, 0, length), &rank.live[Place::Device.index()]);
}
