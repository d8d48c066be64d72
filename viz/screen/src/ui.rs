//! The main loop: reads messages, signals and keys, and draws pictures.

use crate::app::{App, Departure, Effect, EventSource};
use crate::input::{self, Input};
use crate::player::Motion;
use crate::terminal::Screen;
use crate::theme::Theme;
use crate::view;
use crossterm::event;
use events::{Attachment, Control, Growth, Message, Pace, Subscription, cpu};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGTSTP};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The reason why the screen was left or could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum ScreenError {
    /// The terminal cannot be used.
    #[error("cannot use the terminal: {0}")]
    Terminal(#[from] io::Error),
    /// Standard output is not a terminal, or there is none to read keys from.
    #[error(
        "viz needs an interactive terminal (stdout is not a terminal, TERM=dumb, or no keyboard input); viz export works without one"
    )]
    NoTerminal,
    /// Another thread of this process panicked.
    #[error("a thread panicked: {0}")]
    Panicked(String),
    /// The connection to the run is broken.
    #[error(transparent)]
    Attach(#[from] events::AttachError),
    /// The followed recording cannot be read any further.
    #[error(transparent)]
    Recording(#[from] events::RecordingError),
}

/// The connection to the runs shown: messages come from it, requests go to it.
pub(crate) enum Connection {
    /// Recordings, and the file of one that may still grow.
    Recorded(Option<Growth>),
    /// A run in this process.
    Live(Box<Subscription>, Arc<Pace>),
    /// Runs in other processes, in the players' order.
    Attached(Vec<Attachment>),
}

impl Connection {
    /// Returns new messages, by player.
    fn poll(&mut self) -> Result<Vec<Vec<Message>>, ScreenError> {
        match self {
            Connection::Recorded(_) => Ok(Vec::new()),
            Connection::Live(subscription, _) => Ok(vec![subscription.poll()]),
            Connection::Attached(runs) => runs.iter_mut().map(|run| Ok(run.poll()?)).collect(),
        }
    }

    /// Returns the bytes by which the recording has grown.
    fn grown(&mut self) -> Result<Vec<u8>, ScreenError> {
        match self {
            Connection::Recorded(Some(growth)) => Ok(growth.read_new()?),
            _ => Ok(Vec::new()),
        }
    }

    fn control(&mut self, control: Control) {
        match self {
            Connection::Recorded(_) => {}
            Connection::Live(_, pace) => pace.control(control),
            // If the run is gone, its messages end, which `poll` reports.
            Connection::Attached(runs) => runs.iter_mut().for_each(|run| drop(run.control(control))),
        }
    }

    /// Declares that this process is running: see [`Pace::runs`].
    fn mark_running(&self, at_least: Duration) {
        if let Connection::Live(_, pace) = self {
            pace.mark_running(at_least);
        }
    }
}

/// The shortest time between pictures: 15 a second.
const FRAME: Duration = Duration::from_millis(67);
/// The longest time between pictures of a run in progress.
const SLOWEST_FRAME: Duration = Duration::from_secs(1);
/// The share of the process's CPU time that this thread and the collecting thread may use during a
/// run in this process.
const SHARE: f64 = 0.009;

/// The limits of the frame rate and of CPU time.
struct Budget {
    drawn: Instant,
    /// CPU seconds of watching and of the whole process when the screen opened.
    start: (f64, f64),
}

/// Returns the CPU seconds of watching (this thread and the collecting thread) and of the whole
/// process.
fn cpu_seconds(connection: &Connection) -> (f64, f64) {
    let collecting = match connection {
        Connection::Live(subscription, _) => subscription.collecting(),
        _ => Duration::ZERO,
    };
    ((cpu::of_thread() + collecting).as_secs_f64(), cpu::of_process().as_secs_f64())
}

impl Budget {
    fn new(connection: &Connection) -> Self {
        Budget { drawn: Instant::now() - SLOWEST_FRAME, start: cpu_seconds(connection) }
    }

    /// Returns the time until the frame rate allows the next picture.
    fn rest(&self) -> Duration {
        FRAME.saturating_sub(self.drawn.elapsed())
    }

    /// True if a picture may be drawn now. If `generous`, because a person is waiting, only the
    /// frame rate limits pictures.
    fn allows(&self, generous: bool, connection: &Connection) -> bool {
        let since = self.drawn.elapsed();
        if generous || since < FRAME {
            return since >= FRAME;
        }
        let now = cpu_seconds(connection);
        let (watching, process) = (now.0 - self.start.0, now.1 - self.start.1);
        watching <= SHARE * process || since >= SLOWEST_FRAME
    }
}

/// Shows `app` until the person leaves. Sends requests to the runs through `connection`. Returns
/// how the screen was left, and its last state.
pub(crate) fn run(app: App, connection: Connection, theme: Theme) -> Result<(Departure, App), ScreenError> {
    if !crate::terminal::terminal_available() {
        return Err(ScreenError::NoTerminal);
    }
    let mut screen = Screen::enter(theme)?;
    if let Connection::Live(_, pace) = &connection {
        screen.set_when_continued(pace.continued())?;
    }
    let (budget, ticked) = (Budget::new(&connection), Instant::now());
    let mut session = Session { screen, app, connection, budget, ticked, changed: true, asked: true };
    loop {
        if let Some(departure) = session.turn()? {
            let Session { screen, app, .. } = session;
            drop(screen);
            return Ok((departure, app));
        }
    }
}

/// The screen, the state that it shows, and the main loop's own state.
struct Session {
    /// It is dropped first: the terminal is restored before a connection closes.
    screen: Screen,
    app: App,
    connection: Connection,
    budget: Budget,
    ticked: Instant,
    /// True if something has changed since the last picture.
    changed: bool,
    /// True if the next picture answers an input (key, mouse or resize), or is the first: a person
    /// waits for it.
    asked: bool,
}

impl Session {
    /// Runs one turn of the main loop. Returns how the screen is left; `None` if it is not.
    fn turn(&mut self) -> Result<Option<Departure>, ScreenError> {
        if let Some(signal) = self.screen.signal() {
            let effect = match signal {
                SIGTSTP => Effect::Suspend,
                // The process was continued after a stop without notice.
                SIGCONT => {
                    self.ticked = Instant::now();
                    self.screen.resume()?;
                    Effect::Redraw
                }
                ending => Effect::Leave(Departure::Signal(ending)),
            };
            if let Some(departure) = self.perform(effect)? {
                return Ok(Some(departure));
            }
        }
        if let Some(panic) = self.screen.panic() {
            // The ranks may be waiting for the thread that panicked.
            return Err(ScreenError::Panicked(panic));
        }
        self.changed |= self.app.receive(self.connection.poll()?);
        let grown = self.connection.grown()?;
        if !grown.is_empty() {
            self.app.grow(&grown)?;
            self.changed = true;
        }
        self.tick();
        // The next call comes after a wait for keys.
        self.connection.mark_running(2 * FRAME);
        self.draw()?;
        self.keys()
    }

    fn tick(&mut self) {
        let passed = std::mem::replace(&mut self.ticked, Instant::now()).elapsed().as_secs_f64();
        let shown = |app: &App| {
            let lead = app.lead();
            (lead.position(), lead.clock(), lead.motion(), app.quiet_seconds())
        };
        let before = shown(&self.app);
        self.app.update(Input::Tick(passed));
        self.changed |= before != shown(&self.app);
    }

    fn draw(&mut self) -> Result<(), ScreenError> {
        let app = &self.app;
        let busy = app.source == EventSource::Live && !app.held && app.pace >= 1.0 && !app.at_end_of_run();
        if (self.asked || self.changed) && self.budget.allows(self.asked || !busy, &self.connection) {
            self.screen.draw(app)?;
            self.budget.drawn = Instant::now();
            (self.changed, self.asked) = (false, false);
        }
        Ok(())
    }

    /// Waits for keys until the next picture is due, and applies them. Returns how the screen is
    /// left; `None` if it is not. A closed terminal counts as its signal.
    fn keys(&mut self) -> Result<Option<Departure>, ScreenError> {
        let timeout = match self.app.lead().motion() {
            _ if self.asked => self.budget.rest(),
            Motion::Paused => FRAME * 3 / 2,
            _ => FRAME,
        };
        // A signal interrupts the wait; the next turn handles it.
        self.screen.wait(timeout);
        loop {
            if !self.screen.is_open() {
                return Ok(Some(Departure::Signal(SIGHUP)));
            }
            if !event::poll(Duration::ZERO).unwrap_or(false) {
                return Ok(None);
            }
            let (event, app) = (event::read()?, &mut self.app);
            let action =
                input::clicked(&event).and_then(|place| view::clicked(app, self.screen.size(), place));
            let action = action.filter(|action| !input::is_drag(&event) || action.is_choice());
            let input = action.map(Input::Action).or_else(|| input::translate(&event, app.prompt.is_some()));
            let Some(input) = input else { continue };
            if matches!(input, Input::Resized) {
                self.screen.wake_key_reader();
            }
            self.asked = true;
            let Some(effect) = app.update(input) else { continue };
            let departure = self.perform(effect)?;
            if departure.is_some() {
                return Ok(departure);
            }
        }
    }

    /// Carries out an effect. Returns how the screen is left; `None` if it is not.
    fn perform(&mut self, effect: Effect) -> Result<Option<Departure>, ScreenError> {
        self.asked = true;
        match effect {
            Effect::Leave(departure) => return Ok(Some(departure)),
            Effect::Control(control) => self.connection.control(control),
            Effect::Redraw => self.screen.redraw()?,
            Effect::Suspend => {
                self.connection.mark_running(Duration::ZERO);
                self.screen.suspend()?;
                self.ticked = Instant::now();
            }
        }
        Ok(None)
    }
}
