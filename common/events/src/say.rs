//! Lines for a person. Whoever stopped reading, as `head` does or a closed window, is no reason for a run to fail:
//! `println!` would panic. At a terminal no line is cut within a word.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether lines are lost that somebody would have read.
static LOST: AtomicBool = AtomicBool::new(false);

/// A line on standard output; nothing happens if nobody reads it.
#[macro_export]
macro_rules! say {
    () => { $crate::say::line(&::std::io::stdout(), ::std::format_args!("")) };
    ($($words:tt)*) => { $crate::say::line(&::std::io::stdout(), ::std::format_args!($($words)*)) };
}

/// A line on standard error; nothing happens if nobody reads it. A test's goes past the capture of its output.
#[macro_export]
macro_rules! complain {
    ($($words:tt)*) => { $crate::say::line(&::std::io::stderr(), ::std::format_args!($($words)*)) };
}

/// Writes `text` and a newline; what [`say!`] and [`complain!`] do.
pub fn line<S>(stream: &S, text: Arguments<'_>)
where
    S: AsFd + IsTerminal,
    for<'a> &'a S: Write,
{
    let mut text = text.to_string();
    if let Some(columns) = columns(stream) {
        let lines: Vec<String> = text.split('\n').map(|line| fitted(line, columns)).collect();
        text = lines.join("\n");
    }
    let mut stream = stream;
    let full =
        |kind| matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge);
    if writeln!(stream, "{text}").is_err_and(|error| full(error.kind())) {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// How a program ends that has done what it was asked to: well, if all that it said has found room.
pub fn code() -> ExitCode {
    if LOST.load(Ordering::Relaxed) {
        complain!("error: what was printed is not whole: there was no room for it on the disk");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// A terminal's width.
fn columns(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    let size = stream.is_terminal().then(|| rustix::termios::tcgetwinsize(stream).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// `line` within `columns`; what is wrapped goes on two columns further in than it began.
fn fitted(line: &str, columns: usize) -> String {
    let begins = line.chars().take_while(|&c| c == ' ').count();
    wrapped(line, columns, "", &" ".repeat((begins + 2).min(columns / 2)))
}

/// `text` in as many lines as it needs of at most `columns`, unless a word is longer: the first behind `first`, the others behind
/// `rest`.
pub fn wrapped(text: &str, columns: usize, first: &str, rest: &str) -> String {
    let options = textwrap::Options::new(columns).initial_indent(first).subsequent_indent(rest);
    let whole_words = options.break_words(false).word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, whole_words)
}

#[cfg(test)]
mod tests {
    use super::fitted;
    use proptest::prelude::*;

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(fitted("as it is", 8), "as it is");
        assert_eq!(fitted("as it is now", 8), "as it is\n  now");
        assert_eq!(fitted("  so many words here", 10), "  so many\n    words\n    here");
        assert_eq!(fitted("name          what it does", 16), "name\n  what it does");
        assert_eq!(fitted("unbreakable it is", 5), "unbreakable\n  it\n  is");
        assert_eq!(fitted("Ψ und Σ über ein", 8), "Ψ und Σ\n  über\n  ein");
        let drawn = format!("      0 └{}", "─".repeat(20));
        assert_eq!(fitted(&drawn, 29), drawn);
    }

    proptest! {
        #[test]
        fn no_word_is_lost_and_no_line_too_long(text in "[ a-zé]{0,120}", columns in 1usize..60) {
            let fitted = fitted(&text, columns);
            prop_assert_eq!(fitted.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
            for line in fitted.lines().filter(|line| line.chars().count() > columns) {
                prop_assert_eq!(line.split_whitespace().count(), 1, "{:?}", line);
            }
        }
    }
}
