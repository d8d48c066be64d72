//! The schema: every key in the code and documentation of DeepSpeed and Accelerate, and its effect
//! here.
//!
//! Defaults are those of DeepSpeed's code, which its documentation contradicts in places.

mod accelerate;
mod batch;
mod fsdp;
mod offload;
pub(crate) mod parallelism;
mod precision;
mod rest;
mod zero;

use super::keys::{Key, Kind};
use super::node::Node;
use settings::size::LARGEST_EXACT;

pub(crate) use accelerate::CONFIG_FILE;
pub(crate) use precision::{
    AUTOCAST, AUTOCAST_DTYPE, GRADIENTS, HYSTERESIS, SENT, SENT_IN_16_BITS, WINDOW, autocast,
};
pub(crate) use zero::saves_as_trained;

/// The rows, by subject. The stage comes before keys that depend on it.
pub static TABLES: [&[Key]; 8] = [
    batch::KEYS,
    zero::KEYS,
    offload::KEYS,
    precision::KEYS,
    rest::KEYS,
    accelerate::KEYS,
    fsdp::KEYS,
    parallelism::KEYS,
];

/// Iterates over all rows, in order.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    TABLES.iter().flat_map(|rows| rows.iter())
}

/// Returns the row of `path`.
pub fn find(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.path == path)
}

/// True if the row is of Accelerate's file.
pub(crate) fn is_accelerates(key: &Key) -> bool {
    let own = [accelerate::KEYS, fsdp::KEYS, parallelism::KEYS];
    own.into_iter().flatten().any(|own| own.path == key.path)
}

/// Returns the kind of whole numbers from `low`.
const fn from(low: u64) -> Kind {
    Kind::Count(low, LARGEST_EXACT)
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

/// True if the value is false: it asks for nothing.
fn off(value: &Node) -> bool {
    !flag(value)
}

/// True if the value is true: it asks for nothing.
fn on(value: &Node) -> bool {
    flag(value)
}

/// True if the section asks for nothing: its `enabled` is not true.
fn disabled(value: &Node) -> bool {
    value.get("enabled").is_none_or(off)
}

/// True if the section and all sections inside it are disabled.
fn switched_off(value: &Node) -> bool {
    match value {
        Node::Section(entries) => disabled(value) && entries.iter().all(|(_, inner)| switched_off(inner)),
        _ => true,
    }
}

/// True if the value is empty: it asks for nothing.
fn empty(value: &Node) -> bool {
    match value {
        Node::Null => true,
        Node::List(items) => items.is_empty(),
        Node::Section(entries) => entries.is_empty(),
        _ => false,
    }
}
