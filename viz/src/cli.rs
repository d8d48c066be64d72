//! The command line of the program.

use clap::{Args, Parser, Subcommand};
use screen::app::{App, EventSource};
use screen::player::{FASTEST, Player, SLOWEST};
use screen::{DisplayOptions, View};
use shell::{ShellCommand, whole};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Watch sharded training: memory and collectives of every rank. Without a command, plays a
/// recording that is part of the program.
#[derive(Debug, Parser)]
#[command(name = "viz", version = env!("VERSION"))]
pub struct Cli {
    /// The command; without one, the shipped recording plays.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of the terminal.
    #[command(flatten)]
    pub display: DisplayOptions,
}

/// Returns the definition of the command line. Flags about the terminal may be given before or
/// after the command.
pub fn command() -> clap::Command {
    let anywhere = |arg: clap::Arg| arg.global(true);
    shell::command::<Cli>().mut_arg("depth", anywhere).mut_arg("ascii", anywhere)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Follow a run in another process without disturbing it; without a name the only one, or list
    /// them
    Attach {
        /// The run's name, or a prefix of it
        run: Option<String>,
        /// Allow this screen to pause, slow down and step the run
        #[arg(long)]
        control: bool,
        /// The first view
        #[arg(long, default_value = "overview")]
        view: View,
    },
    /// Play a recording
    Replay {
        /// The recording
        file: PathBuf,
        /// Keep reading while the file grows: FILE is the recording's final name, or its temporary
        /// one. Playback begins at the latest event unless --step is given
        #[arg(long)]
        follow: bool,
        /// Where playing begins
        #[command(flatten)]
        start: Start,
    },
    /// Show two to four recordings, or runs in other processes, side by side, locked to the same
    /// step and phase
    Compare {
        /// Files of recordings and names of runs, in any order; runs are shown first
        #[arg(num_args = 2..=4, required = true)]
        runs: Vec<PathBuf>,
        /// Where playing begins
        #[command(flatten)]
        start: Start,
    },
    /// Draw one moment of a recording as SVG, or a part of it as an asciicast
    Export(Export),
    /// Write a recording as a trace for Chrome's or Perfetto's viewer
    Trace {
        /// The recording
        file: PathBuf,
        /// The trace to write; - is standard output
        out: PathBuf,
    },
    /// Shell completions and manual pages.
    #[command(flatten)]
    Shell(ShellCommand),
}

/// Where playing begins.
#[derive(Debug, Args)]
pub struct Start {
    /// Step at which playback begins, counted from 0 [default: the first]
    #[arg(long, value_parser = whole::<u32>(0..=u32::MAX.into()))]
    pub step: Option<u32>,
    /// Playback speed, 0.001 to 100; 0.1 is ten times slower than the run [default: 0.1]
    #[arg(long, value_parser = number(SPEEDS))]
    pub speed: Option<f64>,
    /// Begin paused
    #[arg(long)]
    pub paused: bool,
    /// The first view
    #[arg(long)]
    pub view: Option<View>,
}

/// Returns `error`, an error about the first of `players`, with the name of its recording in front
/// if there are several.
pub fn named(players: &[Player], error: String) -> String {
    match players {
        [lead, _, ..] => format!("{}: {error}", lead.timeline().title),
        _ => error,
    }
}

/// One moment of recordings.
#[derive(Debug, Args)]
pub struct Moment {
    /// The recordings: one, or up to four to compare
    #[arg(num_args = 1..=4, required = true)]
    pub files: Vec<PathBuf>,
    /// The view [default: overview, or compare for several recordings]
    #[arg(long)]
    pub view: Option<View>,
    /// The step, counted from 0; otherwise the first one
    #[arg(long, value_parser = whole::<u32>(0..=u32::MAX.into()))]
    pub step: Option<u32>,
    /// How far into the step, from 0 to 1 [default: 0.5, and 0 where an asciicast begins]
    #[arg(long, value_parser = number(0.0..=1.0))]
    pub at: Option<f64>,
    /// The rank that single-rank views show
    #[arg(long, default_value_t = 0, value_parser = whole::<usize>(0..=u16::MAX.into()))]
    pub rank: usize,
}

impl Moment {
    /// Returns the visualizer at this moment of `players`, which play the files. Without `--at`
    /// that is the middle of the step.
    ///
    /// # Errors
    /// If the first run has no such step or no such rank.
    pub fn app(&self, mut players: Vec<Player>) -> Result<App, String> {
        self.seek(&mut players[0], 0.5).map_err(|error| named(&players, error))?;
        let ranks = players[0].scene().header.world_size as usize;
        if self.rank >= ranks {
            let last = ranks.saturating_sub(1);
            return Err(format!("there is no rank {}: the run has ranks 0 to {last}", self.rank));
        }
        let mut app = App::new(players, EventSource::Recording);
        (app.view, app.rank) = (self.view.unwrap_or(app.view), self.rank);
        Ok(app)
    }

    /// Moves `player` to this moment. `at` is the share of the step if `--at` is not given. A
    /// recording that ends before its first step shows its end.
    ///
    /// # Errors
    /// If the run has no such step.
    pub fn seek(&self, player: &mut Player, at: f64) -> Result<(), String> {
        let step = self.step.map(|step| player.check_step(step.into())).transpose()?;
        match step.or(player.first_step()) {
            Some(step) => player.seek_into_step(step, self.at.unwrap_or(at)),
            None => player.seek_share(1.0),
        }
        Ok(())
    }
}

/// The options of `viz export`.
#[derive(Debug, Args)]
pub struct Export {
    /// The moment to draw.
    #[command(flatten)]
    pub moment: Moment,
    /// Columns and rows
    #[arg(long, default_value = "120x40", value_parser = size)]
    pub size: (u16, u16),
    /// Write a picture; - is standard output
    #[arg(long, value_name = "OUT", required_unless_present = "cast")]
    pub svg: Option<PathBuf>,
    /// Write an asciicast that begins at the step
    #[arg(long, value_name = "OUT")]
    pub cast: Option<PathBuf>,
    /// Length of the asciicast in seconds, up to an hour
    #[arg(long, default_value_t = 20.0, value_parser = number(0.0..=3600.0))]
    pub seconds: f64,
    /// Run seconds per second of the asciicast, 0.001 to 100
    #[arg(long, default_value_t = 0.01, value_parser = number(SPEEDS))]
    pub speed: f64,
}

/// The speeds allowed, in run seconds per real second.
const SPEEDS: RangeInclusive<f64> = SLOWEST..=FASTEST;

/// Reads a number of `range`.
fn number(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
    }
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parts =
        text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    parts.filter(|&(width, height)| (80..=1000).contains(&width) && (24..=1000).contains(&height)).ok_or_else(
        || format!("{text} is not a size: write columns and rows, such as 120x40, from 80x24 to 1000x1000"),
    )
}
