//! Opens the screen: on a run in this process, on runs in other processes, on recordings.

use crate::app::{App, Departure, EventSource};
use crate::failure;
use crate::input::View;
use crate::player::{Motion, Player};
use crate::theme::{Depth, Theme};
use crate::timeline::Timeline;
use crate::ui::{self, Connection, ScreenError};
use events::{Attachment, Control, Growth, Pace, Subscription};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Options that override what the program detects about the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct DisplayOptions {
    /// Colours of the terminal (detected if not given; NO_COLOR is respected)
    #[arg(long = "colors", value_name = "DEPTH")]
    pub depth: Option<Depth>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
}

impl DisplayOptions {
    /// Returns the terminal's theme: detected, unless these options override it.
    pub fn theme(self) -> Theme {
        let detected = Theme::detect();
        Theme { depth: self.depth.unwrap_or(detected.depth), ascii: self.ascii || detected.ascii }
    }
}

/// The initial state of the screen on a run in this process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveOptions {
    /// Whether ranks are held at their first boundary.
    pub paused: bool,
    /// Run seconds per real second. At 1 the run is free; 1/1000 is the slowest.
    pub pace: f64,
    /// The view.
    pub view: View,
    /// Options for the terminal.
    pub display: DisplayOptions,
}

impl LiveOptions {
    /// Sets `pace` according to these options. Call it before ranks start, so that they are held
    /// from the first boundary on.
    pub fn prepare(&self, pace: &Pace) {
        pace.control(if self.paused { Control::Pause } else { Control::Slow(self.pace) });
    }
}

/// Ends the run when dropped, however the screen was left. Disarming it lets the run continue.
struct Stopper {
    stop: Arc<AtomicBool>,
    pace: Arc<Pace>,
    armed: bool,
}

impl Drop for Stopper {
    fn drop(&mut self) {
        if self.armed {
            self.stop.store(true, Ordering::Release);
            self.pace.cancel();
        }
    }
}

/// Shows a run of this process until the person leaves it. The ranks run on other threads, at the
/// pace that [`LiveOptions::prepare`] has set. On return no rank is held any more. `stop` is set,
/// unless the person has detached from the run.
///
/// # Errors
/// [`ScreenError`]. The terminal is restored and `stop` is set.
pub fn live(
    subscription: Subscription,
    pace: Arc<Pace>,
    options: LiveOptions,
    stop: Arc<AtomicBool>,
) -> Result<Departure, ScreenError> {
    let mut stopper = Stopper { stop, pace: pace.clone(), armed: true };
    let timeline = Timeline::live(subscription.header.clone(), "");
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live);
    (app.view, app.held, app.pace) = (options.view, options.paused, options.pace);
    let connection = Connection::Live(Box::new(subscription), pace.clone());
    let (departure, _) = ui::run(app, connection, options.display.theme())?;
    if departure == Departure::Detached {
        pace.control(Control::Resume);
        stopper.armed = false;
    }
    Ok(departure)
}

/// Shows runs of other processes until the person quits: several of them, and those that are
/// `recorded`, side by side. With `control`, this screen can hold them. Returns the error of a run
/// that was shown as failed when the screen was left.
///
/// # Errors
/// [`ScreenError`].
pub fn attached(
    runs: Vec<Attachment>,
    recorded: Vec<Player>,
    control: bool,
    view: Option<View>,
    display: DisplayOptions,
) -> Result<Option<String>, ScreenError> {
    let timeline = |run: &Attachment| Timeline::live(run.header.clone(), &run.name);
    let followed = runs.iter().map(|run| Player::new(timeline(run), Motion::Following));
    let players = followed.chain(recorded).collect();
    let mut app = App::new(players, EventSource::Attached { control });
    app.view = view.unwrap_or(app.view);
    watch(app, Connection::Attached(runs), display)
}

/// Plays one recording, or compares several. `growth` is the file of one that may still grow.
/// Returns the error of a run that was shown as failed when the screen was left.
///
/// # Errors
/// [`ScreenError`].
pub fn recorded(
    app: App,
    growth: Option<Growth>,
    display: DisplayOptions,
) -> Result<Option<String>, ScreenError> {
    watch(app, Connection::Recorded(growth), display)
}

fn watch(app: App, connection: Connection, display: DisplayOptions) -> Result<Option<String>, ScreenError> {
    let (_, app) = ui::run(app, connection, display.theme())?;
    Ok(failure::shown(&app.player().scene().now).map(|failure| failure.message.to_string()))
}
