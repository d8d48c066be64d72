//! `viz`: watch runs in other processes, replay and compare recordings, export pictures and traces.

use clap::{Args, Parser, Subcommand};
use events::{Recording, runs};
use std::error::Error;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use viz::app::{App, Source};
use viz::export::{asciicast, svg, trace};
use viz::player::{Motion, Player, SLOWEST};
use viz::timeline::Timeline;
use viz::{DisplayOptions, View, view, words};

/// The recording that ships with the program.
const SHIPPED: &[u8] = include_bytes!("../recordings/zero3.events");

/// Watch sharded training: memory and collectives of every rank. Without a command, plays a recording that ships with
/// the program.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    display: DisplayOptions,
}

#[derive(Subcommand)]
enum Command {
    /// Follow a run in another process, undisturbed; without a name, list the runs there are
    Attach {
        /// The run's name, or its beginning
        run: Option<String>,
        /// Allow this screen to pause, slow down and step the run
        #[arg(long)]
        control: bool,
        /// The view to begin with
        #[arg(long, default_value = "overview")]
        view: View,
    },
    /// Play a recording
    Replay {
        /// The recording
        file: PathBuf,
        #[command(flatten)]
        start: Start,
    },
    /// Show two to four recordings, or runs in other processes, side by side, locked to the same step and phase
    Compare {
        /// Recordings' files and runs' names, in any mixture; the runs come first
        #[arg(num_args = 2..=4, required = true)]
        runs: Vec<PathBuf>,
        #[command(flatten)]
        start: Start,
    },
    /// Draw a moment of a recording as SVG, or a stretch of it as an asciicast
    Export(Export),
    /// Write a recording as a trace for Chrome's or Perfetto's viewer
    Trace {
        /// The recording
        file: PathBuf,
        /// The trace to write
        out: PathBuf,
    },
}

/// Where playing begins.
#[derive(Args)]
struct Start {
    /// The step to begin with, from 1
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    step: u32,
    /// Run seconds per real second, 0.001 to 1
    #[arg(long, default_value_t = 0.1, value_parser = number(SPEEDS))]
    speed: f64,
    /// Do not play until told to
    #[arg(long)]
    paused: bool,
    /// The view to begin with
    #[arg(long)]
    view: Option<View>,
}

#[derive(Args)]
struct Export {
    /// The recordings: one, or up to four to compare
    #[arg(num_args = 1..=4, required = true)]
    files: Vec<PathBuf>,
    /// The view
    #[arg(long, default_value = "overview")]
    view: View,
    /// The step, from 1
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    step: u32,
    /// How far into the step, from 0 to 1
    #[arg(long, default_value_t = 0.5, value_parser = number(0.0..=1.0))]
    at: f64,
    /// The rank that single-rank views show
    #[arg(long, default_value_t = 0)]
    rank: usize,
    /// Columns and rows
    #[arg(long, default_value = "120x40", value_parser = size)]
    size: (u16, u16),
    /// Write a picture
    #[arg(long, value_name = "OUT", required_unless_present = "cast")]
    svg: Option<PathBuf>,
    /// Write an asciicast from the step on
    #[arg(long, value_name = "OUT")]
    cast: Option<PathBuf>,
    /// Seconds of the asciicast, up to an hour
    #[arg(long, default_value_t = 20.0, value_parser = number(0.0..=3600.0))]
    seconds: f64,
    /// Run seconds per second of the asciicast, 0.001 to 1
    #[arg(long, default_value_t = 0.01, value_parser = number(SPEEDS))]
    speed: f64,
}

/// Run seconds per real second.
const SPEEDS: RangeInclusive<f64> = SLOWEST..=1.0;

fn number(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("write a number from {} to {}", range.start(), range.end()))
    }
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parts =
        text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    parts
        .filter(|&(width, height)| (1..=1000).contains(&width) && (1..=1000).contains(&height))
        .ok_or_else(|| format!("{text} is no size: columns and rows, such as 120x40, up to 1000 each"))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            events::complain!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<(), Box<dyn Error>> {
    let display = cli.display;
    match cli.command {
        None => {
            let recording = Recording::parse(Path::new("the shipped recording"), SHIPPED.to_vec())?;
            let start = Start { step: 1, speed: 0.05, paused: false, view: None };
            Ok(viz::recorded(play(vec![recording], &start)?, display)?)
        }
        Some(Command::Attach { run: None, .. }) => list(),
        Some(Command::Attach { run: Some(run), control, view }) => {
            let attachment = runs::attach(&runs::directory(), &run)?;
            Ok(viz::attached(vec![attachment], Vec::new(), control, Some(view), display)?)
        }
        Some(Command::Replay { file, start }) => {
            Ok(viz::recorded(play(vec![Recording::open(&file)?], &start)?, display)?)
        }
        Some(Command::Compare { runs, start }) => compare(&runs, &start, display),
        Some(Command::Export(export)) => write_pictures(&export, display),
        Some(Command::Trace { file, out }) => write_trace(&file, &out),
    }
}

