//! Selects which ranks a list shows, and in which order.

use crate::app::App;
use crate::player::Scene;
use crate::ranking::RankOrder;

/// Some of the ranks, in the order that the person has chosen.
pub(super) struct RankPage {
    pub(super) ranks: Vec<usize>,
    /// The number of ranks before them.
    first: usize,
    of: usize,
    order: RankOrder,
}

impl RankPage {
    /// Returns the page of `shown` ranks that holds the selected one, of the run shown.
    pub(super) fn new(app: &App, shown: usize) -> Self {
        Self::of(app, app.player().scene(), shown)
    }

    /// Returns the page of `shown` ranks that holds the selected one, of the run of `scene`.
    pub(super) fn of(app: &App, scene: &Scene, shown: usize) -> Self {
        let mut ranks = app.order.ranks(scene);
        let (of, shown) = (ranks.len(), shown.clamp(1, ranks.len().max(1)));
        let place = ranks.iter().position(|&rank| rank == app.rank).unwrap_or(0);
        let first = (place / shown * shown).min(of.saturating_sub(shown));
        ranks = ranks.into_iter().skip(first).take(shown).collect();
        RankPage { ranks, first, of, order: app.order }
    }

    /// Returns a label that names the ranks on the page; empty if it shows all ranks by number.
    pub(super) fn label(&self) -> String {
        let (first, end) = (self.first, self.first + self.ranks.len());
        match self.order {
            RankOrder::Number if self.ranks.len() == self.of => String::new(),
            RankOrder::Number if end == first + 1 => format!("rank {first} of {} ↑↓", self.of),
            RankOrder::Number => format!("ranks {first} to {} of {} ↑↓", end - 1, self.of),
            RankOrder::Slowest if self.ranks.len() == self.of => "slowest first".into(),
            RankOrder::Slowest if end == first + 1 => format!("slowest first: {end} of {} ↑↓", self.of),
            RankOrder::Slowest => format!("slowest first: {} to {end} of {} ↑↓", first + 1, self.of),
        }
    }
}
