//! A row of the schema table: a key, the check of its values, and what it does.

use crate::Resolved;
use crate::hjson;
use crate::node::Node;
use settings::cli::TrainArgs;
use settings::flag_name;
use settings::size::LARGEST_EXACT;

/// The values that a key takes.
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
    /// One of these words, in upper or lower case; numbers and truth values count as written.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// Anything, sections included: keys inside it have no rows.
    Any,
}

/// The meaning of the word `auto`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Auto {
    /// The key is left out, in DeepSpeed's files; in Accelerate's it is not allowed.
    LeftOut,
    /// It is not allowed.
    No,
    /// The value of flags or preset.
    Flags,
    /// `factor · hᵖᵒʷᵉʳ` elements for a model of width h, as Transformers resolves it.
    Width(f64, i32),
}

impl Auto {
    /// True if the word is a value.
    pub(crate) fn allowed(self) -> bool {
        matches!(self, Auto::Flags | Auto::Width(..))
    }
}

/// Sets a value that passed its row's check.
pub type Set = fn(&mut TrainArgs, &Node);
/// Returns the resolved value, for `--print-config`.
pub type Get = fn(&Resolved<'_>) -> Option<Node>;

/// The effect of a key.
#[derive(Clone, Copy)]
pub enum Fate {
    /// It changes the run: `set` sets the flags, unless `flag` (its identifier in clap) was typed.
    Honoured {
        /// The flag of the same meaning; `None` if there is none.
        flag: Option<&'static str>,
        /// Sets the value.
        set: Set,
        /// Returns the resolved value.
        get: Get,
    },
    /// It is read and changes nothing here: a warning, unless the value is `harmless`.
    Accepted {
        /// True if the value asks for nothing that is missing here.
        harmless: fn(&Node) -> bool,
    },
    /// It asks for a feature that is not supported: an error, unless the value is `harmless`.
    NotYet {
        /// True if the value asks for nothing.
        harmless: fn(&Node) -> bool,
    },
    /// It is another name. Returns the path and value that it stands for; `None` if it asks for
    /// nothing.
    Means(fn(&Node) -> Option<(&'static str, Node)>),
}

/// A row of the schema table.
#[derive(Clone, Copy)]
pub struct Key {
    /// Its path in the file, sections joined by dots.
    pub path: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// The default in DeepSpeed's (or Accelerate's) code, as JSON; empty if there is none.
    pub default: &'static str,
    /// The meaning of `auto`.
    pub auto: Auto,
    /// Its effect.
    pub fate: Fate,
    /// What it does here, or why it does nothing, in a few words.
    pub note: &'static str,
}

impl Key {
    /// Returns the row of a key that is read and changes nothing, whatever its value. The methods
    /// below change its effect.
    pub(crate) const fn new(
        path: &'static str,
        kind: Kind,
        default: &'static str,
        note: &'static str,
    ) -> Key {
        Key { path, kind, default, auto: Auto::LeftOut, fate: Fate::Accepted { harmless: |_| true }, note }
    }

    /// Makes the key lead to a warning unless the value is `harmless`.
    pub(crate) const fn missed_unless(self, harmless: fn(&Node) -> bool) -> Key {
        Key { fate: Fate::Accepted { harmless }, ..self }
    }

    pub(crate) const fn auto(self, auto: Auto) -> Key {
        Key { auto, ..self }
    }

    pub(crate) const fn honoured(self, flag: Option<&'static str>, set: Set, get: Get) -> Key {
        Key { fate: Fate::Honoured { flag, set, get }, ..self }
    }

    /// Makes the key honoured; `--print-config` leaves it out.
    pub(crate) const fn sets(self, flag: Option<&'static str>, set: Set) -> Key {
        self.honoured(flag, set, |_| None)
    }

    /// Makes the key an error unless the value is `harmless`.
    pub(crate) const fn not_yet(self, harmless: fn(&Node) -> bool) -> Key {
        Key { fate: Fate::NotYet { harmless }, ..self }
    }

    /// Makes the key another name.
    pub(crate) const fn means(self, means: fn(&Node) -> Option<(&'static str, Node)>) -> Key {
        Key { fate: Fate::Means(means), ..self }
    }

    /// Returns the word for its effect in tables.
    pub const fn label(&self) -> &'static str {
        match self.fate {
            Fate::Honoured { .. } => "honoured",
            Fate::Accepted { .. } => "accepted",
            Fate::NotYet { .. } => "not yet",
            Fate::Means(_) => "another name",
        }
    }

    /// Returns the flag of the same meaning, as typed; `None` if there is none.
    pub fn flag(&self) -> Option<String> {
        match self.fate {
            Fate::Honoured { flag: Some(id), .. } => Some(flag_name(id)),
            _ => None,
        }
    }

    /// True if the key can matter only where parameters are sharded.
    pub fn is_about_sharded_parameters(&self) -> bool {
        let zero = self.path.strip_prefix("zero_optimization.").unwrap_or("");
        ["stage3_", "offload_param", "sub_group_size", "zero_hpz", "mics_", "cpu_offload_param"]
            .iter()
            .any(|prefix| zero.starts_with(prefix))
    }

    /// True if `value` is the key's default.
    pub(crate) fn is_default(&self, value: &Node) -> bool {
        hjson::parse(self.default).is_ok_and(|default| default == *value)
    }

    /// Returns the last part of its path.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// Returns `value` as DeepSpeed and YAML convert it: a number or truth value that is written as
    /// text, 0 and 1 for truth values.
    pub(crate) fn converted(&self, value: &Node) -> Node {
        let text = value.as_text().map_or("", str::trim);
        let converted = match self.kind {
            Kind::Count(..) => text.parse::<u64>().ok().map(|count| Node::Number(count as f64)),
            Kind::Number(..) | Kind::Positive(_) => text.parse().ok().map(Node::Number),
            Kind::Flag => match value.word().as_deref() {
                Some("0") => Some(Node::Flag(false)),
                Some("1") => Some(Node::Flag(true)),
                _ => None,
            },
            Kind::Choice(words) if words.contains(&"true") => value.as_flag().map(Node::Flag),
            _ => None,
        };
        converted.unwrap_or_else(|| value.clone())
    }

    /// Checks a value, `auto` and `null` aside.
    ///
    /// # Errors
    /// A description of valid values.
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

    /// Returns a description of valid values.
    pub fn expected(&self) -> String {
        let kind = match self.kind {
            Kind::Flag => "true or false".into(),
            Kind::Count(low, high) if high >= LARGEST_EXACT => format!("a whole number from {low}"),
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
        if self.auto.allowed() { kind + ", or auto" } else { kind }
    }
}

/// Returns the warning that a flag differs from what the file has `asked` for.
pub(crate) fn contradiction(file: &str, asked: &str, flag: &str, typed: &str) -> String {
    let typed = if typed.is_empty() { String::new() } else { format!(" {typed}") };
    format!("{file}: {asked} and {flag}{typed} on the command line disagree: the flag counts")
}

/// Largest decay: above it, 1 − β is lost in f32.
const CLOSEST: f64 = 0.99999;

/// Returns two numbers from 0 to [`CLOSEST`]; `None` if the value is anything else.
pub(crate) fn pair(value: &Node) -> Option<(f64, f64)> {
    let Node::List(items) = value else { return None };
    let [a, b] = items.as_slice() else { return None };
    let inside = |node: &Node| node.as_number().filter(|number| (0.0..=CLOSEST).contains(number));
    Some((inside(a)?, inside(b)?))
}
