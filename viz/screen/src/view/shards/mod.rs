//! Draws what each rank holds: units × ranks, and in each cell the slices of parameters, gradients
//! and optimizer states.
//!
//! A cell is the unit's flat buffer from left to right, cut into one slot per rank.

mod cell;
mod key;

use super::pages::RankPage;
use super::paint::Paint;
use crate::app::App;
use crate::fit::{fitting, fitting_or_cut};
use crate::player::Scene;
use crate::ranking::RankOrder;
use crate::theme::{self, ACCENT, DIM, FAINT, bold, class_colour, class_glyph, ink};
use crate::{places, words};
use cell::{UnitCell, slots};
use events::{Class, Place, RankSnapshot};
use ratatui::style::{Color, Style};

/// The width of the units' names, and that of the names of their three lines, shown if there is
/// room.
const NAMES: u16 = 14;
const LINES: u16 = 12;
/// Rows of the key, with the blank row before it.
const KEY: u16 = 5;

/// The layout of the cells.
struct Grid {
    /// Columns before the first cell.
    label: u16,
    page: RankPage,
    /// Columns per cell.
    cell: u16,
    /// Columns between cells.
    gap: u16,
    first_unit: usize,
    units: usize,
    /// Rows for each of a unit's three lines.
    tall: u16,
    /// Rows from a unit to the next.
    each: u16,
    /// True if the key is next to the cells because there is no room below.
    key_beside: bool,
}

impl Grid {
    fn new(app: &App, width: u16, height: u16) -> Self {
        let scene = app.player().scene();
        let (ranks, units) = (scene.now.ranks.len().max(1), scene.header.units.len().max(1));
        let rows = height.saturating_sub(1);
        let fits = |&(_, each): &(u16, u16)| (units as u16).saturating_mul(each) + KEY <= rows;
        let size = [(3, 10), (2, 7), (1, 4)].into_iter().find(fits);
        let (tall, each) = size.unwrap_or((1, if rows >= units as u16 * 4 { 4 } else { 3 }));
        let key_beside = size.is_none();
        let label = if width >= 112 { NAMES + LINES } else { NAMES };
        let room = width.saturating_sub(label + if key_beside { key::WIDTH + 1 } else { 0 });
        let least = (ranks as u16).clamp(4, 8) + 1;
        let pages = ranks.div_ceil(usize::from(room / least).max(1));
        let shown = ranks.div_ceil(pages);
        let (each_rank, slots) = (room / shown as u16, slots(scene) as u16);
        let widest = each_rank.saturating_sub(1).max(1);
        let cell = if widest >= slots { widest / slots * slots } else { widest };
        let cell = cell.min((slots * 12).max(44 / slots * slots)).max(1);
        let fitting = usize::from((rows / each).max(1)).min(units);
        let first_unit = match app.page(units.div_ceil(fitting)) {
            Some(page) => page * fitting,
            None => current_unit(scene).unwrap_or(0).saturating_sub(fitting / 2),
        };
        Grid {
            label,
            page: RankPage::new(app, shown),
            cell,
            gap: each_rank.saturating_sub(cell).clamp(1, 2),
            first_unit: first_unit.min(units - fitting),
            units: fitting,
            tall,
            each,
            key_beside,
        }
    }

    /// Returns which of `all` units are shown and the key that turns the page; empty if all units
    /// are shown.
    fn units_label(&self, all: usize) -> String {
        let first = self.first_unit + 1;
        match self.units {
            units if units == all => String::new(),
            1 => format!("unit {first} of {all} u"),
            units => format!("units {first}–{} of {all} u", first + units - 1),
        }
    }

    /// Returns the ranks shown, with the first column of each.
    fn columns(&self) -> impl Iterator<Item = (usize, u16)> + '_ {
        let each = self.cell + self.gap;
        (0u16..).zip(&self.page.ranks).map(move |(place, &rank)| (rank, self.label + place * each))
    }
}

pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let grid = Grid::new(app, paint.width(), paint.height());
    header(app, &grid, paint);
    for place in 0..grid.units.min(scene.header.units.len()) {
        unit(scene, &grid, grid.first_unit + place, 1 + place as u16 * grid.each, paint);
    }
    let (width, height) = (paint.width(), paint.height());
    if grid.key_beside {
        paint.right(width, 0, grid.units_label(scene.header.units.len()), ink(ACCENT));
        return key::beside(scene, &mut paint.part(width.saturating_sub(key::WIDTH), 0, key::WIDTH, height));
    }
    let mut y = 1 + grid.units as u16 * grid.each;
    if height > y + KEY {
        held(scene, &grid, y, paint);
        y += 2;
    }
    key::below(scene, &mut paint.part(0, y, width, height.saturating_sub(y)));
}

