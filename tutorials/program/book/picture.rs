//! Frames of the visualizer.

use clap::Parser;
use events::{Boundary, EventBatch, Message, Recording};
use screen::app::App;
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::view;
use std::path::Path;
use trainer::{Failure, Result};
use viz::cli::Moment;
use viz::export::svg;

/// A moment of recordings, in the arguments of `viz export`.
#[derive(Parser, Debug)]
#[command(no_binary_name = true)]
pub(super) struct Picture {
    /// The name of the file, without `.svg`.
    pub(super) name: String,
    #[command(flatten)]
    moment: Moment,
    #[arg(long, default_value_t = 110)]
    columns: u16,
    #[arg(long, default_value_t = 32)]
    rows: u16,
    /// Words that one row of the frame must have, in this order, because the chapter mentions them
    #[arg(long)]
    shows: Vec<String>,
}

impl Picture {
    /// Parses a name, recordings and flags.
    pub(super) fn parse(arguments: &str) -> Result<Self> {
        Picture::try_parse_from(stages::split_arguments(arguments))
            .map_err(|e| Failure::run(format!("picture: {arguments}: {e}")))
    }

    /// Returns the frame as SVG, and its rows as text.
    ///
    /// # Errors
    /// If a recording cannot be read, or no row of the frame has the words of `--shows`.
    pub(super) fn draw(&self, root: &Path) -> Result<(String, Vec<String>)> {
        let frame = view::picture(&self.app(root)?, Theme::FULL, self.columns, self.rows);
        let cells = frame.content().chunks(self.columns.into());
        let rows: Vec<String> = cells.map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect();
        match self.shows.iter().find(|words| !rows.iter().any(|row| has_in_order(row, words))) {
            None => Ok((svg::render(&frame), rows)),
            Some(words) => Err(Failure::run(format!(
                "the picture {} does not show {words:?}:\n{}",
                self.name,
                rows.join("\n")
            ))),
        }
    }

    /// Returns the visualizer at the requested moment.
    fn app(&self, root: &Path) -> Result<App> {
        let players = self.moment.files.iter().map(|file| player(root, file));
        let mut app = self.moment.app(players.collect::<Result<_>>()?).map_err(Failure::run)?;
        if app.players.len() > 1 {
            // When a pass over a unit begins, rank 0 of every run is at the same line of its
            // program.
            app.players[0].step_back(Boundary::Unit);
            app.sync_runs();
        }
        Ok(app)
    }
}

/// What precedes the planner's flags where a picture shows a predicted run.
const PREDICTED: &str = "predicted:";

/// Returns the player of a recording, or of the predicted run that follows [`PREDICTED`].
fn player(root: &Path, file: &Path) -> Result<Player> {
    let Some(flags) = file.to_str().and_then(|name| name.strip_prefix(PREDICTED)) else {
        return Recording::open(&root.join(file)).and_then(Player::recorded).map_err(Failure::run);
    };
    let words =
        [&["planner".into()], &stages::split_arguments(flags)[..], &["--record".into(), "run".into()]];
    let run = planner::cli::predicted_run(words.concat()).map_err(Failure::run)?;
    let run = run.unwrap_or_else(|| unreachable!("the flags ask for a recording"));
    let mut timeline = Timeline::live(run.header, "");
    timeline.push(Message::Batch(EventBatch { dropped: 0, events: run.events }));
    timeline.push(Message::End);
    Ok(Player::new(timeline, Motion::Paused))
}

/// True if `row` contains all `words`, each after the previous one.
fn has_in_order(row: &str, words: &str) -> bool {
    let behind = |rest: &'_ str, word: &str| rest.find(word).map(|at| at + word.len());
    let mut rest = row;
    words.split_whitespace().all(|word| behind(rest, word).map(|at| rest = &rest[at..]).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::Class;

    const RECORDINGS: &str = "viz/tests/recordings/ddp.events viz/tests/recordings/zero1.events \
                              viz/tests/recordings/zero2.events viz/tests/recordings/zero3.events";

    #[test]
    fn stages_side_by_side_are_drawn_with_the_same_activations() {
        for at in [0.2, 0.4, 0.5, 0.6, 0.8] {
            let arguments = format!("name {RECORDINGS} --view compare --step 1 --at {at}");
            let app = Picture::parse(&arguments).unwrap().app(&crate::workspace::root()).unwrap();
            let activations = |player: &Player| player.scene().now.ranks[0].live_of(Class::Activations);
            let live: Vec<u64> = app.players.iter().map(activations).collect();
            assert!(live[0] > 0 && live.iter().all(|&bytes| bytes == live[0]), "at {at}: {live:?}");
        }
    }

    #[test]
    fn a_picture_that_does_not_show_what_the_chapter_says_is_refused() {
        let draw = |words: &str| {
            let arguments = format!("name viz/tests/recordings/ddp.events --step 1 --shows \"{words}\"");
            Picture::parse(&arguments).unwrap().draw(&crate::workspace::root())
        };
        assert!(draw("DDP 4 ranks step 1").is_ok());
        let far = Picture::parse("name viz/tests/recordings/ddp.events --step 99").unwrap();
        let missing = far.draw(&crate::workspace::root()).unwrap_err().to_string();
        assert!(missing.contains("there is no step 99"), "{missing}");
        for wrong in ["ZeRO-2", "tiny DDP"] {
            assert!(draw(wrong).unwrap_err().to_string().contains("does not show"), "{wrong}");
        }
    }
}
