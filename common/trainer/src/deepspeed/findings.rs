//! What is left to say once a file has been merged with the flags.

use super::keys::Key;
use super::node::Node;
use crate::error::{Failure, Result};
use planner::Stage;

/// What is left to say once a file has been merged with the flags.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The file, as given.
    pub file: String,
    /// The stage that it is written for.
    pub stage: Option<Stage>,
    /// What the user should know, one line each.
    pub warnings: Vec<String>,
    /// What it asks for and cannot have: path, value and reason.
    pub(super) missing: Vec<Missing>,
    /// Flags that it has set.
    pub(super) setters: Vec<Setter>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Missing {
    pub path: &'static str,
    alias: Option<&'static str>,
    value: String,
    note: &'static str,
    needs_sharded_parameters: bool,
}

/// A flag, and the key that has set it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setter {
    /// As typed.
    pub flag: String,
    /// The key, as the file calls it.
    pub path: &'static str,
    /// Its value.
    pub value: String,
}

/// Most missing keys that an error lists.
const LISTED: usize = 12;

impl Findings {
    /// Whether a crate that trains with `stage` can do what the file asks for.
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
            "{} asks for what is not here yet:{}{more}\nRemove these keys to run without.",
            self.file,
            lines.collect::<String>(),
        )))
    }

    /// `failure`, and where the flags that it names were set by the file, by which of its keys.
    pub fn attribute(&self, failure: Failure) -> Failure {
        let Failure::Usage(mut message) = failure else { return failure };
        let named: Vec<&Setter> =
            self.setters.iter().filter(|setter| names(&message, &setter.flag)).collect();
        for Setter { flag, path, value } in named {
            message.push_str(&format!("\nIn {}, {path} {value} stands for {flag}.", self.file));
        }
        Failure::Usage(message)
    }

    pub(super) fn miss(&mut self, key: &Key, alias: Option<&'static str>, value: &Node) {
        self.missing.push(Missing {
            path: key.path,
            alias,
            value: value.to_string(),
            note: key.note,
            needs_sharded_parameters: key.is_about_sharded_parameters(),
        });
    }
}

/// Whether `message` has the whole word `flag`.
fn names(message: &str, flag: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    message.match_indices(flag).any(|(at, _)| ends(&message[at + flag.len()..]))
}