fn header(app: &App, grid: &Grid, paint: &mut Paint<'_>) {
    let all = app.player().scene().now.ranks.len();
    let note = match (app.order, grid.page.ranks.len() < all) {
        (RankOrder::Slowest, true) => format!("slowest of {all} ↑↓"),
        (RankOrder::Slowest, false) => "slowest first".into(),
        (RankOrder::Number, true) => format!("{all} ranks ↑↓"),
        (RankOrder::Number, false) => "unit".into(),
    };
    paint.text(0, 0, note, ink(DIM));
    for (rank, x) in grid.columns() {
        let style = if rank == app.rank { theme::selected(paint.theme()) } else { bold(Color::Reset) };
        let name = if grid.cell >= 6 { format!("rank {rank}") } else { format!("r{rank}") };
        paint.part(x, 0, grid.cell + grid.gap, 1).text(0, 0, name, style);
    }
}

fn current_unit(scene: &Scene) -> Option<usize> {
    let rank = scene.now.ranks.first()?;
    rank.pass.or(rank.last_pass).map(|pass| usize::from(pass.unit))
}

fn unit(scene: &Scene, grid: &Grid, unit: usize, y: u16, paint: &mut Paint<'_>) {
    label(scene, grid, unit, y, paint);
    for (rank, x) in grid.columns() {
        UnitCell { scene, rank, unit, x, width: grid.cell, tall: grid.tall }.draw(y, paint);
    }
}

/// Draws the unit's name, its current pass or its size, and the names of its lines.
fn label(scene: &Scene, grid: &Grid, unit: usize, y: u16, paint: &mut Paint<'_>) {
    let described = &scene.header.units[unit];
    let inside = |rank: &&RankSnapshot| rank.pass.is_some_and(|pass| usize::from(pass.unit) == unit);
    let active = scene.now.ranks.iter().find(inside).and_then(|rank| rank.pass);
    let style = active.map_or(bold(Color::Reset), |pass| bold(theme::pass_colour(pass.pass)));
    let name = &described.name;
    let names = [name.clone(), name.strip_prefix("block ").unwrap_or(name).into()];
    paint.text(0, y, fitting_or_cut(&names, NAMES - 3), style);
    if let Some(pass) = active {
        paint.text(NAMES - 2, y, "▸", style);
        paint.text(0, y + 1, words::pass(pass.pass), ink(theme::pass_colour(pass.pass)));
    } else {
        paint.text(0, y + 1, words::count(described.parameters as f64), ink(DIM));
    }
    if grid.label > NAMES {
        for (line, class) in (0u16..).zip([Class::Parameters, Class::Gradients, Class::Optimizer]) {
            paint.text(NAMES, y + line * grid.tall, class.label(), ink(DIM));
        }
    }
}

/// Draws the bytes that every rank holds now: model states, and gathered parameters with buckets.
fn held(scene: &Scene, grid: &Grid, y: u16, paint: &mut Paint<'_>) {
    let roomy = grid.label > NAMES;
    paint.text(0, y, if roomy { "model states held" } else { "states held" }, ink(DIM));
    for (rank, x) in grid.columns() {
        let now = &scene.now.ranks[rank];
        let sum = |classes: &[Class]| classes.iter().map(|&class| now.live_of(class)).sum::<u64>();
        let states = sum(&[Class::Parameters, Class::Gradients, Class::Optimizer]);
        let passing = sum(&[Class::GatheredParameters, Class::CommunicationBuckets]);
        let mut part = paint.part(x, y, grid.cell + grid.gap - 1, 1);
        let x = part.text(0, 0, words::short_bytes(states), bold(Color::Reset));
        let elsewhere =
            |&place| format!(" {} {}", places::letter(place), words::short_bytes(now.live_in(place)));
        let elsewhere: String = places::used(&scene.header).iter().map(elsewhere).collect();
        let notes = if passing > 0 {
            let short = format!("+ {}", words::short_bytes(passing));
            [format!("{short} temporarily{elsewhere}"), format!("{short}{elsewhere}")]
        } else {
            [elsewhere.trim_start().into(), String::new()]
        };
        let room = part.width().saturating_sub(x + 1);
        part.text(x + 1, 0, fitting(&notes, room), ink(DIM));
    }
}

fn class_style(class: Class) -> (&'static str, Style) {
    (class_glyph(class), ink(class_colour(class)))
}

/// Returns the symbol of the bytes of `class` stored in `place`: a letter if that is not the
/// device.
fn place_style(class: Class, place: Place) -> (&'static str, Style) {
    let symbol = if place == Place::Device { class_glyph(class) } else { places::letter(place) };
    (symbol, ink(class_colour(class)))
}

fn nothing() -> (&'static str, Style) {
    ("·", ink(FAINT))
}

/// Returns the symbol of allocated gradients without values.
fn room() -> (&'static str, Style) {
    ("╌", ink(class_colour(Class::Gradients)))
}
