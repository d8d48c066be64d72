//! The metrics of a rank that are compared between runs.

use super::difference::sent;
use crate::app::App;
use crate::player::Player;
use crate::{places, words};
use events::Place;

/// A row of the table of metrics.
#[derive(Clone, Copy)]
pub(super) enum CompareMetric {
    /// Bytes on the device now.
    Live,
    /// The peak of all bytes on the device.
    Peak,
    /// Bytes in main memory or on disk now.
    In(Place),
    /// Bytes sent in the last finished step.
    Sent,
    /// Bytes moved between places in the last finished step.
    Moved,
    TokensPerSecond,
    Loss,
    StepTime,
}

impl CompareMetric {
    /// Returns the metrics of `app`'s runs, the most important ones first: those of main memory and
    /// disk only if a run uses them.
    pub(super) fn shown(app: &App) -> Vec<Self> {
        let used = app.players.iter().map(|player| places::used(&player.scene().header));
        let used = used.max_by_key(|places| places.len()).unwrap_or_default();
        let mut metrics = vec![Self::Live, Self::Peak];
        metrics.extend(used.iter().map(|&place| Self::In(place)));
        metrics.push(Self::Sent);
        metrics.extend(Some(Self::Moved).filter(|_| !used.is_empty()));
        metrics.extend([Self::TokensPerSecond, Self::Loss, Self::StepTime]);
        metrics
    }

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Live => "live now",
            Self::Peak => "peak so far",
            Self::In(place) => places::within(place),
            Self::Sent => "sent per step",
            Self::Moved => "moved per step",
            Self::TokensPerSecond => "tokens/s, all ranks",
            Self::Loss => "loss, all ranks",
            Self::StepTime => "step time",
        }
    }

    /// Returns the value in `player`'s run; `None` if the run has no such rank, or has finished no
    /// step. The loss includes its step if that differs from the step of the `first` run.
    pub(super) fn value(self, player: &Player, first: &Player, rank: usize) -> Option<String> {
        let now = player.scene().now.ranks.get(rank);
        let step = player.steps_done().last();
        match self {
            Self::Live => now.map(|rank| words::bytes(rank.live_in(Place::Device))),
            Self::Peak => now.map(|rank| words::bytes(rank.total_peak)),
            Self::In(place) => now.map(|rank| words::bytes(rank.live_in(place))),
            Self::Sent => step.and(sent(player, rank)).map(|sent| words::bytes(sent.total())),
            Self::Moved => step.and(now).map(|rank| words::bytes(rank.transfers.last_step.total())),
            Self::TokensPerSecond => step.map(|record| words::count(record.tokens_per_second())),
            Self::Loss => step.filter(|_| !player.scene().header.is_predicted()).map(|record| {
                match first.steps_done().last() {
                    Some(first) if first.step != record.step => {
                        format!("step {} {:.3}", record.step, record.loss)
                    }
                    _ => format!("{:.6}", record.loss),
                }
            }),
            Self::StepTime => step.map(|record| words::time((record.seconds * 1e9) as u64)),
        }
    }
}
