//! Ranks as rows of a compact table, which shows 64 ranks on the smallest screen; and the key of
//! the classes.

use super::activity::{Activity, activity};
use super::bar::Bar;
use super::cards;
use super::legend::{self, Entry};
use super::pages::RankPage;
use super::paint::Paint;
use crate::app::App;
use crate::fit::{columns, fitted, fitting};
use crate::player::Scene;
use crate::theme::{ACCENT, DIM, FAINT, bold, class_colour, class_glyph, class_name, ink, shortest_name};
use crate::{places, words};
use events::{Class, Place};
use ratatui::style::Color;

/// The narrowest column of the table with the gap after it, and the width from which words fit.
const NARROWEST: u16 = 16;
const WORDS: u16 = 50;
const GAP: u16 = 2;
/// The width of a column of the table with the gap after it below which bars are too short to show
/// a rank's share of the bytes that DDP would need.
const SHORT: u16 = 24;

struct TableShape {
    /// Rows above the ranks: the key of the classes and, if activities are letters, the key of the
    /// letters.
    header: u16,
    rows: usize,
    columns: usize,
    /// Columns from one column of the table to the next.
    each: u16,
}

impl TableShape {
    /// Returns the layout with as few columns as `height` rows allow.
    fn new(ranks: usize, width: u16, height: u16) -> Self {
        let fitting = usize::from((width + GAP) / NARROWEST).max(1);
        let wide = |columns: usize| (width + GAP) / columns as u16 >= WORDS + GAP;
        let header = |columns: usize| 2 - u16::from(wide(columns));
        let rows = |columns: usize| usize::from(height.saturating_sub(header(columns))).max(1);
        let columns = (1..=fitting).find(|&columns| ranks.div_ceil(columns) <= rows(columns));
        let columns = columns.unwrap_or(fitting);
        let each = (width + GAP) / columns as u16;
        TableShape {
            header: header(columns),
            rows: ranks.div_ceil(columns).min(rows(columns)),
            columns,
            each,
        }
    }

    fn shown(&self) -> usize {
        self.rows * self.columns
    }
}

/// True if `height` rows suffice for all ranks.
pub(super) fn fits(ranks: usize, width: u16, height: u16) -> bool {
    let shape = TableShape::new(ranks, width, height);
    shape.shown() >= ranks && shape.header + shape.rows as u16 <= height
}

/// Returns the rank that is drawn at `x`, `y` of a table of `width` columns and `height` rows.
pub(super) fn at(app: &App, (width, height): (u16, u16), (x, y): (u16, u16)) -> Option<usize> {
    let layout = TableShape::new(app.player().scene().now.ranks.len().max(1), width, height);
    let row = y.checked_sub(layout.header).map(usize::from).filter(|&row| row < layout.rows)?;
    let place = usize::from(x / layout.each) * layout.rows + row;
    RankPage::new(app, layout.shown()).ranks.get(place).copied()
}

/// Draws the ranks in as many columns as needed. Returns the rows used.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) -> u16 {
    let scene = app.player().scene();
    let ranks = scene.now.ranks.len().max(1);
    let layout = TableShape::new(ranks, paint.width(), paint.height());
    let (shown, width) = (layout.shown(), paint.width());
    let page = RankPage::new(app, shown);
    let mut room = width;
    let told = page.label();
    // The key of the classes needs its row on a narrow screen.
    let mut x = 0;
    if layout.header > 1 && shown >= ranks && !told.is_empty() {
        x = paint.text(0, 1, &told, ink(ACCENT)) + GAP;
    } else if !told.is_empty() {
        paint.right(width, 0, &told, ink(ACCENT));
        room = width.saturating_sub(columns(&told) + GAP);
    }
    let bar = if layout.each < SHORT { cards::short_bar(scene) } else { cards::bar_scale(scene) };
    classes(&[scene], bar.ghost > 0, &mut paint.part(0, 0, room, 1));
    if layout.header > 1 {
        x = activities(scene, &mut paint.part(x, 1, width.saturating_sub(x), 1)) + x + GAP;
        paint.right(width, 1, fitting(&scales(scene, &bar), width.saturating_sub(x)), ink(DIM));
    }
    for (place, number) in page.ranks.into_iter().enumerate() {
        let x = (place / layout.rows) as u16 * layout.each;
        let y = (place % layout.rows) as u16 + layout.header;
        row(app, number, &bar, &mut paint.part(x, y, layout.each - GAP, 1));
    }
    layout.rows as u16 + layout.header
}

