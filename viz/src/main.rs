//! `viz`: watch runs in other processes, replay and compare recordings, export pictures and traces.

use clap::FromArgMatches;
use events::say::counted;
use events::{Attachment, Growth, Recording, RecordingError, runs};
use screen::app::{App, EventSource};
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::{DisplayOptions, ScreenError, view, words};
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;
use std::error::Error;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use viz::cli::{Cli, Command, Export, Start, command, named};
use viz::export::{asciicast, svg, trace};
use viz::output::{self, CannotWrite};

/// Default speed in run seconds per real second.
const SPEED: f64 = 0.1;

/// The recording that ships with the program.
const SHIPPED: &[u8] = include_bytes!("../recordings/zero3.events");

fn main() -> ExitCode {
    // A write beyond `ulimit -f` then fails with an error that names the file. If the system
    // refuses that, the limit still ends the process.
    let _ = flag::register(SIGXFSZ, Arc::default());
    let cli = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = cli.unwrap_or_else(|error| shell::exit(&error));
    match run(cli) {
        Ok(()) => events::say::code(),
        Err(error) => {
            events::complain!("error: {error}");
            ExitCode::from(code(&*error))
        }
    }
}

/// Returns 1 if the program could not do its work, 2 if it was given the wrong flags, files or
/// environment.
fn code(error: &(dyn Error + 'static)) -> u8 {
    match error.downcast_ref() {
        Some(ScreenError::NoTerminal) => 2,
        Some(_) => 1,
        None if error.is::<CannotWrite>() => 1,
        None => 2,
    }
}

fn run(cli: Cli) -> Result<(), Box<dyn Error>> {
    let display = cli.display;
    match cli.command {
        None => {
            let recording = Recording::parse(Path::new("the shipped recording"), SHIPPED.to_vec())?;
            let start = Start { step: Some(1), speed: Some(0.05), paused: false, view: None };
            let app = begin(vec![Player::recorded(recording)?], &start)?;
            print_failure(screen::recorded(app, None, display))
        }
        Some(Command::Attach { run, control, view }) => {
            let named = |run: String| Ok(Some(runs::attach(&runs::directory(), &run)?));
            let Some(attachment) = run.map_or_else(only_run, named)? else { return list() };
            print_failure(screen::attached(vec![attachment], Vec::new(), control, Some(view), display))
        }
        Some(Command::Replay { file, follow: true, start }) => follow(&file, &start, display),
        Some(Command::Replay { file, start, .. }) => {
            print_failure(screen::recorded(begin(open(&[file])?, &start)?, None, display))
        }
        Some(Command::Compare { runs, start }) => compare(&runs, &start, display),
        Some(Command::Export(export)) => write_pictures(&export, display),
        Some(Command::Trace { file, out }) => write_trace(&file, &out),
        Some(Command::Shell(shell)) => {
            events::say!("{}", shell.text(command())?.trim_end());
            Ok(())
        }
    }
}

/// Prints the error message of a run that failed: the screen may have cut it off.
fn print_failure(failure: Result<Option<String>, ScreenError>) -> Result<(), Box<dyn Error>> {
    if let Some(message) = failure? {
        events::complain!("{}", events::say::visible(&message));
    }
    Ok(())
}

fn open(files: &[PathBuf]) -> Result<Vec<Player>, RecordingError> {
    files.iter().map(|file| Player::recorded(Recording::open(file)?)).collect()
}

/// True if `run` names a recording, also one that cannot be read, and not a run in progress. A
/// folder or socket with the name of a run is not taken for a recording.
fn is_recording(run: &Path) -> bool {
    fs::metadata(run).is_ok_and(|found| !found.is_dir() && !found.file_type().is_socket())
}

/// Compares `runs`: files are recordings, other names are runs in progress.
fn compare(runs: &[PathBuf], start: &Start, display: DisplayOptions) -> Result<(), Box<dyn Error>> {
    let (files, names): (Vec<PathBuf>, Vec<PathBuf>) =
        runs.iter().cloned().partition(|run| is_recording(run));
    if names.is_empty() {
        return print_failure(screen::recorded(begin(open(&files)?, start)?, None, display));
    }
    let recorded = open(&files)?;
    let attach = |run: &PathBuf| {
        runs::attach(&runs::directory(), &run.to_string_lossy())
            .map_err(|error| format!("{} is not a file, and {error}", run.display()))
    };
    let attached = names.iter().map(attach).collect::<Result<Vec<_>, _>>()?;
    if start.step.is_some() || start.speed.is_some() || start.paused {
        let run = names[0].display();
        let what = format!("{run} is a run in progress: --step, --speed and --paused are for recordings");
        return Err(what.into());
    }
    print_failure(screen::attached(attached, recorded, false, start.view, display))
}

/// Returns the run in progress if there is exactly one and a terminal to show it in.
fn only_run() -> Result<Option<Attachment>, Box<dyn Error>> {
    let runs = if screen::terminal_available() { runs::list(&runs::directory())? } else { Vec::new() };
    Ok(<[_; 1]>::try_from(runs).ok().map(|[run]| run.attachment))
}

fn list() -> Result<(), Box<dyn Error>> {
    let mut runs = runs::list(&runs::directory())?;
    if runs.is_empty() {
        events::say!("nothing is running now; every training run can be followed while it runs");
        return Ok(());
    }
    let titles = ["run", "stage", "model", "ranks", "step", "loss", "for", "device"].map(String::from);
    let mut rows: Vec<[String; 8]> = runs.iter_mut().map(described).collect();
    rows.insert(0, titles);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        events::say!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    events::say!("\nviz attach NAME shows one of them; a prefix that no other name has is enough");
    Ok(())
}

/// Returns a run's row in the list.
fn described(run: &mut runs::ListedRun) -> [String; 8] {
    let (step, loss) = match run.latest_step() {
        Some(latest) => (latest.step.saturating_add(1), format!("{:.4}", latest.loss)),
        None => (0, "–".into()),
    };
    let Attachment { name, header, .. } = &run.attachment;
    // A model may be a path; its file's name suffices.
    let model = header.model.rsplit('/').next().unwrap_or(&header.model);
    [
        name.clone(),
        header.stage.clone(),
        model.into(),
        header.world_size.to_string(),
        format!("{step} of {}", words::grouped(header.steps.into())),
        loss,
        words::age(run.age),
        header.device.clone(),
    ]
}

/// Plays a growing recording, from its latest event unless `start` names a step.
fn follow(file: &Path, start: &Start, display: DisplayOptions) -> Result<(), Box<dyn Error>> {
    let (recording, growth) = Growth::open(file)?;
    let player = Player::new(Timeline::followed(recording)?, Motion::Paused);
    let mut app = begin(vec![player], start)?;
    if start.step.is_none() && !start.paused {
        app.players[0].set_motion(Motion::Following);
    }
    print_failure(screen::recorded(app, Some(growth), display))
}

fn begin(mut players: Vec<Player>, start: &Start) -> Result<App, Box<dyn Error>> {
    players[0].set_speed(start.speed.unwrap_or(SPEED));
    if let Some(step) = start.step {
        let step = players[0].check_step(step.into()).map_err(|error| named(&players, error))?;
        players[0].seek_step(step);
    }
    if !start.paused {
        players[0].set_motion(Motion::Playing);
    }
    let mut app = App::new(players, EventSource::Recording);
    if let Some(view) = start.view {
        app.view = view;
    }
    Ok(app)
}

fn write_pictures(export: &Export, display: DisplayOptions) -> Result<(), Box<dyn Error>> {
    let mut outputs = [&export.svg, &export.cast].into_iter().flatten();
    outputs.try_for_each(|out| output::check(&export.moment.files, out))?;
    if let (Some(svg), Some(cast)) = (&export.svg, &export.cast) {
        output::check_distinct(("--svg", svg), ("--cast", cast))?;
    }
    let open_and_warn = |file: &PathBuf| Recording::open(file).inspect(warn).and_then(Player::recorded);
    let players = export.moment.files.iter().map(open_and_warn).collect::<Result<Vec<_>, _>>()?;
    let mut app = export.moment.app(players)?;
    let (width, height) = export.size;
    let theme = Theme { depth: display.depth.unwrap_or(Theme::FULL.depth), ascii: display.ascii };
    if let Some(out) = &export.svg {
        output::write(out, &svg::render(&view::picture(&app, theme, width, height)))?;
    }
    if let Some(out) = &export.cast {
        export.moment.seek(&mut app.players[0], 0.0)?;
        app.sync_runs();
        output::write(out, &asciicast::render(app, theme, export.size, export.seconds, export.speed)?)?;
    }
    Ok(())
}

fn write_trace(file: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    output::check(&[file], out)?;
    let recording = Recording::open(file)?;
    warn(&recording);
    Ok(output::write(out, &trace::render(&recording)?)?)
}

/// Prints a warning if a recording ends early, and one if it is damaged. The screen shows this,
/// exported files do not.
fn warn(recording: &Recording) {
    if !recording.gaps().is_empty() {
        events::complain!(
            "warning: {} of the recording {} are damaged and were skipped: events are missing in {}; after each gap the display is incomplete until the next full step",
            words::bytes(recording.damaged_bytes()),
            recording.path().display(),
            counted(recording.gaps().len(), "place", "places"),
        );
    }
    if !recording.is_complete() {
        events::complain!(
            "warning: the recording {} ends early: its run was killed or is still running; frames up to the last complete one are used",
            recording.path().display()
        );
    }
}
