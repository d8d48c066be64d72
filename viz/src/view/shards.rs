//! Who holds what: units × ranks, and in each cell the slices of parameters, gradients and optimizer states.
//!
//! A cell is the unit's flat buffer from left to right, cut into one slot per rank.

use super::paint::{Paint, columns, fitted};
use crate::app::App;
use crate::player::Scene;
use crate::theme::{self, ACCENT, DIM, FAINT, bold, class_colour, class_glyph, ink};
use crate::words;
use events::units::{Gather, Gradient, UnitNow};
use events::{Class, RankSnapshot};
use ratatui::style::{Color, Style};

/// Columns of the units' names, and of the words for their three lines where there is room for them.
const NAMES: u16 = 14;
const LINES: u16 = 12;
/// Rows of the key, with the blank row before it.
const KEY: u16 = 5;

/// How cells are laid out.
struct Grid {
    /// Columns before the first cell.
    label: u16,
    first_rank: usize,
    ranks: usize,
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
}

impl Grid {
    fn new(app: &App, width: u16, height: u16) -> Self {
        let scene = app.player().scene();
        let (ranks, units) = (scene.now.ranks.len().max(1), scene.header.units.len().max(1));
        let label = if width >= 112 { NAMES + LINES } else { NAMES };
        let room = width.saturating_sub(label);
        let least = (ranks as u16).clamp(4, 8) + 1;
        let shown = ranks.min(usize::from(room / least)).max(1);
        let gap = if room / shown as u16 > 12 { 2 } else { 1 };
        let each = (room / shown as u16).saturating_sub(gap).max(1);
        let slots = slots(scene) as u16;
        let cell = if each >= slots { each / slots * slots } else { each };
        let room = height.saturating_sub(1);
        let fits = |&(tall, each): &(u16, u16)| (units as u16).saturating_mul(each) + KEY < room || tall == 1;
        let sizes = [(3, 10), (2, 7), (1, if room >= units as u16 * 4 { 4 } else { 3 })];
        let (tall, each) = sizes.into_iter().find(fits).unwrap_or((1, 3));
        let fitting = usize::from((room / each).max(1)).min(units);
        let current = current_unit(scene).unwrap_or(0);
        Grid {
            label,
            first_rank: (app.rank / shown * shown).min(ranks - shown),
            ranks: shown,
            cell: cell.min((slots * 12).max(44 / slots * slots)).max(1),
            gap,
            first_unit: current.saturating_sub(fitting / 2).min(units - fitting),
            units: fitting,
            tall,
            each,
        }
    }

    /// The ranks shown, with the column at which each begins.
    fn columns(&self) -> impl Iterator<Item = (usize, u16)> + '_ {
        let each = self.cell + self.gap;
        (0..self.ranks).map(move |place| (self.first_rank + place, self.label + place as u16 * each))
    }
}

/// Draws the view.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let grid = Grid::new(app, paint.width(), paint.height());
    header(app, &grid, paint);
    for place in 0..grid.units.min(scene.header.units.len()) {
        unit(scene, &grid, grid.first_unit + place, 1 + place as u16 * grid.each, paint);
    }
    let mut y = 1 + grid.units as u16 * grid.each;
    let height = paint.height();
    if height > y + KEY {
        held(scene, &grid, y, paint);
        y += 2;
    }
    if height + 1 >= y + KEY {
        key(scene, &mut paint.part(0, y, u16::MAX, height - y));
    }
}

fn header(app: &App, grid: &Grid, paint: &mut Paint<'_>) {
    let all = app.player().scene().now.ranks.len();
    let note = if grid.ranks < all { format!("{all} ranks, ↓ ↑") } else { "unit".into() };
    paint.text(0, 0, note, ink(DIM));
    for (rank, x) in grid.columns() {
        let style = if rank == app.rank { bold(ACCENT) } else { bold(Color::Reset) };
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
        let now = &scene.now.ranks[rank];
        let state = now.units.units.get(unit).copied().unwrap_or_default();
        let held = now.peak_of(Class::Parameters) > 0;
        let slots = slots(scene);
        let cell = Cell { slot: rank % slots, slots, width: grid.cell, x, tall: grid.tall, held };
        let whole = scene.header.units[unit].whole || !scene.header.sharded.parameters;
        cell.parameters(whole, &state, y, paint);
        cell.gradients(scene, &state, y + grid.tall, paint);
        cell.optimizer(scene, y + 2 * grid.tall, paint);
    }
}

/// The unit's name, the pass that is in it or its size, and what its lines are.
fn label(scene: &Scene, grid: &Grid, unit: usize, y: u16, paint: &mut Paint<'_>) {
    let described = &scene.header.units[unit];
    let inside = |rank: &&RankSnapshot| rank.pass.is_some_and(|pass| usize::from(pass.unit) == unit);
    let active = scene.now.ranks.iter().find(inside).and_then(|rank| rank.pass);
    let style = active.map_or(bold(Color::Reset), |pass| bold(theme::pass_colour(pass.pass)));
    paint.text(0, y, fitted(&described.name, NAMES - 3), style);
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

/// What every rank holds now, below its cells: model states, and what it has gathered or not yet reduced.
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
        if passing > 0 && roomy {
            let short = format!("+ {}", words::short_bytes(passing));
            let long = format!("{short} for a while");
            let fits = x + 1 + columns(&long) <= part.width();
            part.text(x + 1, 0, if fits { long } else { short }, ink(DIM));
        }
    }
}