/// Returns the numbers that bars among many ranks cannot show, from the longest form to the
/// shortest: the bytes at their right end if DDP would need more, and the capacity or the bytes
/// that ranks hold in other places.
fn scales(scene: &Scene, bar: &Bar) -> Vec<String> {
    let full = if bar.ghost > 0 { String::new() } else { format!("full bar {}", words::bytes(bar.scale)) };
    let most = |place| scene.now.most(|rank| rank.live_in(place));
    let held = places::used(&scene.header)
        .iter()
        .map(|&place| format!("{} {}", words::short_bytes(most(place)), places::within(place)));
    let held = held.collect::<Vec<_>>().join(", ");
    let more = match scene.header.capacity {
        _ if !held.is_empty() => format!("each at most {held}"),
        Some(capacity) => format!("capacity {} each", words::bytes(capacity)),
        None => return vec![full],
    };
    if full.is_empty() { vec![more] } else { vec![format!("{full} · {more}"), full, more] }
}

/// Draws the number of ranks in each activity, which explains the letters. Returns the column after
/// it.
fn activities(scene: &Scene, paint: &mut Paint<'_>) -> u16 {
    let mut kinds: Vec<(Activity, usize)> = Vec::new();
    for rank in 0..scene.now.ranks.len() {
        let activity = activity(scene, rank);
        match kinds.iter_mut().find(|(other, _)| other.kind == activity.kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((activity, 1)),
        }
    }
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let entry = |(activity, count): &(Activity, usize)| {
        let entry = Entry::new(activity.letter, activity.style, activity.kind, *count as u64);
        entry.followed_by(&count.to_string(), ink(Color::Reset))
    };
    legend::draw(kinds.iter().map(entry).collect(), 3, paint)
}

fn row(app: &App, number: usize, bar: &Bar, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let (rank, width) = (&scene.now.ranks[number], paint.width());
    let digits = columns(&scene.now.ranks.len().saturating_sub(1).to_string());
    let style = if app.rank == number { bold(ACCENT) } else { ink(DIM) };
    paint.right(digits, 0, number.to_string(), style);
    let wide = width >= WORDS;
    let live = rank.live_total();
    let value = if wide { words::bytes(live) } else { words::short_bytes(live) };
    let capacity = scene.header.capacity.filter(|_| wide);
    let capacity = capacity.map_or(String::new(), |capacity| format!(" of {}", words::round_bytes(capacity)));
    let beside = places::used(&scene.header)
        .iter()
        .filter(|_| wide)
        .map(|&place| format!("  {} {:>4}", places::letter(place), words::short_bytes(rank.live_in(place))));
    let capacity = capacity + &beside.collect::<String>();
    paint.right(width, 0, &capacity, ink(DIM));
    paint.right(width.saturating_sub(columns(&capacity)), 0, &value, ink(Color::Reset));
    let Activity { letter, text, style, .. } = activity(scene, number);
    let words = if wide { 20 + 6 * u16::from(width >= 100) } else { 2 };
    let text = if wide { fitted(&text, words - 1) } else { letter.into() };
    paint.text(digits + 1, 0, text, style);
    let start = digits + 1 + words;
    let length = width.saturating_sub(start + columns(&capacity) + if wide { 9 } else { 5 });
    bar.draw(paint, (start, 0, length), &rank.live[Place::Device.index()]);
}

type Name = fn(Class) -> &'static str;

/// Draws the glyphs, colours and names of the classes in use, with the longest names that fit, and
/// the entry of DDP's bytes if bars have such a `ghost`. Model states are left out last.
pub(super) fn classes(scenes: &[&Scene], ghost: bool, paint: &mut Paint<'_>) {
    const GHOST: &str = "what DDP would need";
    let ranks = || scenes.iter().flat_map(|scene| &scene.now.ranks);
    let entry = |class: Class, name: Name| {
        let weight = Class::ALL.len() - class.index();
        Entry::new(class_glyph(class), ink(class_colour(class)), name(class), weight as u64)
    };
    let used = || Class::ALL.into_iter().filter(|&class| ranks().any(|rank| rank.peak_of(class) > 0));
    let named = |name: Name| used().map(|class| entry(class, name)).collect::<Vec<_>>();
    let names: [(Name, u16); 4] = [(Class::label, 3), (class_name, 3), (class_name, 1), (shortest_name, 1)];
    let fitting = names.into_iter().find(|&(name, gap)| legend::length(&named(name), gap) <= paint.width());
    let (name, gap) = fitting.unwrap_or(names[3]);
    let x = match legend::draw(named(name), gap, paint) {
        0 => 0,
        end => end + gap,
    };
    if ghost && x + columns(GHOST) + 2 <= paint.width() {
        let fill = if paint.theme().colours() { "░" } else { "·" };
        let x = paint.text(x, 0, fill, ink(FAINT));
        paint.text(x + 1, 0, GHOST, ink(DIM));
    }
}
