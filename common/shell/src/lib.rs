//! What the command lines of all programs have in common: how arguments are parsed,
//! [tables](table), completions for shells, and a manual page.

#![forbid(unsafe_code)]

pub mod table;

use clap::{Command, CommandFactory, Parser, Subcommand};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::ops::RangeInclusive;

/// Returns the definition of the command line of `P`. Its flags and those of its commands take
/// negative numbers, so that the error of a bad value such as -1 names the flag.
pub fn command<P: CommandFactory>() -> Command {
    taking_negative_numbers(P::command())
}

fn taking_negative_numbers(command: Command) -> Command {
    command.allow_negative_numbers(true).mut_subcommands(taking_negative_numbers)
}

/// Parses `arguments`, of which the first is the program's name.
///
/// # Errors
/// What to print in place of a run: help, or what is wrong with the arguments.
pub fn try_parse_from<P: Parser>(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<P, clap::Error> {
    let mut command = command::<P>();
    let matches = command.try_get_matches_from_mut(arguments)?;
    P::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Parses the arguments of this process. On help or a usage error, prints the text and exits.
pub fn parse<P: Parser>() -> P {
    try_parse_from(std::env::args_os()).unwrap_or_else(|error| exit(&error))
}

/// Prints the requested help or version, or a usage error, and exits. The exit code is 1 if help
/// cannot be written, except into a pipe that its reader has closed.
pub fn exit(error: &clap::Error) -> ! {
    let printed = error.print().and_then(|()| io::stdout().flush());
    let lost = printed.err().filter(|problem| !error.use_stderr() && problem.kind() != ErrorKind::BrokenPipe);
    let Some(problem) = lost else { std::process::exit(error.exit_code()) };
    // If standard error cannot be written either, the exit code remains.
    let _ = writeln!(io::stderr(), "error: cannot write to standard output: {problem}");
    std::process::exit(1)
}

/// Reads a whole number of `range`.
///
/// The function's error is a sentence that says what is accepted.
pub fn whole<N: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        let fits = number.and_then(|number| N::try_from(number).ok());
        fits.ok_or_else(|| format!("write a whole number from {} to {}", range.start(), range.end()))
    }
}

/// The commands that every program has for shells.
#[derive(Clone, Debug, Subcommand)]
pub enum ShellCommand {
    /// Print completions for a shell, to be saved where it looks for them
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page: `man -l <(PROGRAM man)` shows it
    Man,
}

impl ShellCommand {
    /// Returns what the command prints for the program that `command` defines.
    ///
    /// # Errors
    /// None but those of writing to memory.
    pub fn text(&self, mut command: Command) -> io::Result<String> {
        let mut text = Vec::new();
        match self {
            ShellCommand::Completions { shell } => {
                let name = command.get_name().to_string();
                generate(*shell, &mut command, name, &mut text);
            }
            ShellCommand::Man => text = manual(command)?,
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Returns one manual page for the program and all of its commands.
fn manual(mut command: Command) -> io::Result<Vec<u8>> {
    command.build();
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    for part in command.get_subcommands().filter(|part| !part.is_hide_set() && part.get_name() != "help") {
        let mut section = Vec::new();
        let man = Man::new(part.clone());
        man.render_synopsis_section(&mut section)?;
        man.render_description_section(&mut section)?;
        man.render_options_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).replace(".SH ", ".SS ");
        page.extend(format!(".SH {}\n{section}", part.get_name().to_uppercase()).bytes());
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn numbers_out_of_range_are_told_the_range() {
        let percent = whole::<u32>(1..=100);
        assert_eq!((percent("1"), percent("100")), (Ok(1), Ok(100)));
        for bad in ["0", "101", "-1", "1.5", "", "ten", "99999999999999999999"] {
            assert_eq!(percent(bad), Err("write a whole number from 1 to 100".into()), "{bad}");
        }
    }
}
