//! Lines and numbers for a person to read. A run must not fail because a reader such as `head` has
//! closed the pipe; `println!` would panic. At a terminal, lines break between words.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// True once a line could not be written because the disk was full.
static LOST: AtomicBool = AtomicBool::new(false);

/// Writes a line to standard output. Does nothing if the other end is closed.
#[macro_export]
macro_rules! say {
    () => { $crate::say::line(&::std::io::stdout(), ::std::format_args!("")) };
    ($($words:tt)*) => { $crate::say::line(&::std::io::stdout(), ::std::format_args!($($words)*)) };
}

/// Writes a line to standard error. Does nothing if the other end is closed. The test harness does
/// not capture it.
#[macro_export]
macro_rules! complain {
    ($($words:tt)*) => { $crate::say::line(&::std::io::stderr(), ::std::format_args!($($words)*)) };
}

/// Writes `text` and a newline to `stream`. Implements [`say!`] and [`complain!`].
pub fn line<S>(stream: &S, text: Arguments<'_>)
where
    S: AsFd + IsTerminal,
    for<'a> &'a S: Write,
{
    let mut text = text.to_string();
    if let Some(columns) = width(stream) {
        let lines: Vec<String> = text.split('\n').map(|line| fitted(line, columns)).collect();
        text = lines.join("\n");
    }
    let mut stream = stream;
    noted(writeln!(stream, "{text}"));
}

/// Writes `text` as it is to standard output, for another program to read.
pub fn raw(text: &str) {
    noted(std::io::stdout().write_all(text.as_bytes()));
}

/// Records whether the disk had no room for part of the output.
fn noted(written: std::io::Result<()>) {
    let full =
        |kind| matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge);
    if written.is_err_and(|error| full(error.kind())) {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Writes `text` from another source to standard output, at once and as it is. Returns false if the
/// other end is closed. At a terminal, control characters other than newline and tab are escaped,
/// as in `\x1b`, so that the text cannot control the terminal.
pub fn foreign(text: &str) -> bool {
    let mut out = std::io::stdout();
    let text = if out.is_terminal() { visible(text) } else { text.to_string() };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let is_closed = written.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
    noted(written);
    !is_closed
}

/// Returns `text` with control characters other than newline and tab escaped, as [`foreign`] does.
pub fn visible(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Maximum number of characters of a value that a message repeats.
pub const SHOWN: usize = 60;

/// Cuts `text` to one line that fits into a message, with control characters escaped.
pub fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(printable).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

fn printable(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    escaped.into_iter().flatten().chain((!c.is_control()).then_some(c))
}

/// Writes `prompt` to standard output, without a newline. Returns false if the other end is closed.
pub fn prompt(prompt: &str) -> bool {
    let mut out = std::io::stdout();
    write!(out, "{prompt} ").and_then(|()| out.flush()).is_ok()
}

/// Returns the exit code of a program that has succeeded: failure if the disk had no room for part
/// of its output.
pub fn code() -> ExitCode {
    if LOST.load(Ordering::Relaxed) {
        complain!("error: the output is incomplete: the disk is full");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Formats all digits of a count, with separators: `918,656`.
pub fn grouped(value: u64) -> String {
    let plain = value.to_string();
    let mut text = String::new();
    for (position, digit) in plain.chars().enumerate() {
        if position > 0 && (plain.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number with its noun, `1 rank` or `4 ranks`: `one` for one, `many` for all others.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number as u64), if number == 1 { one } else { many })
}

/// Formats bytes with three digits and a decimal unit (1 MB = 10⁶ bytes): `4.72 MB`.
pub fn bytes(bytes: u64) -> String {
    let (value, unit) = scaled(bytes);
    if unit.is_empty() { format!("{bytes} B") } else { format!("{} {unit}B", digits(value)) }
}

/// Returns bytes in a suitable decimal unit, and its prefix.
pub fn scaled(bytes: u64) -> (f64, &'static str) {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let exact = bytes as f64;
    // 999.5 kB would be written as 1000 kB.
    let found = units.iter().find(|(size, _)| exact >= size * 0.9995);
    found.map_or((exact, ""), |(size, unit)| (exact / size, unit))
}

/// Formats a number with three significant digits: `5.54`, `0.00171`, `1.71e-5`.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 || size == 0.0 => 2,
        size if size >= 0.09995 => 3,
        size if size >= 0.009995 => 4,
        size if size >= 0.0009995 => 5,
        _ => return format!("{value:.2e}"),
    };
    format!("{value:.decimals$}")
}

/// Formats a time with three digits: `12.3 ms`.
pub fn time(seconds: f64) -> String {
    nanoseconds(seconds * 1e9)
}

/// Formats nanoseconds as [`time`] formats seconds.
pub fn nanoseconds(time: f64) -> String {
    let (size, unit) = match time {
        t if t < 999.5e3 => (1e3, "µs"),
        t if t < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", digits(time / size))
}

/// Returns the width of `stream`; `None` if it is not a terminal.
pub fn width(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    let size = stream.is_terminal().then(|| rustix::termios::tcgetwinsize(stream).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// Wraps `line` at `columns`. The lines after the first are indented by two columns more.
pub fn fitted(line: &str, columns: usize) -> String {
    let begins = line.chars().take_while(|&c| c == ' ').count();
    wrapped(line, columns, "", &" ".repeat((begins + 2).min(columns / 2)))
}

/// Wraps `text` at `columns`, between words only. The first line begins with `first`, the others
/// with `rest`. A line that consists of one long word may be longer.
pub fn wrapped(text: &str, columns: usize, first: &str, rest: &str) -> String {
    let options = textwrap::Options::new(columns).initial_indent(first).subsequent_indent(rest);
    let whole_words = options.break_words(false).word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, whole_words)
}
