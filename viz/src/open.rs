//! Ways to open the screen: on a run in this process, on one in another, on recordings.

use crate::app::{App, EventSource};
use crate::input::View;
use crate::player::{Motion, Player};
use crate::theme::{Depth, Theme};
use crate::timeline::Timeline;
use crate::ui::{self, Connection, VizError};
use events::{Attachment, Pace, Subscription};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the person wants of the terminal, where detection would decide otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct DisplayOptions {
    /// Colours of the terminal (found out unless given; NO_COLOR is obeyed)
    #[arg(long = "colors", value_name = "DEPTH")]
    pub depth: Option<Depth>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
}

impl DisplayOptions {
    /// What the terminal can show.
    pub fn theme(self) -> Theme {
        let detected = Theme::detect();
        Theme { depth: self.depth.unwrap_or(detected.depth), ascii: self.ascii || detected.ascii }
    }
}

/// How the screen on a run in this process begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveOptions {
    /// Hold the ranks at their first boundary.
    pub paused: bool,
    /// Run seconds per real second: 1 is free, 1/1000 the slowest.
    pub pace: f64,
    /// The view.
    pub view: View,
    /// The terminal.
    pub display: DisplayOptions,
}

impl Default for LiveOptions {
    fn default() -> Self {
        LiveOptions { paused: false, pace: 1.0, view: View::Overview, display: DisplayOptions::default() }
    }
}

impl LiveOptions {
    /// Sets `pace` as these options ask. Call it before ranks start, so that they are held from the first boundary on.
    pub fn prepare(&self, pace: &Pace) {
        pace.slow(self.pace);
        if self.paused {
            pace.pause();
        }
    }
}

/// Ends the run when the screen is left, however that happens.
struct Stopper {
    stop: Arc<AtomicBool>,
    pace: Arc<Pace>,
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.pace.cancel();
    }
}

/// Shows a run of this process until the person quits; the ranks run on other threads. If they quit before its end,
/// `stop` is set. The pace is cancelled in any case, so that no rank stays held.
///
/// # Errors
/// [`VizError`]. The terminal is as it was then, and `stop` is set.
pub fn live(
    subscription: Subscription,
    pace: Arc<Pace>,
    options: LiveOptions,
    stop: Arc<AtomicBool>,
) -> Result<(), VizError> {
    let _stopper = Stopper { stop, pace: pace.clone() };
    options.prepare(&pace);
    let timeline = Timeline::live(subscription.header.clone(), "");
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live);
    (app.view, app.held, app.pace) = (options.view, options.paused, options.pace);
    ui::run(app, Connection::Live(Box::new(subscription), pace), options.display.theme())
}

/// Shows runs of other processes until the person quits, beside each other and beside those that are `recorded` if there
/// are several; with `control`, they can be held.
///
/// # Errors
/// [`VizError`].
pub fn attached(
    runs: Vec<Attachment>,
    recorded: Vec<Player>,
    control: bool,
    view: Option<View>,
    display: DisplayOptions,
) -> Result<(), VizError> {
    let timeline = |run: &Attachment| Timeline::live(run.header().clone(), run.name());
    let going_on = runs.iter().map(|run| Player::new(timeline(run), Motion::Following));
    let players = going_on.chain(recorded).collect();
    let mut app = App::new(players, EventSource::Attached { control });
    app.view = view.unwrap_or(app.view);
    ui::run(app, Connection::Attached(runs), display.theme())
}

/// Plays one recording, or compares several.
///
/// # Errors
/// [`VizError`].
pub fn recorded(app: App, display: DisplayOptions) -> Result<(), VizError> {
    ui::run(app, Connection::None, display.theme())
}
