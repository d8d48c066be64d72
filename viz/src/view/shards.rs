//! Who holds what: units × ranks, and in each cell the slices of parameters, gradients and optimizer states.
//!
//! A cell is the unit's flat buffer from left to right, cut into one slot per rank.

use super::paint::{Paint, fitted};
use crate::app::App;
use crate::player::Scene;
use crate::theme::{self, ACCENT, DIM, FAINT, bold, class_colour, class_glyph, ink};
use crate::words;
use events::units::{Gather, Gradient, UnitNow};
use events::{Class, RankSnapshot};
use ratatui::style::{Color, Style};

const LABEL: u16 = 14;

/// How cells are laid out.
struct Grid {
    first_rank: usize,
    ranks: usize,
    /// Columns per cell.
    cell: u16,
    gap: u16,
}

impl Grid {
    fn new(ranks: usize, chosen: usize, width: u16) -> Self {
        let room = width.saturating_sub(LABEL);
        let least = (ranks as u16).clamp(4, 8) + 1;
        let shown = ranks.min(usize::from(room / least)).max(1);
        let first_rank = (chosen / shown * shown).min(ranks - shown);
        let gap = if room / shown as u16 > 12 { 2 } else { 1 };
        let each = (room / shown as u16).saturating_sub(gap).max(1);
        let slots = ranks as u16;
        let cell = if each >= slots { each / slots * slots } else { each };
        Grid { first_rank, ranks: shown, cell: cell.min(slots * 12).max(1), gap }
    }

    fn columns(&self) -> impl Iterator<Item = (usize, u16)> + '_ {
        (0..self.ranks).map(|place| (self.first_rank + place, LABEL + place as u16 * (self.cell + self.gap)))
    }
}

/// Draws the view.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let grid = Grid::new(scene.now.ranks.len().max(1), app.rank, paint.width());
    header(app, &grid, paint);
    let units = scene.header.units.len();
    let room = paint.height().saturating_sub(1);
    let extras = 7;
    let each = if room >= units as u16 * 4 { 4 } else { 3 };
    let shown = usize::from((room / each).max(1)).min(units);
    let current = current_unit(scene).unwrap_or(0);
    let first = current.saturating_sub(shown / 2).min(units - shown);
    for place in 0..shown {
        let y = 1 + place as u16 * each;
        unit(scene, &grid, first + place, y, paint);
    }
    let used = 1 + shown as u16 * each;
    if paint.height() >= used + extras {
        let y = used + 1;
        let (width, height) = (paint.width(), paint.height() - y);
        key(scene, &mut paint.part(0, y, width, height));
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
    let described = &scene.header.units[unit];
    let inside = |rank: &&RankSnapshot| rank.pass.is_some_and(|pass| usize::from(pass.unit) == unit);
    let active = scene.now.ranks.iter().find(inside).and_then(|rank| rank.pass);
    let style = active.map_or(bold(Color::Reset), |pass| bold(theme::pass_colour(pass.pass)));
    paint.text(0, y, fitted(&described.name, LABEL - 3), style);
    if active.is_some() {
        paint.text(LABEL - 2, y, "▸", style);
    }
    if let Some(pass) = active {
        paint.text(0, y + 1, words::pass(pass.pass), ink(theme::pass_colour(pass.pass)));
    } else {
        paint.text(0, y + 1, words::count(described.parameters as f64), ink(DIM));
    }
    for (rank, x) in grid.columns() {
        let now = &scene.now.ranks[rank];
        let state = now.units.units.get(unit).copied().unwrap_or_default();
        let held = now.events_allocated();
        let cell = Cell { rank, ranks: scene.now.ranks.len(), width: grid.cell, x, held };
        cell.parameters(scene, &state, y, paint);
        cell.gradients(scene, &state, y + 1, paint);
        cell.optimizer(scene, y + 2, paint);
    }
}

/// Whether a rank has set up its model states.
trait Allocated {
    fn events_allocated(&self) -> bool;
}

impl Allocated for RankSnapshot {
    fn events_allocated(&self) -> bool {
        self.peak_of(Class::Parameters) > 0
    }
}

/// One rank's copy of one unit.
struct Cell {
    rank: usize,
    ranks: usize,
    width: u16,
    x: u16,
    held: bool,
}

impl Cell {
    /// The columns of the slice that the rank owns.
    fn own(&self) -> std::ops::Range<u16> {
        let (rank, ranks, width) = (self.rank as u16, self.ranks as u16, self.width);
        let start = (u32::from(rank) * u32::from(width) / u32::from(ranks)) as u16;
        let end = ((u32::from(rank) + 1) * u32::from(width)).div_ceil(u32::from(ranks)) as u16;
        start..end.max(start + 1).min(width.max(start + 1))
    }

    fn line(&self, y: u16, paint: &mut Paint<'_>, own: (&str, Style), rest: (&str, Style)) {
        let slice = self.own();
        for column in 0..self.width {
            let (symbol, style) = if slice.contains(&column) { own } else { rest };
            paint.put(self.x + column, y, symbol, style);
        }
    }

    fn parameters(&self, scene: &Scene, state: &UnitNow, y: u16, paint: &mut Paint<'_>) {
        let full = class_style(Class::Parameters);
        let gathered = class_style(Class::GatheredParameters);
        let rest = match (scene.header.sharded.parameters, state.gather, state.refreshing) {
            (false, _, true) => ("›", gathered.1),
            (false, ..) => full,
            (true, Gather::Gathered, _) => gathered,
            (true, Gather::Gathering, _) => ("›", gathered.1),
            (true, Gather::Released, _) => nothing(),
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

/// What the symbols mean, and what each rank holds in bytes.
fn key(scene: &Scene, paint: &mut Paint<'_>) {
    let (parameters, gradients) = (ink(class_colour(Class::Parameters)), ink(class_colour(Class::Gradients)));
    let (gathered, bucket) =
        (ink(class_colour(Class::GatheredParameters)), ink(class_colour(Class::CommunicationBuckets)));
    let bucket = if scene.header.sharded.gradients { bucket } else { gradients };
    let rows: [&[(&str, Style, &str)]; 3] = [
        &[
            ("■", parameters, "parameters kept"),
            ("□", gathered, "gathered for now"),
            ("›", gathered, "on their way"),
        ],
        &[
            ("▲", gradients, "gradients, summed over ranks"),
            ("△", bucket, "this rank's own, waiting for reduction"),
            ("›", bucket, "being reduced"),
        ],
        &[("●", ink(class_colour(Class::Optimizer)), "optimizer states"), ("·", ink(FAINT), "nothing here")],
    ];
    paint.heading(0, 0, "Key");
    for (y, row) in (1u16..).zip(rows) {
        let mut x = 0;
        for (glyph, style, meaning) in row {
            x = paint.text(x, y, glyph, *style);
            x = paint.text(x + 1, y, meaning, ink(DIM)) + 3;
        }
    }
    let text = fitted(&owned(scene), paint.width());
    paint.text(0, 5, text, ink(DIM));
}

fn owned(scene: &Scene) -> String {
    let sharded = scene.header.sharded;
    let each = |yes: bool| if yes { format!("1/{}", scene.header.world_size) } else { "all".into() };
    format!(
        "Between steps each rank keeps {} of the parameters, {} of the gradients and {} of the optimizer states.",
        each(sharded.parameters),
        each(sharded.gradients),
        each(sharded.optimizer)
    )
}