/// Slices that units are cut into: as many as ranks share one copy.
fn slots(scene: &Scene) -> usize {
    (scene.header.shard_group as usize).clamp(1, scene.now.ranks.len().max(1))
}

/// One rank's copy of one unit.
struct Cell {
    /// The slice that the rank owns, of so many.
    slot: usize,
    slots: usize,
    width: u16,
    x: u16,
    tall: u16,
    /// Whether the rank has set up its model states.
    held: bool,
}

impl Cell {
    /// The columns of the slice that the rank owns.
    fn own(&self) -> std::ops::Range<u16> {
        let (slot, slots, width) = (self.slot as u32, self.slots as u32, u32::from(self.width));
        let start = (slot * width / slots) as u16;
        let end = ((slot + 1) * width).div_ceil(slots) as u16;
        let width = self.width;
        start..end.max(start + 1).min(width.max(start + 1))
    }

    fn line(&self, y: u16, paint: &mut Paint<'_>, own: (&str, Style), rest: (&str, Style)) {
        let slice = self.own();
        for column in 0..self.width {
            let (symbol, style) = if slice.contains(&column) { own } else { rest };
            for row in 0..self.tall {
                paint.put(self.x + column, y + row, symbol, style);
            }
        }
    }

    fn parameters(&self, whole: bool, state: &UnitNow, y: u16, paint: &mut Paint<'_>) {
        let full = class_style(Class::Parameters);
        let gathered = class_style(Class::GatheredParameters);
        let rest = match (whole, state.gather, state.refreshing) {
            (true, _, true) => ("›", gathered.1),
            (true, ..) => full,
            (false, Gather::Gathered, _) => gathered,
            (false, Gather::Gathering, _) => ("›", gathered.1),
            (false, Gather::Released, _) => nothing(),
        };
        let own = if self.held { full } else { nothing() };
        self.line(y, paint, own, if self.held { rest } else { nothing() });
    }

    fn gradients(&self, scene: &Scene, state: &UnitNow, y: u16, paint: &mut Paint<'_>) {
        let sharded = scene.header.sharded;
        let (summed, local) = (class_style(Class::Gradients), class_style(Class::CommunicationBuckets));
        let own_copy = if sharded.gradients { local } else { ("△", summed.1) };
        let everywhere = !sharded.optimizer;
        let (own, rest) = match state.gradient {
            Gradient::Absent => (nothing(), nothing()),
            Gradient::Local => (own_copy, own_copy),
            Gradient::Reducing => (("›", own_copy.1), ("›", own_copy.1)),
            Gradient::Reduced if everywhere => (summed, summed),
            Gradient::Reduced => (summed, nothing()),
        };
        self.line(y, paint, own, rest);
    }

    fn optimizer(&self, scene: &Scene, y: u16, paint: &mut Paint<'_>) {
        let full = if self.held { class_style(Class::Optimizer) } else { nothing() };
        let rest = if scene.header.sharded.optimizer { nothing() } else { full };
        self.line(y, paint, full, rest);
    }
}

fn class_style(class: Class) -> (&'static str, Style) {
    (class_glyph(class), ink(class_colour(class)))
}

fn nothing() -> (&'static str, Style) {
    ("·", ink(FAINT))
}

/// What the symbols mean, and what a rank keeps between steps.
fn key(scene: &Scene, paint: &mut Paint<'_>) {
    let (parameters, gradients) = (ink(class_colour(Class::Parameters)), ink(class_colour(Class::Gradients)));
    let (gathered, bucket) =
        (ink(class_colour(Class::GatheredParameters)), ink(class_colour(Class::CommunicationBuckets)));
    let bucket = if scene.header.sharded.gradients { bucket } else { gradients };
    type Entries<'a> = &'a [(&'a str, Style, &'a str)];
    let rows: [(&str, Entries<'_>); 3] = [
        (
            "parameters",
            &[
                ("■", parameters, "kept"),
                ("□", gathered, "gathered for a while"),
                ("›", gathered, "on their way"),
            ],
        ),
        (
            "gradients",
            &[
                ("△", bucket, "this rank's own, not summed"),
                ("›", bucket, "being summed"),
                ("▲", gradients, "summed over ranks"),
            ],
        ),
        (
            "optimizer",
            &[("●", ink(class_colour(Class::Optimizer)), "states kept"), ("·", ink(FAINT), "nothing here")],
        ),
    ];
    for (y, (line, entries)) in (0u16..).zip(rows) {
        paint.text(0, y, line, ink(DIM));
        let mut x = NAMES;
        for (glyph, style, meaning) in entries {
            x = paint.text(x, y, glyph, *style);
            x = paint.text(x + 1, y, meaning, ink(DIM)) + 3;
        }
    }
    let text = fitted(&owned(scene), paint.width());
    paint.text(0, 3, text, ink(DIM));
}

fn owned(scene: &Scene) -> String {
    let sharded = scene.header.sharded;
    let slots = slots(scene);
    let each = |yes: bool| if yes { format!("1/{slots}") } else { "all".into() };
    let groups = scene.now.ranks.len() / slots;
    if groups > 1 {
        return format!(
            "Between steps each rank keeps 1/{slots} of all model states; {groups} groups hold the same."
        );
    }
    format!(
        "Between steps each rank keeps {} of the parameters, {} of the gradients and {} of the optimizer states.",
        each(sharded.parameters),
        each(sharded.gradients),
        each(sharded.optimizer)
    )
}
