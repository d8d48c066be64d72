//! The result of merging a configuration file with the flags: warnings, errors, and the origin of
//! flags.

use crate::error::{Failure, Result};
use prediction::Stage;

/// The result of merging a file with the flags, in addition to the flags themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The file, as given.
    pub file: String,
    /// The stage for which the file is written.
    pub stage: Option<Stage>,
    /// Warnings, one line each.
    pub warnings: Vec<String>,
    /// Errors in keys and values.
    pub errors: Vec<String>,
    /// Settings that the file leaves to this program, in words; empty if there are none.
    pub own_settings: String,
    /// Keys that ask for features that are not supported yet.
    pub missing: Vec<Missing>,
    /// Flags that the file has set.
    pub setters: Vec<Setter>,
}

/// A key that asks for a feature that is not supported yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// The key.
    pub path: &'static str,
    /// The key that the file writes; `None` if it is this one.
    pub alias: Option<String>,
    /// Its value.
    pub value: String,
    /// The feature.
    pub note: &'static str,
    /// Whether the key can matter only if parameters are sharded.
    pub needs_sharded_parameters: bool,
}

/// A flag, and the key that has set it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setter {
    /// As typed.
    pub flag: String,
    /// The key, as the file writes it.
    pub path: String,
    /// Its value there.
    pub value: String,
}

/// Maximum number of lines of each kind that an error lists.
const LISTED: usize = 12;

impl Findings {
    /// Checks that all keys and values are right.
    ///
    /// # Errors
    /// A usage failure that names each wrong key or value, and each key that cannot be honoured.
    pub fn refuse(&self) -> Result<()> {
        if self.errors.is_empty() {
            return Ok(());
        }
        let lines = self.errors.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join("\n");
        let more = more(self.errors.len());
        let unsupported = self.unsupported(self.stage).map(|what| format!("\n{what}")).unwrap_or_default();
        Err(Failure::Usage(format!("{lines}{more}{unsupported}")))
    }

    /// Lists the keys that `stage` cannot honour, or with `None` those that no stage can; `None` if
    /// there are none.
    fn unsupported(&self, stage: Option<Stage>) -> Option<String> {
        let shards = stage.is_none_or(|stage| stage.sharded().parameters);
        let missing = self.missing.iter().filter(|missing| shards || !missing.needs_sharded_parameters);
        let missing: Vec<_> = missing.collect();
        let line = |m: &&Missing| {
            let asked = m.alias.as_ref().map(|alias| format!("{alias}, which asks for ")).unwrap_or_default();
            format!("\n  {asked}{}: {}  ({})", m.path, m.value, m.note)
        };
        let lines: String = missing.iter().take(LISTED).map(line).collect();
        (!missing.is_empty()).then(|| {
            format!(
                "{} asks for features that are not supported yet:{lines}{}\nRemove these keys to run without.",
                self.file,
                more(missing.len()),
            )
        })
    }

    /// Checks that a crate that trains with `stage` supports what the file asks for.
    ///
    /// # Errors
    /// A usage failure that names the crate to run, or the keys that cannot be honoured.
    pub fn check(&self, stage: Stage) -> Result<()> {
        let asked = self.stage.unwrap_or(stage);
        let another = (asked != stage).then(|| {
            format!(
                "{}: zero_optimization.stage asks for {asked}, and this is {stage}\n\
                 Run that crate instead: cargo run -p {} -- --config {}",
                self.file,
                asked.package(),
                self.file,
            )
        });
        let lines: Vec<String> = another.into_iter().chain(self.unsupported(Some(asked))).collect();
        if lines.is_empty() { Ok(()) } else { Err(Failure::Usage(lines.join("\n"))) }
    }

    /// Adds to `failure` the keys of the file that have set the flags that it names, and the keys
    /// that cannot be honoured.
    pub fn attribute(&self, failure: Failure) -> Failure {
        let Failure::Usage(mut message) = failure else { return failure };
        let named: Vec<&Setter> =
            self.setters.iter().filter(|setter| names(&message, &setter.flag)).collect();
        for Setter { flag, path, value } in named {
            message.push_str(&format!("\nIn {}, {path} {value} stands for {flag}.", self.file));
        }
        let unsupported = self.unsupported(self.stage).filter(|what| !message.contains(what));
        message.extend(unsupported.map(|what| format!("\n{what}")));
        Failure::Usage(message)
    }
}

/// Returns the end of a list of `count` lines: the number of lines not shown; empty if all are.
fn more(count: usize) -> String {
    if count > LISTED { format!("\n  and {} more", count - LISTED) } else { String::new() }
}

/// True if `message` has the whole word `flag`.
fn names(message: &str, flag: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    message.match_indices(flag).any(|(at, _)| ends(&message[at + flag.len()..]))
}
