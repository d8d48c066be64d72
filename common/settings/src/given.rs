//! Flags that were typed.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Id};
use std::collections::BTreeMap;

/// The flags that were typed, as opposed to filled in with their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given(BTreeMap<String, String>);

impl Given {
    /// Returns the value that was typed for the flag with this identifier; `None` if it was not
    /// typed.
    pub fn typed(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }

    /// Marks the flag with this identifier as typed, so that no file changes its value.
    pub fn fix(&mut self, id: &str, value: impl ToString) {
        self.0.insert(id.to_string(), value.to_string());
    }
}

/// Returns the flag with this identifier, as typed: `--eval-every` for `eval_every`.
pub fn flag_name(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let typed = |id: &&Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let words = |id: &Id| {
            let raw = matches.get_raw(id.as_str()).into_iter().flatten();
            raw.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        Ok(Given(matches.ids().filter(typed).map(|id| (id.to_string(), words(id))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}
