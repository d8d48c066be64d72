//! A program in a pseudo-terminal.

use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longer than any step of a test takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time until the terminal is restored.
pub(crate) const PROMPT: Duration = Duration::from_millis(250);

/// Asserts that two of three attempts are short enough: other programs may take the processor at
/// the wrong moment.
pub(crate) fn promptly(mut attempt: impl FnMut() -> Duration) {
    let mut times = Vec::new();
    let prompt = |times: &[Duration]| times.iter().filter(|&&time| time <= PROMPT).count();
    while prompt(&times) < 2 {
        assert!(times.len() < 3, "restored only after {times:?}");
        times.push(attempt());
    }
}

/// The output of a program.
struct Output {
    written: Mutex<Written>,
    grown: Condvar,
}

struct Written {
    bytes: Vec<u8>,
    /// What a terminal shows after them.
    screen: vt100::Parser,
}

impl Written {
    fn screen(&self) -> String {
        self.screen.screen().contents()
    }
}

/// A program and the terminal that it runs in.
pub(crate) struct Pty {
    master: OwnedFd,
    child: Child,
    output: Arc<Output>,
    /// The end of the output examined so far.
    seen: usize,
    /// The longest time to wait.
    pub(crate) timeout: Duration,
}

impl Pty {
    /// Starts `command` in a terminal of this size.
    pub(crate) fn start(command: &mut Command, size: (u16, u16)) -> Self {
        let (master, child) = spawn(command, size);
        let screen = vt100::Parser::new(size.1, size.0, 0);
        let written = Mutex::new(Written { bytes: Vec::new(), screen });
        let output = Arc::new(Output { written, grown: Condvar::new() });
        let (mut reader, into) = (File::from(master.try_clone().unwrap()), output.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 1 << 16];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                let mut written = into.written.lock().unwrap();
                written.bytes.extend_from_slice(&bytes[..read]);
                written.screen.process(&bytes[..read]);
                into.grown.notify_all();
            }
        });
        Pty { master, child, output, seen: 0, timeout: TIMEOUT }
    }

    /// Blocks until `text` is written. The next search begins after it.
    pub(crate) fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + self.timeout;
        let mut output = self.output.written.lock().unwrap();
        loop {
            let fresh = &output.bytes[self.seen.min(output.bytes.len())..];
            if let Some(place) = fresh.windows(text.len()).position(|window| window == text.as_bytes()) {
                self.seen += place + text.len();
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let written = String::from_utf8_lossy(fresh).into_owned();
            if left.is_zero() {
                drop(output);
                panic!("{text:?} was never written; this was: {written:?}");
            }
            output = self.output.grown.wait_timeout(output, left).unwrap().0;
        }
    }

    /// Blocks until `text` is somewhere on the screen.
    pub(crate) fn expect_on_screen(&mut self, text: &str) {
        assert!(
            self.shows(text, self.timeout),
            "{text:?} never stood on the screen; this does:\n{}",
            self.now()
        );
    }

    /// Blocks until `text` is nowhere on the screen.
    #[allow(dead_code, reason = "for the programs' own tests")]
    pub(crate) fn expect_gone(&self, text: &str) {
        let deadline = Instant::now() + self.timeout;
        while self.now().contains(text) {
            assert!(Instant::now() < deadline, "{text:?} stays on the screen:\n{}", self.now());
            std::thread::yield_now();
        }
    }

    /// Waits for `text` on the screen. Returns whether it appeared in time.
    pub(crate) fn shows(&mut self, text: &str, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut output = self.output.written.lock().unwrap();
        while !output.screen().contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            output = self.output.grown.wait_timeout(output, left).unwrap().0;
        }
        self.seen = output.bytes.len();
        true
    }

    /// Returns all output so far.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.written.lock().unwrap().bytes).into_owned()
    }

    /// Returns the text on the screen.
    #[allow(dead_code, reason = "for the programs' own tests")]
    pub(crate) fn now(&self) -> String {
        self.output.written.lock().unwrap().screen()
    }

    /// Types `keys`.
    pub(crate) fn send(&self, keys: &str) {
        rustix::io::write(&self.master, keys.as_bytes()).unwrap();
    }

    /// Changes the size, as a terminal does.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.output.written.lock().unwrap().screen.screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.master, size(columns, rows)).unwrap();
        self.signal(Signal::WINCH);
    }

    /// Tells the program a size that the terminal does not have.
    #[allow(dead_code, reason = "for the programs' own tests")]
    pub(crate) fn claim(&self, columns: u16, rows: u16) {
        tcsetwinsize(&self.master, size(columns, rows)).unwrap();
        self.signal(Signal::WINCH);
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Returns the program's process id.
    #[allow(dead_code, reason = "for benchmarks that borrow this file")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// True if the terminal edits lines and echoes characters, as a shell needs it.
    pub(crate) fn cooked(&self) -> bool {
        let modes = tcgetattr(&self.master).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Blocks until a signal has stopped the program.
    pub(crate) fn expect_stopped(&self) {
        expect_stopped(self.pid(), self.timeout);
    }

    /// Blocks until the terminal is restored: no mouse, main screen, cursor, cooked mode. Returns
    /// how long it took.
    pub(crate) fn expect_restored(&mut self) -> Duration {
        let start = Instant::now();
        self.expect("\x1b[?1000l");
        self.expect("\x1b[?1049l");
        self.expect("\x1b[?25h");
        while !self.cooked() {
            assert!(start.elapsed() < self.timeout, "the terminal stays raw");
            std::thread::yield_now();
        }
        start.elapsed()
    }

    /// Blocks until the program ends.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Blocks until a signal has stopped the program `pid`.
fn expect_stopped(pid: Pid, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(pid), stopped).unwrap().is_none() {
        assert!(Instant::now() < deadline, "the program was never stopped");
        std::thread::yield_now();
    }
}

/// Starts `command` in a terminal of this size. Returns the terminal's other end.
fn spawn(command: &mut Command, (columns, rows): (u16, u16)) -> (OwnedFd, Child) {
    #[cfg(target_os = "linux")]
    let flags = OpenptFlags::CLOEXEC;
    // Other systems lack this flag: programs that other tests start at the same time inherit the
    // terminal.
    #[cfg(not(target_os = "linux"))]
    let flags = OpenptFlags::empty();
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let path = std::ffi::OsStr::from_bytes(name.as_bytes());
    let terminal = File::options().read(true).write(true).open(path).unwrap();
    tcsetwinsize(&master, size(columns, rows)).unwrap();
    let end = || Stdio::from(terminal.try_clone().unwrap());
    let usual =
        [("TERM", "xterm-256color"), ("COLORTERM", "truecolor"), ("LC_ALL", "C.UTF-8"), ("NO_COLOR", "")];
    for (name, value) in usual {
        if command.get_envs().all(|(other, _)| other != name) {
            command.env(name, value);
        }
    }
    // A process group of its own, as a shell gives its jobs: a program may stop all of its group.
    let child = command.process_group(0).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    (master, child)
}

/// Starts `command` in a terminal and closes the terminal as a closed window does, once the program
/// has drawn a picture, which ends with `drawn`, and another one as an answer to `key`. If
/// `interrupted`, a signal interrupts the program before it notices. Returns how the program ends;
/// `None` if it does not end by itself.
#[allow(dead_code, reason = "for the programs' own tests")]
pub(crate) fn end_with_its_terminal(
    command: &mut Command,
    drawn: &str,
    key: &str,
    interrupted: bool,
) -> Option<ExitStatus> {
    let (master, mut child) = spawn(command, (120, 40));
    let mut terminal = File::from(master);
    for typed in ["", key] {
        rustix::io::write(&terminal, typed.as_bytes()).unwrap();
        let (mut bytes, mut written) = ([0; 1 << 16], Vec::new());
        while !String::from_utf8_lossy(&written).contains(drawn) {
            let read = terminal.read(&mut bytes).unwrap();
            written.extend_from_slice(&bytes[..read]);
        }
    }
    if interrupted {
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        expect_stopped(Pid::from_child(&child), TIMEOUT);
    }
    drop(terminal);
    if interrupted {
        kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    }
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::yield_now();
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}
