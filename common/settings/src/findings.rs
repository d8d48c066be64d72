//! What merging a configuration file with the flags leads to: warnings, errors, and the origin of
//! flags.

use crate::error::{Failure, Result};
use planner::Stage;

/// The outcome of merging a file with the flags, beside the flags themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The file, as given.
    pub file: String,
    /// The stage that it is written for.
    pub stage: Option<Stage>,
    /// Warnings, one line each.
    pub warnings: Vec<String>,
    /// Keys that ask for features that are not supported yet.
    pub missing: Vec<Missing>,
    /// Flags that it has set.
    pub setters: Vec<Setter>,
}

/// A key that asks for a feature that is not supported yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// The key.
    pub path: &'static str,
    /// What the file calls it, if that is another name.
    pub alias: Option<&'static str>,
    /// Its value.
    pub value: String,
    /// The feature.
    pub note: &'static str,
    /// Whether it can only matter where parameters are sharded.
    pub needs_sharded_parameters: bool,
}

/// A flag, and the key that has set it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setter {
    /// As typed.
    pub flag: String,
    /// The key, as the file calls it.
    pub path: &'static str,
    /// Its value.
    pub value: String,
}

/// The most missing keys that an error lists.
const LISTED: usize = 12;

impl Findings {
    /// Checks that a crate that trains with `stage` can do what the file asks for.
    ///
    /// # Errors
    /// A usage failure that names the crate to run, or the keys that cannot be honoured.
    pub fn check(&self, stage: Stage) -> Result<()> {
        if let Some(asked) = self.stage.filter(|&asked| asked != stage) {
            return Err(Failure::usage(format!(
                "{}: zero_optimization.stage asks for {asked}, and this is {stage}\n\
                 Run that crate instead: cargo run -p {} -- --config {}",
                self.file,
                asked.package(),
                self.file,
            )));
        }
        let matters = |missing: &&Missing| !missing.needs_sharded_parameters || stage.sharded().parameters;
        let missing: Vec<_> = self.missing.iter().filter(matters).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let line = |m: &&Missing| {
            let asked = m.alias.map(|alias| format!("{alias}, which asks for ")).unwrap_or_default();
            format!("\n  {asked}{}: {}  ({})", m.path, m.value, m.note)
        };
        let lines = missing.iter().take(LISTED).map(line);
        let more = missing.len().saturating_sub(LISTED);
        let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        Err(Failure::usage(format!(
            "{} asks for features that are not supported yet:{}{more}\nRemove these keys to run without.",
            self.file,
            lines.collect::<String>(),
        )))
    }

    /// Adds to `failure` which keys of the file have set the flags that it names.
    pub fn attribute(&self, failure: Failure) -> Failure {
        let Failure::Usage(mut message) = failure else { return failure };
        let named: Vec<&Setter> =
            self.setters.iter().filter(|setter| names(&message, &setter.flag)).collect();
        for Setter { flag, path, value } in named {
            message.push_str(&format!("\nIn {}, {path} {value} stands for {flag}.", self.file));
        }
        Failure::Usage(message)
    }
}

/// True if `message` has the whole word `flag`.
fn names(message: &str, flag: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    message.match_indices(flag).any(|(at, _)| ends(&message[at + flag.len()..]))
}
