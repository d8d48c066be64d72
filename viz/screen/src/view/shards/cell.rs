//! Draws the slices that one rank holds of one unit: a line each for parameters, gradients and
//! optimizer states.

use super::{class_style, nothing, place_style, room};
use crate::fit;
use crate::groups::{self, RankGroup};
use crate::places;
use crate::player::Scene;
use crate::theme::{class_colour, ink};
use crate::view::paint::Paint;
use events::units::{GatherState, GradientState, UnitState};
use events::{Class, Place, RankSnapshot};
use ratatui::style::Style;
use std::ops::Range;

type Symbol = (&'static str, Style);

/// One of `of` equal slices of a unit.
#[derive(Clone, Copy)]
pub(super) struct UnitSlice {
    number: usize,
    of: usize,
}

impl UnitSlice {
    /// Returns the slice that a rank owns.
    pub(super) fn owned(scene: &Scene, rank: usize) -> Self {
        let slots = slots(scene);
        UnitSlice { number: rank % slots, of: slots }
    }

    /// Returns the larger, secondary slice that a rank keeps so that backward can gather from
    /// neighbours (hpZ). A smaller group of neighbours shares this copy.
    pub(super) fn secondary(scene: &Scene, rank: usize) -> Option<Self> {
        let joined = scene.now.ranks[rank].groups.iter().filter(|_| scene.header.sharded.parameters);
        let smaller = |groups: &Vec<RankGroup>| {
            groups::are_neighbours(groups) && groups.iter().all(|group| group.ranks.len() < slots(scene))
        };
        let groups = joined.map(|group| groups::created_with(&scene.now, group.number)).find(smaller)?;
        let members = &groups::of_rank(&groups, rank)?.ranks;
        let number = members.iter().position(|&member| member == rank)?;
        Some(UnitSlice { number, of: members.len() })
    }

    /// Returns the number of slices that make up a copy.
    pub(super) fn of(self) -> usize {
        self.of
    }
}

/// Returns the number of slices of a unit: the number of ranks that share one copy.
pub(super) fn slots(scene: &Scene) -> usize {
    (scene.header.shard_group as usize).clamp(1, scene.now.ranks.len().max(1))
}

/// The place of one rank's copy of one unit on the screen.
pub(super) struct UnitCell<'a> {
    pub(super) scene: &'a Scene,
    pub(super) rank: usize,
    pub(super) unit: usize,
    /// Its first column and its width.
    pub(super) x: u16,
    pub(super) width: u16,
    /// Rows per line.
    pub(super) tall: u16,
}

impl UnitCell<'_> {
    /// Draws the three lines from row `y` on.
    pub(super) fn draw(&self, y: u16, paint: &mut Paint<'_>) {
        let state = self.now().units.units.get(self.unit).copied().unwrap_or_default();
        self.parameters(&state, y, paint);
        self.gradients(&state, y + self.tall, paint);
        self.optimizer(y + 2 * self.tall, paint);
    }

    fn now(&self) -> &RankSnapshot {
        &self.scene.now.ranks[self.rank]
    }

    /// True if the rank has allocated its model states.
    fn held(&self) -> bool {
        self.now().peak.iter().any(|classes| classes[Class::Parameters.index()] > 0)
    }

    /// Returns the symbol of the bytes of `class` stored in `place`: an arrow while they are in
    /// flight.
    fn resting(&self, class: Class, place: Place) -> Symbol {
        let ours = |unit: u16| usize::from(unit) == self.unit;
        let flight = places::flight(self.now(), |event| event.class == class && ours(event.unit));
        flight.map_or_else(
            || place_style(class, place),
            |flight| (places::arrow(flight.event.route), ink(class_colour(class))),
        )
    }

    /// Draws a line. A column shows the symbol of the first of `parts` that contains it, else
    /// `rest`.
    fn line(&self, y: u16, paint: &mut Paint<'_>, parts: &[(UnitSlice, Symbol)], rest: Symbol) {
        let parts: Vec<(Range<u16>, Symbol)> = parts
            .iter()
            .map(|(slice, symbol)| (fit::slice(slice.number, slice.of, self.width), *symbol))
            .collect();
        for column in 0..self.width {
            let part = parts.iter().find(|(columns, _)| columns.contains(&column));
            let (symbol, style) = part.map_or(rest, |(_, symbol)| *symbol);
            (0..self.tall).for_each(|row| paint.put(self.x + column, y + row, symbol, style));
        }
    }

    fn parameters(&self, state: &UnitState, y: u16, paint: &mut Paint<'_>) {
        let header = &self.scene.header;
        let stays = header.units[self.unit].persistent;
        let whole = stays || !header.sharded.parameters;
        let (full, gathered) = (class_style(Class::Parameters), class_style(Class::GatheredParameters));
        let rest = match (whole, state.gather, state.refreshing) {
            _ if !self.held() => nothing(),
            (true, _, true) => ("›", gathered.1),
            (true, ..) => full,
            (false, GatherState::Gathered, _) => gathered,
            (false, GatherState::Gathering, _) => ("›", gathered.1),
            (false, GatherState::Released, _) => nothing(),
        };
        let place = if stays { Place::Device } else { header.offload.place(Class::Parameters) };
        let own = if self.held() { self.resting(Class::Parameters, place) } else { nothing() };
        let mut parts = vec![(UnitSlice::owned(self.scene, self.rank), own)];
        if let Some(slice) = UnitSlice::secondary(self.scene, self.rank).filter(|_| self.held() && !whole) {
            parts.push((slice, second_copy()));
        }
        self.line(y, paint, &parts, rest);
    }

    fn gradients(&self, state: &UnitState, y: u16, paint: &mut Paint<'_>) {
        let sharded = self.scene.header.sharded;
        let (kept, local) = (class_style(Class::Gradients), class_style(Class::CommunicationBuckets));
        let own_copy = if sharded.gradients { local } else { ("△", kept.1) };
        let away = self.now().live[Place::Host.index()][Class::Gradients.index()] > 0;
        let empty = if away || self.now().live_of(Class::Gradients) > 0 { room() } else { nothing() };
        let others = if sharded.gradients { nothing() } else { empty };
        let (own, rest) = match state.gradient {
            GradientState::Absent => (empty, others),
            GradientState::Local => (own_copy, own_copy),
            GradientState::Reducing => (("›", own_copy.1), ("›", own_copy.1)),
            GradientState::Reduced => {
                let place = if away { Place::Host } else { Place::Device };
                let summed = self.resting(Class::Gradients, place);
                (summed, if sharded.optimizer { others } else { summed })
            }
        };
        self.line(y, paint, &[(UnitSlice::owned(self.scene, self.rank), own)], rest);
    }

    fn optimizer(&self, y: u16, paint: &mut Paint<'_>) {
        let place = self.scene.header.offload.place(Class::Optimizer);
        let full = if self.held() { self.resting(Class::Optimizer, place) } else { nothing() };
        let rest = if self.scene.header.sharded.optimizer { nothing() } else { full };
        self.line(y, paint, &[(UnitSlice::owned(self.scene, self.rank), full)], rest);
    }
}

/// Returns the symbol of a secondary slice of the parameters.
pub(super) fn second_copy() -> Symbol {
    ("▪", ink(class_colour(Class::Parameters)))
}