fn open(files: &[PathBuf]) -> Result<Vec<Recording>, events::RecordingError> {
    files.iter().map(|file| Recording::open(file)).collect()
}

/// Each of `runs` is a recording if there is such a file, else a run that goes on.
fn compare(runs: &[PathBuf], start: &Start, display: DisplayOptions) -> Result<(), Box<dyn Error>> {
    let (files, names): (Vec<PathBuf>, Vec<PathBuf>) = runs.iter().cloned().partition(|run| run.exists());
    if names.is_empty() {
        return Ok(viz::recorded(play(open(&files)?, start)?, display)?);
    }
    let recorded = players(open(&files)?)?;
    let attach = |run: &PathBuf| {
        runs::attach(&runs::directory(), &run.to_string_lossy())
            .map_err(|error| format!("{} is no file, and {error}", run.display()))
    };
    let attached = names.iter().map(attach).collect::<Result<Vec<_>, _>>()?;
    Ok(viz::attached(attached, recorded, false, start.view, display)?)
}

fn list() -> Result<(), Box<dyn Error>> {
    let runs = runs::list(&runs::directory())?;
    if runs.is_empty() {
        events::say!("nothing is running now; every training run can be followed while it lasts");
    }
    let rows: Vec<[String; 6]> = runs.iter().map(|run| described(&run.name, &run.header)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        events::say!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    if !rows.is_empty() {
        events::say!("\nviz attach NAME, or as much of a name as no other run shares, shows one of them");
    }
    Ok(())
}

/// A run in a row of the list.
fn described(name: &str, header: &events::RunHeader) -> [String; 6] {
    // A model that is a file: its name says enough.
    let model = header.model.rsplit('/').next().unwrap_or(&header.model);
    [
        name.into(),
        header.stage.clone(),
        model.into(),
        words::counted(header.world_size, "rank"),
        words::counted(header.steps, "step"),
        header.device.clone(),
    ]
}

/// Refuses a step that `player` does not have.
fn check_step(player: &Player, step: u32) -> Result<(), String> {
    let last = player.timeline().marks().back().map_or(1, |mark| mark.step + 1);
    if step <= last {
        Ok(())
    } else {
        Err(format!("there is no step {step}: the recording has steps 1 to {last}"))
    }
}

fn players(recordings: Vec<Recording>) -> Result<Vec<Player>, events::RecordingError> {
    let player =
        |recording| Timeline::recorded(recording).map(|timeline| Player::new(timeline, Motion::Standing));
    recordings.into_iter().map(player).collect()
}

fn play(recordings: Vec<Recording>, start: &Start) -> Result<App, Box<dyn Error>> {
    let mut players = players(recordings)?;
    check_step(&players[0], start.step)?;
    players[0].set_speed(start.speed);
    if start.step > 1 {
        players[0].seek_step(start.step - 1);
    }
    if !start.paused {
        players[0].set_motion(Motion::Playing);
    }
    let mut app = App::new(players, Source::Recording);
    if let Some(view) = start.view {
        app.view = view;
    }
    Ok(app)
}

fn write_pictures(export: &Export, display: DisplayOptions) -> Result<(), Box<dyn Error>> {
    let recordings = open(&export.files)?;
    recordings.iter().for_each(tell_of_early_end);
    let mut players = players(recordings)?;
    check_step(&players[0], export.step)?;
    players[0].seek_into_step(export.step - 1, export.at);
    let mut app = App::new(players, Source::Recording);
    (app.view, app.rank) = (export.view, export.rank);
    let ranks = app.player().scene().header.world_size as usize;
    if export.rank >= ranks {
        return Err(format!("there is no rank {}: the run has ranks 0 to {}", export.rank, ranks - 1).into());
    }
    let (width, height) = export.size;
    let theme = viz::theme::Theme { ascii: display.ascii, ..viz::theme::Theme::FULL };
    let theme = viz::theme::Theme { depth: display.depth.unwrap_or(theme.depth), ..theme };
    if let Some(out) = &export.svg {
        write(out, &svg::render(&view::picture(&app, theme, width, height)))?;
    }
    if let Some(out) = &export.cast {
        write(out, &asciicast::render(app, theme, export.size, export.seconds, export.speed)?)?;
    }
    Ok(())
}

fn write_trace(file: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let recording = Recording::open(file)?;
    tell_of_early_end(&recording);
    write(out, &trace::render(&recording)?)
}

/// What a screen shows beside the run, and a file that is written cannot.
fn tell_of_early_end(recording: &Recording) {
    if !recording.is_complete() {
        events::complain!(
            "warning: the recording {} ends early: its run was killed, or goes on; all up to its last whole frame is there",
            recording.path().display()
        );
    }
}

fn write(out: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    fs::write(out, text).map_err(|error| format!("cannot write {}: {error}", out.display()).into())
}
