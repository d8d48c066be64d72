//! Frames of the visualizer.

use clap::Parser;
use events::Recording;
use std::path::{Path, PathBuf};
use trainer::{Failure, Result};
use viz::app::{App, EventSource};
use viz::export::svg;
use viz::player::{Motion, Player};
use viz::theme::Theme;
use viz::timeline::Timeline;
use viz::{View, view};

/// A moment of recordings, as `viz export` takes it.
#[derive(Parser, Debug)]
#[command(no_binary_name = true)]
pub(super) struct Picture {
    /// Its name: of the file, without `.svg`.
    pub(super) name: String,
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    #[arg(long, default_value = "overview")]
    view: View,
    #[arg(long, default_value_t = 1)]
    step: u32,
    #[arg(long, default_value_t = 0.5)]
    at: f64,
    #[arg(long, default_value_t = 0)]
    rank: usize,
    #[arg(long, default_value_t = 110)]
    columns: u16,
    #[arg(long, default_value_t = 32)]
    rows: u16,
}

impl Picture {
    /// Reads a name, recordings and flags.
    ///
    /// # Errors
    /// If they make no sense.
    pub(super) fn parse(arguments: &str) -> Result<Self> {
        Picture::try_parse_from(arguments.split_whitespace())
            .map_err(|e| Failure::run(format!("picture: {arguments}: {e}")))
    }

    /// The frame as SVG.
    ///
    /// # Errors
    /// If a recording cannot be read.
    pub(super) fn draw(&self, root: &Path) -> Result<String> {
        let open = |file: &PathBuf| -> std::result::Result<Player, events::RecordingError> {
            let timeline = Timeline::recorded(Recording::open(&root.join(file))?)?;
            Ok(Player::new(timeline, Motion::Standing))
        };
        let players: std::result::Result<Vec<Player>, _> = self.recordings.iter().map(open).collect();
        let mut players = players.map_err(|e| Failure::run(e.to_string()))?;
        players[0].seek_into_step(self.step, self.at);
        let mut app = App::new(players, EventSource::Recording);
        (app.view, app.rank) = (self.view, self.rank);
        Ok(svg::render(&view::picture(&app, Theme::FULL, self.columns, self.rows)))
    }
}
