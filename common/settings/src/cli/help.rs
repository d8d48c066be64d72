//! How the command line is presented: one screen for `-h`, everything for `--help`.

use super::Cli;
use clap::{Command, FromArgMatches};
use std::ffi::OsString;

/// The flags that `-h` shows, and their descriptions.
const ESSENTIAL: [(&str, &str); 8] = [
    ("gpus", "Ranks, on GPUs or else on the CPU"),
    ("model", "Preset, or a Hugging Face config.json [default: tiny]"),
    ("data", "File to train on; built-in sentences if none is given"),
    ("steps", "Optimizer steps"),
    ("batch_size", "Sequences per micro-batch and rank"),
    ("precision", "Type of parameters and activations"),
    ("config", "DeepSpeed, Accelerate or FSDP configuration"),
    ("headless", "Print plain lines instead of the screen"),
];

/// The flags about the terminal, which may be given before or after a subcommand.
const DISPLAY: [&str; 2] = ["depth", "ascii"];

/// The short help: the most important flags, on one screen.
const BRIEF: &str = "\
{about}

{usage-heading} {usage}

{options}{after-help}";

const EXAMPLES: &str = "\
Commands: generate, export, explain, doctor, completions, man; `{} generate -h` explains one.

Examples:
  {} --gpus 4 --steps 100
  {} --data book.txt --headless --checkpoint kept --report run.json
";

/// Which help a program prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// The most important flags, for `-h`.
    Brief,
    /// All flags, for `--help` and the manual page.
    Full,
}

/// A program of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its version, with the commit that it is built from.
    pub version: &'static str,
}

impl Default for Program {
    /// Returns the name and version of a stage that runs inside another program.
    fn default() -> Self {
        Program { name: "zero", version: env!("CARGO_PKG_VERSION") }
    }
}

impl Program {
    /// Returns the definition of its command line, which prints `help`.
    pub fn command(self, help: Help) -> Command {
        let command = shell::command::<Cli>().name(self.name).version(self.version);
        let command = command.after_help(EXAMPLES.replace("{}", self.name));
        let command = command.mut_args(|arg| match ESSENTIAL.iter().find(|(id, _)| arg.get_id() == id) {
            Some((_, words)) if help == Help::Brief => arg.help(*words).help_heading(None),
            Some(_) => arg,
            None => arg.hide_short_help(true),
        });
        let command =
            DISPLAY.iter().fold(command, |command, flag| command.mut_arg(flag, |arg| arg.global(true)));
        match help {
            Help::Brief => command.help_template(BRIEF),
            Help::Full => command,
        }
    }

    /// Parses `arguments`, of which the first is the program's name. On help, version or a usage
    /// error, prints the text and exits the process.
    pub fn parse(self, arguments: impl IntoIterator<Item = OsString>) -> Cli {
        let arguments = display_last(arguments.into_iter().collect());
        let is_brief = arguments.iter().any(|word| word == "-h");
        let mut command = self.command(if is_brief { Help::Brief } else { Help::Full });
        let matches = command.try_get_matches_from_mut(arguments).unwrap_or_else(|error| shell::exit(&error));
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| shell::exit(&error.format(&mut command)))
    }
}

/// Moves the flags about the terminal from before a subcommand, where `clap` refuses those of a
/// run, to the end.
fn display_last(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let length = |words: &[OsString]| match words {
        [flag, _, ..] if flag == "--colors" => 2,
        [flag, ..] if flag == "--ascii" || flag.to_string_lossy().starts_with("--colors=") => 1,
        _ => 0,
    };
    let mut end = 1;
    while let Some(more @ 1..) = arguments.get(end..).map(length) {
        end += more;
    }
    arguments.get_mut(1..).unwrap_or_default().rotate_left(end - 1);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(flag: &str) -> String {
        let program = Program { name: "zero3", version: "1.2 (abc)" };
        let command = program.command(if flag == "-h" { Help::Brief } else { Help::Full }).term_width(80);
        command.try_get_matches_from(["zero3", flag]).unwrap_err().to_string()
    }

    #[test]
    fn the_short_help_fits_on_one_screen() {
        insta::assert_snapshot!(help("-h"));
        assert!(help("-h").lines().count() < 24);
    }

    /// Such flags work as in `viz`: before a subcommand, after it, and among other flags.
    #[test]
    fn display_flags_may_stand_anywhere() {
        let parsed = |line: &str| Program::default().parse(line.split(' ').map(OsString::from));
        for line in [
            "zero --ascii --colors never doctor",
            "zero --colors=never --ascii doctor",
            "zero --ascii doctor --colors never",
            "zero doctor --ascii --colors=never",
            "zero --ascii --steps 3 --colors never",
            "zero --steps 3 --ascii --colors never",
        ] {
            let cli = parsed(line);
            let display = cli.train.watching.display;
            let expected = screen::DisplayOptions { depth: Some(screen::theme::Depth::None), ascii: true };
            assert_eq!((display, cli.command.is_some()), (expected, line.contains("doctor")), "{line}");
        }
    }

    #[test]
    fn the_long_help_has_every_flag() {
        let long = help("--help");
        let command = shell::command::<Cli>();
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let flag = format!("--{}", arg.get_long().unwrap());
            assert!(long.contains(&flag), "{flag}");
        }
        assert!(long.contains("zero3 --gpus 4 --steps 100"));
        assert_eq!(help("--version").trim(), "zero3 1.2 (abc)");
    }
}
