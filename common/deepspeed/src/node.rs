//! A configuration file as a tree. Unlike a map it keeps order and repeated keys.

use events::say::shortened;
use serde::ser::{Serialize, Serializer};
use settings::size::LARGEST_EXACT;
use std::fmt;

/// A value in a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `null`, or nothing after the colon.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A number; counts up to 2⁵³ are exact.
    Number(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values in the file's order.
    Section(Vec<(String, Node)>),
}

impl Node {
    pub(crate) fn text(text: &str) -> Node {
        Node::Text(text.into())
    }

    /// Returns a count of elements, ranks, sequences or steps.
    pub(crate) fn count(count: usize) -> Node {
        Node::Number(count as f64)
    }

    /// Returns an f32 by its shortest decimal form, which reads back to the same f32.
    pub(crate) fn single(value: f32) -> Node {
        Node::Number(value.to_string().parse().unwrap_or(f64::from(value)))
    }

    /// True if this is the word `auto`.
    pub(crate) fn is_auto(&self) -> bool {
        matches!(self, Node::Text(text) if text == "auto")
    }

    /// Returns its truth value; `None` if it has none. YAML's quoted words for truth values count
    /// too.
    pub(crate) fn as_flag(&self) -> Option<bool> {
        match self {
            Node::Flag(flag) => Some(*flag),
            Node::Text(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Some(true),
                "false" | "no" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        match self {
            Node::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns its word: text, or a number or truth value as written; `None` for other nodes.
    pub(crate) fn word(&self) -> Option<String> {
        match self {
            Node::Text(text) => Some(text.clone()),
            Node::Flag(_) | Node::Number(_) => Some(self.to_string()),
            _ => None,
        }
    }

    /// Returns the value of `name`; `None` if this is not a section that has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        match self {
            Node::Section(entries) => entries.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Inserts `value` at a dotted path, and the sections that lead to it.
    pub(crate) fn insert(&mut self, path: &str, value: Node) {
        let Node::Section(entries) = self else { return };
        let Some((head, rest)) = path.split_once('.') else {
            entries.push((path.into(), value));
            return;
        };
        match entries.iter_mut().find(|(key, _)| key == head) {
            Some((_, section)) => section.insert(rest, value),
            None => {
                let mut section = Node::Section(Vec::new());
                section.insert(rest, value);
                entries.push((head.into(), section));
            }
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&shortened(&json))
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Node::Null => serializer.serialize_unit(),
            Node::Flag(flag) => serializer.serialize_bool(*flag),
            Node::Number(n) if n.fract() == 0.0 && n.abs() <= LARGEST_EXACT as f64 => {
                serializer.serialize_i64(*n as i64)
            }
            Node::Number(n) => serializer.serialize_f64(*n),
            Node::Text(text) => serializer.serialize_str(text),
            Node::List(items) => serializer.collect_seq(items),
            Node::Section(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

/// True if `value` is the word `none`.
pub(crate) fn is_none(value: &Node) -> bool {
    value.as_text().is_some_and(|text| text.eq_ignore_ascii_case("none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::say::SHOWN;

    #[test]
    fn messages_repeat_values_on_one_short_line() {
        assert_eq!(Node::text("a\nb").to_string(), r#""a\nb""#);
        assert!(Node::text(&"x".repeat(9999)).to_string().chars().count() <= SHOWN + 1);
        assert_eq!(Node::single(0.95).to_string(), "0.95");
        assert_eq!(Node::Number(-2.0).to_string(), "-2");
    }
}
