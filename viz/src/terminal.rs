//! The terminal while the screen is up, and everything that gives it back: leaving, panics on any thread, signals,
//! suspension.

use crate::app::App;
use crate::theme::Theme;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::time::Timespec;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGSTOP, SIGTERM, SIGTSTP};
use signal_hook::{SigId, flag, low_level};
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Whether the terminal is ours now.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// The thread that draws.
static DRAWING: Mutex<Option<ThreadId>> = Mutex::new(None);
/// What panicked elsewhere while the terminal was ours: message and place, as the usual hook words them.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the screen can be shown: standard output is a terminal that can place the cursor.
pub fn terminal_available() -> bool {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb" || term.is_empty());
    io::stdout().is_terminal() && !dumb
}

/// A panic of the drawing thread gives the terminal back before it is reported. A rank's is an event of the run, told by
/// whoever launched it: the hook that was there before must not print it. Others' must not be written over the picture:
/// they are kept, and reported when the terminal is given back.
fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let current = thread::current();
            let thread = current.name().unwrap_or("unnamed");
            if !ACTIVE.load(Ordering::Acquire) || thread.starts_with("rank ") {
                return usual(info);
            }
            if *lock(&DRAWING) == Some(current.id()) {
                restore();
                return usual(info);
            }
            lock(&PANICS).push(format!("thread '{thread}' {info}"));
        }));
    });
}

/// Gives the terminal back as it was: main screen, cursor, cooked mode, no mouse. Does nothing the second time.
fn restore() {
    if ACTIVE.swap(false, Ordering::AcqRel) {
        // There is nobody left to tell if the terminal is gone.
        let _ = execute!(io::stdout(), DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
        for panic in std::mem::take(&mut *lock(&PANICS)) {
            let _ = writeln!(io::stderr(), "{panic}");
        }
    }
}

/// What has arrived from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// End.
    Quit,
    /// Stop until continued.
    Suspend,
    /// Continued after a stop that we did not see coming.
    Continue,
}

struct Signals {
    flags: Vec<(Signal, Arc<AtomicBool>)>,
    registered: Vec<SigId>,
}

impl Signals {
    fn register() -> io::Result<Self> {
        let mut signals = Signals { flags: Vec::new(), registered: Vec::new() };
        for (meaning, numbers) in [
            (Signal::Quit, &[SIGINT, SIGTERM, SIGHUP][..]),
            (Signal::Suspend, &[SIGTSTP]),
            (Signal::Continue, &[SIGCONT]),
        ] {
            let raised = Arc::new(AtomicBool::new(false));
            for &number in numbers {
                signals.registered.push(flag::register(number, raised.clone())?);
            }
            signals.flags.push((meaning, raised));
        }
        Ok(signals)
    }

    fn take(&self) -> Option<Signal> {
        let raised = self.flags.iter().find(|(_, raised)| raised.swap(false, Ordering::AcqRel));
        raised.map(|(signal, _)| *signal)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.registered.drain(..).for_each(|id| _ = low_level::unregister(id));
    }
}

/// The terminal, ours until dropped.
///
/// Draws by itself instead of through `ratatui::Terminal`, which asks the terminal for its cursor and fails if there is
/// no answer in time.
pub(crate) struct Screen {
    backend: CrosstermBackend<BufWriter<Stdout>>,
    /// What the terminal shows.
    shown: Buffer,
    /// Room for the next picture.
    next: Buffer,
    signals: Signals,
    theme: Theme,
}

impl Screen {
    /// Takes the terminal over.
    pub(crate) fn enter(theme: Theme) -> io::Result<Self> {
        install_panic_hook();
        // With NO_COLOR set, crossterm would reset bold and reverse too: colours are taken out of the picture instead.
        crossterm::style::force_color_output(true);
        let signals = Signals::register()?;
        *lock(&DRAWING) = Some(thread::current().id());
        let backend = CrosstermBackend::new(BufWriter::with_capacity(1 << 16, io::stdout()));
        let screen = Screen { backend, shown: Buffer::default(), next: Buffer::default(), signals, theme };
        take_over()?;
        Ok(screen)
    }

    /// Draws a picture of the terminal's size; only what has changed is written.
    pub(crate) fn draw(&mut self, app: &App) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let area = Rect { x: 0, y: 0, width, height };
        if area != self.shown.area {
            self.redraw()?;
            self.shown = Buffer::empty(area);
            self.next = Buffer::empty(area);
        }
        self.next.reset();
        crate::view::draw(app, self.theme, &mut self.next);
        queue!(self.backend, BeginSynchronizedUpdate)?;
        self.backend.draw(self.shown.diff(&self.next).into_iter())?;
        queue!(self.backend, EndSynchronizedUpdate)?;
        Write::flush(&mut self.backend)?;
        std::mem::swap(&mut self.shown, &mut self.next);
        Ok(())
    }

    /// The columns and rows of the picture shown.
    pub(crate) fn size(&self) -> (u16, u16) {
        (self.shown.area.width, self.shown.area.height)
    }

    /// Forgets what the terminal shows.
    pub(crate) fn redraw(&mut self) -> io::Result<()> {
        self.shown.reset();
        execute!(self.backend, Clear(ClearType::All))
    }

    /// A signal that has arrived since the last call.
    pub(crate) fn signal(&self) -> Option<Signal> {
        self.signals.take()
    }

    /// Waits until there are keys to read, a signal has arrived or `patience` is over. Returns whether the terminal is
    /// still there: `crossterm` would read from a closed one for ever.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let terminal = if stdin.is_terminal() { stdin.as_fd() } else { stdout.as_fd() };
        let mut polled = [PollFd::from_borrowed_fd(terminal, PollFlags::IN)];
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        // Interrupted by a signal, nothing is known of the terminal: the next call tells.
        let _ = poll(&mut polled, Some(&patience));
        !polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
    }

    /// The first panic on a thread that is neither this one nor a rank's.
    pub(crate) fn panic(&self) -> Option<String> {
        lock(&PANICS).first().cloned()
    }

    /// Gives the terminal back, stops the process, and takes the terminal over again when it is continued.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore();
        low_level::raise(SIGSTOP)?;
        self.resume()
    }

    /// Has `raised` raised whenever the process goes on after a stop.
    pub(crate) fn tell_of_going_on(&mut self, raised: Arc<AtomicBool>) -> io::Result<()> {
        self.signals.registered.push(flag::register(SIGCONT, raised)?);
        Ok(())
    }

    /// Takes the terminal over again after a stop.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        take_over()?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn take_over() -> io::Result<()> {
    ACTIVE.store(true, Ordering::Release);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, cursor::Hide)
}
