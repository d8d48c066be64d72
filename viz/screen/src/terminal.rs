//! The terminal while the screen is shown, and its restoration: on leaving, on a panic of any
//! thread, on signals, on suspension.

use crate::app::App;
use crate::theme::Theme;
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use events::lock;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use rustix::time::Timespec;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::{SigId, flag, low_level};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// True while the screen is shown.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// True once the screen has been left.
static LEFT: AtomicBool = AtomicBool::new(false);
/// The thread that draws the screen.
static DRAWING: Mutex<Option<ThreadId>> = Mutex::new(None);
/// Panics of other threads while the screen is shown: message and place, as the default hook writes
/// them.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Maximum time from the signal until the process stops.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

/// The largest picture in columns and rows, which no real terminal exceeds. A terminal may claim
/// more than fits into memory.
const LARGEST: (u16, u16) = (1000, 500);

/// Returns the terminal that `crossterm` reads keys from: standard input or, if that is no
/// terminal, the controlling terminal. Other systems than Linux cannot poll `/dev/tty`: standard
/// output stands in for it.
fn keyboard() -> io::Result<OwnedFd> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    if stdin.is_terminal() {
        return stdin.as_fd().try_clone_to_owned();
    }
    let controlling = File::options().read(true).write(true).open("/dev/tty");
    match controlling.ok().filter(|_| cfg!(target_os = "linux")) {
        Some(terminal) => Ok(terminal.into()),
        None => stdout.as_fd().try_clone_to_owned(),
    }
}

/// True if the screen can be shown: standard output is a terminal that can position the cursor, and
/// keys can be read from standard input or from the controlling terminal.
pub fn terminal_available() -> bool {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb" || term.is_empty());
    let controlling = || File::options().read(true).write(true).open("/dev/tty").is_ok();
    io::stdout().is_terminal() && !dumb && (io::stdin().is_terminal() || controlling())
}

/// Installs a hook that keeps panics off the picture. A panic of the drawing thread restores the
/// terminal before it is printed. A rank's panic goes to the previous hook, which the launcher has
/// set; the launcher reports it as an event. Panics of other threads are kept and printed once the
/// terminal is restored.
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

/// Restores the default action of the signals that only the screen handles, once it is left:
/// removing a handler alone leaves a signal without effect.
fn hand_signals_back() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [SIGQUIT, SIGTSTP] {
            // If the system refuses, the signal has no effect.
            let _ = flag::register_conditional_default(signal, &LEFT);
        }
    });
}

