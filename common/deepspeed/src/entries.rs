//! The settings in a file: keys of the table with their values, and how the file writes them.

use crate::keys::Key;
use crate::node::{Node, is_none};
use crate::table::keys;

/// A key of the file, with a value that passed its row's check, or `auto` where the row allows it.
pub(crate) struct Entry {
    pub key: &'static Key,
    pub value: Node,
    /// The key that the file writes; `None` if it is this one.
    pub alias: Option<Written>,
}

/// A key and its value as the file writes them.
#[derive(Clone)]
pub(crate) struct Written {
    pub path: String,
    pub value: Node,
}

impl Entry {
    /// Returns the setting as the file writes it; `value` is the entry's, resolved.
    pub(crate) fn asked(&self, value: &Node) -> String {
        let means = asked(self.key.path, value);
        match &self.alias {
            None => means,
            Some(alias) if alias.value == *value => asked(&alias.path, value),
            Some(alias) => format!("{}, which asks for {means},", asked(&alias.path, &alias.value)),
        }
    }
}

/// Returns a key and its value as text; for a section, only its name.
pub(crate) fn asked(path: &str, value: &Node) -> String {
    match value {
        Node::Section(_) | Node::List(_) => path.into(),
        value => format!("{path} {value}"),
    }
}

/// The entries of a file, in the table's order, each key once.
#[derive(Default)]
pub(crate) struct Entries(Vec<Entry>);

impl Entries {
    /// Sorts `entries`, of which no two have the same key, in the order of the table.
    pub(crate) fn in_order(entries: Vec<Entry>) -> Self {
        let mut entries = Entries(entries);
        entries.sort();
        entries
    }

    /// Adds `entry`, whose key the file does not have.
    pub(crate) fn add(&mut self, entry: Entry) {
        self.0.push(entry);
        self.sort();
    }

    fn sort(&mut self) {
        self.0.sort_by_key(|entry| keys().position(|key| key.path == entry.key.path));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Removes the entries of the keys for which `test` holds. Returns these keys.
    pub(crate) fn remove_all(&mut self, test: impl Fn(&str) -> bool) -> Vec<&'static str> {
        self.0.extract_if(.., |entry| test(entry.key.path)).map(|entry| entry.key.path).collect()
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.0.iter().find(|entry| entry.key.path == path).map(|entry| &entry.value)
    }

    /// True if the section of `path` is switched on, for sections that have a switch (`enabled` or
    /// `device`); `None` if the flags decide.
    pub(crate) fn switched_on(&self, path: &str) -> Option<bool> {
        let Some((section, name)) = path.rsplit_once('.') else { return Some(true) };
        for switch in ["enabled", "device"] {
            let switch_path = format!("{section}.{switch}");
            if name != switch && keys().any(|key| key.path == switch_path) {
                let value = self.get(&switch_path).filter(|value| !is_none(value));
                return match value {
                    Some(value) if value.is_auto() => None,
                    Some(value) => Some(value.as_flag().unwrap_or(true)),
                    None => Some(false),
                };
            }
        }
        Some(true)
    }
}
