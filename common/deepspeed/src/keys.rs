//! What a row of the schema table says about a key, and how a value is checked against it.

use crate::Resolved;
use crate::node::{Node, WHOLE};
use settings::cli::TrainArgs;

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number in this range, ends included; may be written as `5e8`.
    Count(u64, u64),
    /// A number in this range, ends included.
    Number(f64, f64),
    /// A number above 0, up to this one.
    Positive(f64),
    /// Two decays, of the momentum and of the variance.
    Pair,
    /// One of these words, in upper or lower case; numbers and truth values count as they are written.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// Anything, sections included: nothing inside it is looked at one by one.
    Any,
}

/// What the word `auto` stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Auto {
    /// It is not allowed.
    No,
    /// What flags or the preset say.
    Flags,
    /// `factor · hᵖᵒʷᵉʳ` elements for a model of width h, as Transformers resolves it.
    Width(f64, i32),
}

/// Takes a value that passed its row's check.
pub type Set = fn(&mut TrainArgs, &Node);
/// The resolved value, for `--print-config`.
pub type Get = fn(&Resolved<'_>) -> Option<Node>;

/// What becomes of a key.
#[derive(Clone, Copy)]
pub enum Fate {
    /// It changes the run: `set` hands it to the flags, unless `flag` (its identifier in clap) was given explicitly.
    Honoured {
        /// The flag that says the same, if there is one.
        flag: Option<&'static str>,
        /// Hands the value on.
        set: Set,
        /// Reads the resolved value back.
        get: Get,
    },
    /// It is read and changes nothing here: a warning, unless `harmless` says that the value asks for nothing that would
    /// be missed.
    Accepted {
        /// Whether nothing is missed.
        harmless: fn(&Node) -> bool,
    },
    /// An error, unless `harmless` says that the value asks for nothing.
    NotYet {
        /// Whether a value asks for nothing that is missing.
        harmless: fn(&Node) -> bool,
    },
    /// Another name: the path and value that it stands for, if it asks for anything.
    Means(fn(&Node) -> Option<(&'static str, Node)>),
}

/// A row of the schema table.
#[derive(Clone, Copy)]
pub struct Key {
    /// Where it stands in the file, sections joined by dots.
    pub path: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// The default in DeepSpeed's (or Accelerate's) code, as JSON; empty if there is none.
    pub default: &'static str,
    /// What `auto` stands for.
    pub auto: Auto,
    /// What becomes of it.
    pub fate: Fate,
    /// What it does here, or why nothing, in a few words.
    pub note: &'static str,
}

impl Key {
    /// A row that is read and changes nothing, whatever its value; the methods below make it something else.
    pub(crate) const fn new(
        path: &'static str,
        kind: Kind,
        default: &'static str,
        note: &'static str,
    ) -> Key {
        Key { path, kind, default, auto: Auto::No, fate: Fate::Accepted { harmless: |_| true }, note }
    }

    /// The same, missed unless `harmless`.
    pub(crate) const fn missed_unless(self, harmless: fn(&Node) -> bool) -> Key {
        Key { fate: Fate::Accepted { harmless }, ..self }
    }

    /// The same with `auto` allowed.
    pub(crate) const fn auto(self, auto: Auto) -> Key {
        Key { auto, ..self }
    }

    /// The same, honoured.
    pub(crate) const fn honoured(self, flag: Option<&'static str>, set: Set, get: Get) -> Key {
        Key { fate: Fate::Honoured { flag, set, get }, ..self }
    }

    /// The same, an error unless `harmless`.
    pub(crate) const fn not_yet(self, harmless: fn(&Node) -> bool) -> Key {
        Key { fate: Fate::NotYet { harmless }, ..self }
    }

    /// The same, another name for something.
    pub(crate) const fn means(self, means: fn(&Node) -> Option<(&'static str, Node)>) -> Key {
        Key { fate: Fate::Means(means), ..self }
    }

    /// The word for its fate in tables.
    pub const fn label(&self) -> &'static str {
        match self.fate {
            Fate::Honoured { .. } => "honoured",
            Fate::Accepted { .. } => "accepted",
            Fate::NotYet { .. } => "not yet",
            Fate::Means(_) => "another name",
        }
    }

    /// The flag that says the same, as typed.
    pub fn flag(&self) -> Option<String> {
        match self.fate {
            Fate::Honoured { flag: Some(id), .. } => Some(typed_as(id)),
            _ => None,
        }
    }

    /// Whether it can only matter where parameters are sharded.
    pub fn is_about_sharded_parameters(&self) -> bool {
        let zero = self.path.strip_prefix("zero_optimization.").unwrap_or("");
        ["stage3_", "offload_param", "sub_group_size", "zero_hpz", "mics_", "cpu_offload_param"]
            .iter()
            .any(|prefix| zero.starts_with(prefix))
    }

    /// Whether `value` is what it has there when it is left out.
    pub(crate) fn is_default(&self, value: &Node) -> bool {
        Node::from_json(self.default).is_ok_and(|default| default == *value)
    }

    /// The last part of its path.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// Checks a value, `auto` and `null` aside.
    ///
    /// # Errors
    /// What the value must be.
    pub fn check(&self, value: &Node) -> Result<(), String> {
        let number = value.as_number().unwrap_or(f64::NAN);
        let fine = match self.kind {
            Kind::Flag => value.as_flag().is_some(),
            Kind::Count(low, high) => number.fract() == 0.0 && (low as f64..=high as f64).contains(&number),
            Kind::Number(low, high) => (low..=high).contains(&number),
            Kind::Positive(high) => number > 0.0 && number <= high,
            Kind::Pair => pair(value).is_some(),
            Kind::Choice(words) => {
                value.word().is_some_and(|found| words.iter().any(|word| word.eq_ignore_ascii_case(&found)))
            }
            Kind::Text => value.as_text().is_some(),
            Kind::Any => true,
        };
        if fine { Ok(()) } else { Err(self.expected()) }
    }

    /// What its value must be, in words.
    pub fn expected(&self) -> String {
        let kind = match self.kind {
            Kind::Flag => "true or false".into(),
            Kind::Count(low, high) if high as f64 >= WHOLE => format!("a whole number from {low}"),
            Kind::Count(low, high) => format!("a whole number from {low} to {high}"),
            Kind::Number(low, high) if high == f64::MAX => format!("a number from {low}"),
            Kind::Number(low, high) => format!("a number from {low} to {high}"),
            Kind::Positive(high) if high == f64::MAX => "a number above 0".into(),
            Kind::Positive(high) => format!("a number above 0, at most {high}"),
            Kind::Pair => format!("two numbers from 0 to {CLOSEST}"),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Text => "text".into(),
            Kind::Any => "anything".into(),
        };
        if self.auto == Auto::No { kind } else { kind + ", or auto" }
    }
}

/// The flag with this identifier, as typed.
pub(crate) fn typed_as(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

/// The warning that a key and a flag differ.
pub(crate) fn contradiction(file: &str, key: &str, value: &Node, flag: &str, typed: &str) -> String {
    let typed = if typed.is_empty() { String::new() } else { format!(" {typed}") };
    format!("{file}: {key} {value} and {flag}{typed} on the command line disagree: the flag counts")
}

/// Largest decay: beyond it, 1 − β is lost in f32.
const CLOSEST: f64 = 0.99999;

/// Two numbers from 0 to [`CLOSEST`].
pub(crate) fn pair(value: &Node) -> Option<(f64, f64)> {
    let Node::List(items) = value else { return None };
    let [a, b] = items.as_slice() else { return None };
    let inside = |node: &Node| node.as_number().filter(|number| (0.0..=CLOSEST).contains(number));
    Some((inside(a)?, inside(b)?))
}