/// Restores the terminal: main screen, cursor, cooked mode, no mouse. Does nothing if called again.
fn restore() {
    if ACTIVE.swap(false, Ordering::AcqRel) {
        // If the terminal is gone, an error cannot be reported anywhere.
        let mut out = io::stdout();
        let _ = execute!(out, DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
        for panic in std::mem::take(&mut *lock(&PANICS)) {
            let _ = writeln!(io::stderr(), "{panic}");
        }
    }
}

/// The screen. Dropping it restores the terminal.
///
/// It does not use `ratatui::Terminal`, which asks the terminal for the cursor's position and fails
/// if the answer is late.
pub(crate) struct Screen {
    backend: CrosstermBackend<BufWriter<Stdout>>,
    /// The picture that the terminal shows.
    shown: Buffer,
    /// The buffer for the next picture.
    next: Buffer,
    /// The terminal that keys are read from. It is kept because a terminal that is closed no longer
    /// looks like one.
    keyboard: OwnedFd,
    signals: Signals,
    /// True once the process has continued after a stop.
    resumed: Arc<AtomicBool>,
    /// The registrations of [`Self::set_when_continued`].
    continued: Vec<SigId>,
    theme: Theme,
}

impl Screen {
    pub(crate) fn enter(theme: Theme) -> io::Result<Self> {
        install_panic_hook();
        // With NO_COLOR set, crossterm would drop bold and reverse, too. The theme removes colours
        // instead.
        crossterm::style::force_color_output(true);
        LEFT.store(false, Ordering::Release);
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT])?;
        hand_signals_back();
        *lock(&DRAWING) = Some(thread::current().id());
        let backend = CrosstermBackend::new(BufWriter::with_capacity(1 << 16, io::stdout()));
        let (shown, next) = (Buffer::default(), Buffer::default());
        let keyboard = keyboard()?;
        let (resumed, continued) = (Arc::<AtomicBool>::default(), Vec::new());
        let mut screen =
            Screen { backend, shown, next, keyboard, signals, resumed: resumed.clone(), continued, theme };
        screen.set_when_continued(resumed)?;
        take_over()?;
        Ok(screen)
    }

    /// Draws a picture of the terminal's size, or of its upper left corner if the terminal is
    /// larger than [`LARGEST`]. Writes only the cells that have changed.
    pub(crate) fn draw(&mut self, app: &App) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        let area = Rect { x: 0, y: 0, width: columns.min(LARGEST.0), height: rows.min(LARGEST.1) };
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

    /// Returns the columns and rows of the picture shown.
    pub(crate) fn size(&self) -> (u16, u16) {
        (self.shown.area.width, self.shown.area.height)
    }

    /// Clears the terminal, so that the next picture is drawn completely.
    pub(crate) fn redraw(&mut self) -> io::Result<()> {
        self.shown.reset();
        execute!(self.backend, Clear(ClearType::All))
    }

    /// Returns the number of a signal that has arrived since the last call; `None` if there was
    /// none.
    pub(crate) fn signal(&mut self) -> Option<i32> {
        self.signals.pending().next()
    }

    /// Blocks until there are keys to read, a signal arrives, the terminal is closed or `timeout`,
    /// which is shorter than a second, has passed.
    pub(crate) fn wait(&self, timeout: Duration) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        // A signal interrupts the call.
        let _ = poll(&mut [PollFd::new(&self.keyboard, PollFlags::IN)], Some(&timeout));
    }

    /// True unless the terminal is closed. `crossterm` would then read from it forever, so ask
    /// before each of its calls.
    pub(crate) fn is_open(&self) -> bool {
        let mut polled = [PollFd::new(&self.keyboard, PollFlags::IN)];
        // An interrupted call says nothing about the terminal. The signal may be the hangup itself.
        while poll(&mut polled, Some(&Timespec::default())) == Err(Errno::INTR) {}
        !polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
    }

    /// Makes `crossterm` poll the keyboard again: after a resize it overlooks keys that arrived
    /// with it until the next key. Setting the terminal's modes, even unchanged, wakes a blocked
    /// reader.
    pub(crate) fn wake_key_reader(&self) {
        // If the terminal is closed, `is_open` says so.
        let modes = tcgetattr(&self.keyboard);
        let _ = modes.and_then(|modes| tcsetattr(&self.keyboard, OptionalActions::Now, &modes));
    }

    /// Returns the first panic on a thread that is neither this one nor a rank's; `None` if there
    /// was none.
    pub(crate) fn panic(&self) -> Option<String> {
        lock(&PANICS).first().cloned()
    }

    /// Restores the terminal, stops the process and takes over the terminal when it continues.
    /// Stops the whole process group, as the terminal's own key does: a shell notices that its job
    /// has stopped only if the script that started this process has stopped too.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore();
        self.resumed.store(false, Ordering::Release);
        kill_current_process_group(Signal::STOP)?;
        // Another thread may take the signal, so this thread may continue for a moment.
        let sent = Instant::now();
        while !self.resumed.load(Ordering::Acquire) && sent.elapsed() < STOPS_WITHIN {
            thread::sleep(Duration::from_millis(1));
        }
        self.resume()
    }

    /// Makes SIGCONT set `raised`, whenever the process continues after a stop.
    pub(crate) fn set_when_continued(&mut self, raised: Arc<AtomicBool>) -> io::Result<()> {
        self.continued.push(flag::register(SIGCONT, raised)?);
        Ok(())
    }

    /// Takes over the terminal again after a stop.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        take_over()?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
        self.continued.drain(..).for_each(|registration| _ = low_level::unregister(registration));
        LEFT.store(true, Ordering::Release);
    }
}

fn take_over() -> io::Result<()> {
    enable_raw_mode()?;
    ACTIVE.store(true, Ordering::Release);
    // With bracketed paste, the terminal marks pasted text, so that it is not taken for keys.
    execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste, cursor::Hide)
}
