//! The schema: every key that DeepSpeed's and Accelerate's code and documentation know, and what becomes of it here.
//!
//! Defaults are those of DeepSpeed's code, which its documentation contradicts in places.

mod accelerate;
mod batch;
mod fsdp;
mod precision;
mod rest;
mod zero;

use super::keys::{Key, Kind};
use super::node::Node;

pub(crate) use accelerate::CONFIG_FILE;

/// The rows, by subject. The stage comes before keys that depend on it.
pub static TABLES: [&[Key]; 6] =
    [batch::KEYS, zero::KEYS, precision::KEYS, rest::KEYS, accelerate::KEYS, fsdp::KEYS];

/// All rows, in order.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    TABLES.iter().flat_map(|rows| rows.iter())
}

/// The row of `path`.
pub fn find(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.path == path)
}

/// A whole number from `low`.
const fn from(low: u64) -> Kind {
    Kind::Count(low, 1 << 53)
}

fn count(value: &Node) -> usize {
    value.as_number().unwrap_or(0.0) as usize
}

fn number(value: &Node) -> f64 {
    value.as_number().unwrap_or(0.0)
}

fn flag(value: &Node) -> bool {
    value.as_flag().unwrap_or(false)
}

/// `false` asks for nothing.
fn off(value: &Node) -> bool {
    !flag(value)
}

/// `true` asks for nothing.
fn on(value: &Node) -> bool {
    flag(value)
}

/// A section asks for nothing unless its `enabled` is true.
fn disabled(value: &Node) -> bool {
    value.get("enabled").is_none_or(off)
}

/// As [`disabled`], and no section inside it is switched on either.
fn switched_off(value: &Node) -> bool {
    match value {
        Node::Section(entries) => disabled(value) && entries.iter().all(|(_, inner)| switched_off(inner)),
        _ => true,
    }
}

/// Nothing at all asks for nothing.
fn empty(value: &Node) -> bool {
    match value {
        Node::Null => true,
        Node::List(items) => items.is_empty(),
        Node::Section(entries) => entries.is_empty(),
        _ => false,
    }
}
